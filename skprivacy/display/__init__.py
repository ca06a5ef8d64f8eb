"""Display objects as in scikit-learn: ``from_...`` computes and draws, ``plot`` draws again.

Files, in reading order:

- ``membership_roc``: `MembershipRocDisplay`
- ``privacy_utility``: the display of a sweep, which `PrivacySweepCV.plot` makes
- ``additive_effects``: `PrivateAdditiveDisplay`
"""

from .additive_effects import PrivateAdditiveDisplay
from .membership_roc import MembershipRocDisplay

__all__ = ["MembershipRocDisplay", "PrivateAdditiveDisplay"]
