"""Output defences without a guarantee: softened, truncated or rounded probabilities, MemGuard.

They prove nothing; attacks measure how much they help. Start with ``coarse.py``.

Files, in reading order:

- ``randomized_smoothing``: SmoothedClassifier: certified radius, no privacy; belongs beside the
  other defences
- ``memguard``: `MemGuardClassifier`
- ``output_defence``: Base of output defences: classifiers that change their probabilities before
  showing them
"""

from .memguard import MemGuardClassifier
from .output_defence import RoundedClassifier, TemperatureClassifier, TopKClassifier

__all__ = [
    "MemGuardClassifier",
    "RoundedClassifier",
    "TemperatureClassifier",
    "TopKClassifier",
]
