"""Fitted models in files without pickle: numbers, and JSON that says what they are.

``models`` has the two functions, ``_tree`` goes through pipelines, ``_linear``, ``_preprocessing``,
``_synthesis``, ``_trained``, ``_taught`` and ``_learners`` say what is kept of each class,
``_checks`` looks at what a file says, and ``files`` reads and writes the file itself. Networks say
in ``neural_network`` what is kept of them.
"""

from .models import load_model, save_model

__all__ = ["load_model", "save_model"]
