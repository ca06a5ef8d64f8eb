"""Attribute, property and label inference.

Files, in reading order:

- ``attribute``: `AttributeInference` and its result; works on a model or on `Updates`
- ``property``: `PropertyInference` and base; works on a model or on `Updates`
- ``label``: `LabelInferenceAttack`, `LabelCanaries`, result
"""
