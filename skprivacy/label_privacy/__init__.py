"""Label differential privacy: classifiers whose features are public and labels private.

``response.py``, ``stages.py`` and ``alibi.py`` release noisy labels, from which ``_learning.py``
learns; ``pate.py`` releases votes.

Files, in reading order:

- ``base``: release of each label once, then learning
- ``posterior``: learning from labels noised by a known law
- ``noisy_labels``: RandomizedResponse-, ALIBI-, LP2STClassifier
- ``label_pate``: LabelPATEClassifier
"""

from .label_pate import LabelPATEClassifier
from .noisy_labels import ALIBIClassifier, LP2STClassifier, RandomizedResponseClassifier

__all__ = [
    "ALIBIClassifier",
    "LP2STClassifier",
    "LabelPATEClassifier",
    "RandomizedResponseClassifier",
]
