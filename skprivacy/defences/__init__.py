"""Output defences without a guarantee: softened, truncated or rounded probabilities, MemGuard.

They prove nothing; attacks measure how much they help. Start with ``coarse.py``.
"""

from .coarse import RoundedClassifier, TemperatureClassifier, TopKClassifier
from .memguard import MemGuardClassifier

__all__ = [
    "MemGuardClassifier",
    "RoundedClassifier",
    "TemperatureClassifier",
    "TopKClassifier",
]
