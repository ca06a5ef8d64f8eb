"""Defences that change what a model says. They prove nothing; attacks show how far they help."""

from .coarse import RoundedClassifier, TemperatureClassifier, TopKClassifier
from .memguard import MemGuardClassifier

__all__ = [
    "MemGuardClassifier",
    "RoundedClassifier",
    "TemperatureClassifier",
    "TopKClassifier",
]
