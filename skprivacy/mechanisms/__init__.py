"""Noise mechanisms, their source of randomness, and Poisson sampling.

Files, in reading order:

- ``base``: Mechanism, whose ``release`` is the only way out for private data; public bounds
- ``additive``: Laplace and Gaussian noise, exact on a grid (Canonne, Kamath and Steinke 2020)
- ``special_noise``: logistic, K-norm and smooth Gaussian noise
- ``secure_random``: SecureRandom (AES-256-CTR), PoissonSampler, noise drawn ahead
- ``selection``: exponential mechanism, report noisy max, randomised response
- ``float_noise``: Gaussian and logistic noise in floating point, for long vectors
- ``rounded_gaussian``: Gaussian noise exact on a grid, for long vectors
- ``matrix_gaussian``: correlated noise of a matrix factorisation
- ``distributed_gaussian``: Gaussian noise in shares of several parties
- ``chacha``: ChaCha20 noise on a device, as torch operations
- ``chacha_triton``: the same as one Triton kernel
"""

from .additive import Gaussian, Laplace
from .base import Mechanism
from .float_noise import FloatGaussian
from .secure_random import PoissonSampler, SecureRandom
from .selection import Exponential, RandomizedResponse, ReportNoisyMax
from .special_noise import KNorm

__all__ = [
    "Exponential",
    "FloatGaussian",
    "Gaussian",
    "KNorm",
    "Laplace",
    "Mechanism",
    "PoissonSampler",
    "RandomizedResponse",
    "ReportNoisyMax",
    "SecureRandom",
]
