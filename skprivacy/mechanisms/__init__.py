"""Noise mechanisms, their source of randomness, and Poisson sampling.

Read ``base.py`` (``Mechanism.release``, through which all private data passes), ``entropy.py``
(``SecureRandom``), ``discrete.py`` and ``additive.py`` (exact noise for single releases), then
``floating.py`` (noise for the long vectors of DP-SGD).
"""

from ..accounting.calibration import analytic_noise_multiplier, classic_noise_multiplier
from .additive import Gaussian, KNorm, Laplace, Logistic, SmoothGaussian
from .base import Mechanism
from .distributed_gaussian import DistributedGaussian
from .float_noise import FloatGaussian, FloatLogistic
from .matrix_gaussian import MatrixGaussian
from .rounded_gaussian import RoundedGaussian
from .secure_random import PoissonSampler, SecureRandom
from .selection import Exponential, RandomizedResponse, RandomizedResponseAmong, ReportNoisyMax

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
