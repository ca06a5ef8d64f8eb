"""What adds noise: mechanisms, their entropy and their sampling."""

from .additive import Gaussian, Laplace, Logistic, analytic_noise_multiplier
from .base import Mechanism
from .entropy import SecureRandom
from .floating import FloatGaussian
from .response import RandomizedResponse
from .sampling import PoissonSampler
from .selection import Exponential, ReportNoisyMax

__all__ = [
    "Exponential",
    "FloatGaussian",
    "Gaussian",
    "Laplace",
    "Logistic",
    "Mechanism",
    "PoissonSampler",
    "RandomizedResponse",
    "ReportNoisyMax",
    "SecureRandom",
    "analytic_noise_multiplier",
]
