"""Fitted models in files without pickle: numbers, and JSON that says what they are.

A class says in ``_saved_state``, beside its fitted attributes, what a file holds of it. It says so
in words, so that it imports nothing from here.

Files, in reading order:

- ``models``: `save_model`, `load_model`: header checks, guarantee recomputed
- ``state``: One walker, `to_state` and `from_state`, and the closed table of classes
- ``attribute_states``: What the words of a declaration mean: arrays, labels, bounds, guarantees
- ``third_party``: scikit-learn classes that may stand inside, with their attributes (a table)
- ``networks``: Own code of networks: weights, and the public sizes of their modules
- ``synthesizers``: Own code of synthesizers: tables on the grid of each column, or a generator
- ``value_checks``: What a file says is looked at before it is believed
- ``file_format``: One safetensors file: arrays read on demand, JSON header
"""

from .models import load_model, save_model

__all__ = ["load_model", "save_model"]
