"""Privacy loss distributions (PLD): tight numerical accounting of composed events."""

from ..event import NoLossDistributionError
from .distribution import PrivacyLossDistribution, pld

__all__ = ["NoLossDistributionError", "PrivacyLossDistribution", "pld"]
