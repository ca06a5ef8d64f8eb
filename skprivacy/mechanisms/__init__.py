"""What adds noise: mechanisms, their entropy and their sampling."""

from .base import Mechanism
from .entropy import SecureRandom
from .floating import FloatGaussian
from .sampling import PoissonSampler

__all__ = ["FloatGaussian", "Mechanism", "PoissonSampler", "SecureRandom"]
