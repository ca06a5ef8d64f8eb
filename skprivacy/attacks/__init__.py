"""Attacks: what a fitted classifier tells about the records it was trained on."""

from .lira import LiRA
from .membership import LossThreshold, MembershipAttack
from .result import AttackResult
from .shadow import ShadowPool

__all__ = ["AttackResult", "LiRA", "LossThreshold", "MembershipAttack", "ShadowPool"]
