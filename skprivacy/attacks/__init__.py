"""Attacks: what a fitted classifier tells about the records it was trained on."""

from .lira import LiRA
from .membership import LossThreshold, MembershipAttack
from .quantile import QuantileAttack
from .result import AttackResult
from .rmia import RMIA
from .shadow import ShadowPool
from .shadow_classifier import MLLeaksAttack, ShokriAttack
from .threshold import ReferenceThreshold, SignalThreshold

__all__ = [
    "RMIA",
    "AttackResult",
    "LiRA",
    "LossThreshold",
    "MLLeaksAttack",
    "MembershipAttack",
    "QuantileAttack",
    "ReferenceThreshold",
    "ShadowPool",
    "ShokriAttack",
    "SignalThreshold",
]
