"""Privacy loss distributions: the tightest numerical accounting of what composes."""

from .._event import NoLossDistributionError
from .distribution import PrivacyLossDistribution, pld

__all__ = ["NoLossDistributionError", "PrivacyLossDistribution", "pld"]
