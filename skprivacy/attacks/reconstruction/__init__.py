"""Reconstruction of records from gradients and models.

Files, in reading order:

- ``inversion_attack``: `InversionAttack` (fit, reconstruct, evaluate); label counts from the last
  bias
- ``inversion_result``: `InversionResult`: recovered shares beside null models and the ReRo bound
- ``column_layout``: Which features form a column, when rows are equal; null models and their
  ceiling
- ``first_layer``: `FirstLayerInversion`: rows read off weight and bias gradients (Boenisch 2023)
- ``bayes``: `BayesInversion`: posterior over candidate rows
- ``party_gradient``: `party_gradient`, `gradient_of_step`: what a party sends
- ``model_inversion``: `invert_class`, `judge_inversion` (Fredrikson 2015)
- ``candidate_rows``: Posterior of candidate records given a noisy gradient, by Gibbs sampling for
  batches
- ``first_layer_rows``: Records from a first linear layer: the weights' gradient divided by the
  bias's (Phong 2018)
- ``gradient_labels``: Label inference from the gradient of the last layer's bias: iDLG, and counts
  for batches
- ``optimization``: Gradient inversion by optimisation: deep leakage from gradients (Zhu et al.
  2019), TabLeak
- ``relaxed_rows``: Gradient matching by descent on relaxed rows: softmax categories and pooled
  starts (TabLeak)
"""
