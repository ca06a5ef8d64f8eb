"""Saving of fitted models without pickle: arrays, and a JSON description.

A class declares in ``_saved_state`` which of its fitted attributes a file holds. The declaration is
plain text, so the class imports nothing from this package.

Files, in reading order:

- ``models``: `save_model`, `load_model`: header checks, guarantee recomputed
- ``state``: `to_state` and `from_state` for any model, and the fixed table of classes
- ``attribute_states``: Kinds of declared attributes: arrays, labels, bounds, guarantees
- ``model_states``: Kinds of nested models and of attributes of one model; table of all kinds
- ``third_party``: Table of the scikit-learn classes that a model may contain
- ``networks``: Networks: weights, and the public sizes of their modules
- ``synthesizers``: Synthesizers: tables on the grid of each column, or a generator
- ``value_checks``: Values as JSON, and their checks
- ``file_format``: The safetensors file: arrays read on demand, and a JSON header
"""

from .models import load_model, save_model

__all__ = ["load_model", "save_model"]
