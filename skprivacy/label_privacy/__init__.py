"""Classifiers that protect the labels of records whose features are public."""

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
