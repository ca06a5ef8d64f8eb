"""Label differential privacy: classifiers whose features are public and labels private.

``response.py``, ``stages.py`` and ``alibi.py`` release noisy labels, from which ``_learning.py``
learns; ``pate.py`` releases votes.
"""

from .alibi import ALIBIClassifier
from .pate import LabelPATEClassifier
from .response import RandomizedResponseClassifier
from .stages import LP2STClassifier

__all__ = [
    "ALIBIClassifier",
    "LP2STClassifier",
    "LabelPATEClassifier",
    "RandomizedResponseClassifier",
]
