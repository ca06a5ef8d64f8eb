"""Attribute, property and label inference.

Files, in reading order:

- ``attribute_result``: AttributeResult, the comparison with imputation
- ``attribute``: AttributeInference, for models and for updates
- ``property``: PropertyInference, for models and for updates
- ``label``: LabelInferenceAttack, with label canaries
"""
