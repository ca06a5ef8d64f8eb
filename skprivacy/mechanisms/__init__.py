"""Noise mechanisms, their source of randomness, and Poisson sampling.

Read ``base.py`` (``Mechanism.release``, through which all private data passes), ``entropy.py``
(``SecureRandom``), ``discrete.py`` and ``additive.py`` (exact noise for single releases), then
``floating.py`` (noise for the long vectors of DP-SGD).
"""

from .additive import Gaussian, Laplace, Logistic
from .base import Mechanism
from .correlated import MatrixGaussian
from .distributed import DistributedGaussian
from .entropy import SecureRandom
from .floating import FloatGaussian
from .gaussian_noise import analytic_noise_multiplier, classic_noise_multiplier
from .k_norm import KNorm
from .logistic import FloatLogistic
from .response import RandomizedResponse, RandomizedResponseAmong
from .rounded import RoundedGaussian
from .sampling import PoissonSampler
from .sanitised import SmoothGaussian
from .selection import Exponential, ReportNoisyMax

__all__ = [
    "DistributedGaussian",
    "Exponential",
    "FloatGaussian",
    "FloatLogistic",
    "Gaussian",
    "KNorm",
    "Laplace",
    "Logistic",
    "MatrixGaussian",
    "Mechanism",
    "PoissonSampler",
    "RandomizedResponse",
    "RandomizedResponseAmong",
    "ReportNoisyMax",
    "RoundedGaussian",
    "SecureRandom",
    "SmoothGaussian",
    "analytic_noise_multiplier",
    "classic_noise_multiplier",
]
