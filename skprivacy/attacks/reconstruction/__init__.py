"""Reconstruction of records from gradients and models.

Files, in reading order:

- ``inversion_attack``: InversionAttack, the base: fit, reconstruct, evaluate; labels (iDLG)
- ``inversion_result``: InversionResult: recovered shares, null models and the bound of Balle 2022
- ``column_layout``: features that form a column, equality of rows, null models
- ``party_gradient``: the gradient that a party of federated training sends
- ``first_layer``: FirstLayerInversion: rows from a first linear layer (Boenisch et al. 2023)
- ``bayes``: BayesInversion: posterior over candidate records
- ``optimization``: gradient inversion by optimisation (Zhu et al. 2019), TabLeak
- ``model_inversion``: a typical input of a class from confidences (Fredrikson 2015)
"""
