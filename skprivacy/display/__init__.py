"""Display objects as in scikit-learn: ``from_...`` computes and draws, ``plot`` draws again.

Files, in reading order:

- ``membership_roc``: `MembershipRocDisplay`
- ``privacy_utility``: `PrivacyUtilityDisplay`
- ``additive_effects``: `PrivateAdditiveDisplay`
"""

from .additive_effects import PrivateAdditiveDisplay
from .membership_roc import MembershipRocDisplay
from .privacy_utility import PrivacyUtilityDisplay

__all__ = ["MembershipRocDisplay", "PrivacyUtilityDisplay", "PrivateAdditiveDisplay"]
