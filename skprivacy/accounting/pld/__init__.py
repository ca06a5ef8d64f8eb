"""Privacy loss distributions (PLD): tight numerical accounting of composed events.

Files, in reading order:

- ``pairs``: dominating pairs; a pair from points of a privacy curve
- ``sampled_pairs``: pairs of Poisson samples and of sampled groups
- ``saddle_point``: plan of grid, window and tilt
- ``compose``: composition on a pessimistic grid by one FFT
- ``distribution``: PrivacyLossDistribution
- ``argmax``: privacy curve of a block of arg-max queries
- ``channels``: channels that cover one arg-max query, Gaussian and Laplace noise
"""

from ..event import NoLossDistributionError
from .distribution import PrivacyLossDistribution, pld

__all__ = ["NoLossDistributionError", "PrivacyLossDistribution", "pld"]
