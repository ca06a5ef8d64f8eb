"""Output defences without a guarantee: softened, truncated or rounded probabilities, MemGuard.

They prove nothing; attacks measure how much they help. Start with ``coarse.py``.
"""

from .memguard import MemGuardClassifier
from .output_defence import RoundedClassifier, TemperatureClassifier, TopKClassifier

__all__ = [
    "MemGuardClassifier",
    "RoundedClassifier",
    "TemperatureClassifier",
    "TopKClassifier",
]
