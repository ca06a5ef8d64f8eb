"""Display objects as in scikit-learn: ``from_...`` computes and draws, ``plot`` draws again."""

from .membership_roc import MembershipRocDisplay
from .privacy_utility import PrivacyUtilityDisplay

__all__ = ["MembershipRocDisplay", "PrivacyUtilityDisplay"]
