"""Label differential privacy: classifiers whose features are public and labels private.

Files, in reading order:

- ``base``: the base: release each label once, with noise, then learn
- ``noisy_labels``: RandomizedResponseClassifier, LP2STClassifier, ALIBIClassifier
- ``posterior``: learning from labels with known noise
- ``label_pate``: LabelPATEClassifier: votes instead of noisy labels
"""

from .label_pate import LabelPATEClassifier
from .noisy_labels import ALIBIClassifier, LP2STClassifier, RandomizedResponseClassifier

__all__ = [
    "ALIBIClassifier",
    "LP2STClassifier",
    "LabelPATEClassifier",
    "RandomizedResponseClassifier",
]
