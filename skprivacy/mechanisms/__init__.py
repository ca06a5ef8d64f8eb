"""Noise mechanisms, their source of randomness, and Poisson sampling.

Read ``base.py`` (``Mechanism.release``, through which all private data passes), ``entropy.py``
(``SecureRandom``), ``discrete.py`` and ``additive.py`` (exact noise for single releases), then
``floating.py`` (noise for the long vectors of DP-SGD).

Files, in reading order:

- ``base``: Mechanism.release, the one door (+ `unrounded` from bounds.py)
- ``secure_random``: SecureRandom (AES-CTR), process identity, stream drawn ahead, PoissonSampler
- ``chacha``: ChaCha20 noise on a device, as torch operations
- ``chacha_triton``: the same as one Triton kernel
- ``integer_samplers``: exact discrete Laplace, Gaussian, logistic (Canonne, Kamath, Steinke 2020)
- ``additive``: Laplace, Gaussian, Logistic, K-norm, smooth Gaussian: exact on a grid
- ``float_noise``: FloatGaussian, FloatLogistic for long vectors
- ``rounded_gaussian``: Gaussian exact on a grid, for long vectors; its tail in integers
- ``matrix_gaussian``: correlated noise of a matrix factorisation
- ``distributed_gaussian``: Gaussian noise in shares, with masks
- ``selection``: randomised response, exponential mechanism, report noisy max
- ``bounds``: public bounds, exact quantised sums, UnitBall
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
