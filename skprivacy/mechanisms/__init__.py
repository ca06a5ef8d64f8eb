"""What adds noise: mechanisms, their entropy and their sampling."""

from .base import Mechanism
from .entropy import SecureRandom
from .sampling import PoissonSampler

__all__ = ["Mechanism", "PoissonSampler", "SecureRandom"]
