"""Fitted models in files without pickle: numbers, and JSON that says what they are.

``models`` has the two functions, ``_tree`` goes through pipelines, ``_linear``, ``_preprocessing``,
``_synthesis``, ``_trained``, ``_taught`` and ``_learners`` say what is kept of each class,
``_checks`` looks at what a file says, and ``files`` reads and writes the file itself. Networks say
in ``neural_network`` what is kept of them.

Files, in reading order:

- ``models``: `save_model`, `load_model`: header checks, guarantee recomputed
- ``file_format``: One safetensors file: arrays read on demand, JSON header
- ``state``: One walker: `to_state` / `from_state` by declared attributes, value checks
- ``third_party``: scikit-learn classes that may stand inside, with their attributes (a table)
- ``federated_state``: What a file holds of a model of many parties: its weights and public facts,
  not who they are
- ``linear_state``: What a file holds of a private linear model, and of a scaler: coefficients and
  public facts
- ``preprocessing_state``: What a file holds of preprocessing that learns nothing: its parameters
  and its schema
- ``student_state``: What a file holds of a model that teaches another: by noisy votes, or by noisy
  labels
- ``synthesizer_state``: What a file holds of synthesizers: noisy tables, or the weights of a
  generator
- ``synthetic_training_state``: What a file holds of a model that was trained on synthetic records:
  both, and the classes
- ``table_state``: What a file holds of a table: the public facts that every synthesizer keeps of
  its columns
- ``value_checks``: What a file says is looked at before it is believed, and what is common to all
  models
"""

from .models import load_model, save_model

__all__ = ["load_model", "save_model"]
