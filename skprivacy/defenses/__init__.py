"""Output defences without a guarantee of differential privacy, and randomised smoothing.

Softened, truncated or rounded probabilities and MemGuard prove nothing; attacks measure how much
they help. Randomised smoothing proves robustness, not privacy.

Files, in reading order:

- ``output_defense``: OutputDefense, the base; CoarsenedClassifier: temperature, top-k, rounding
- ``memguard``: MemGuardClassifier (Jia et al. 2019)
- ``randomized_smoothing``: SmoothedClassifier, with a certified radius
"""

from .memguard import MemGuardClassifier
from .output_defense import CoarsenedClassifier
from .randomized_smoothing import SmoothedClassifier

__all__ = ["CoarsenedClassifier", "MemGuardClassifier", "SmoothedClassifier"]
