"""Choosing a privacy level, and hyper-parameters: what it costs and what it brings."""

from .leakage import loss_auc, make_leakage_scorer
from .search import PrivateSearchCV
from .search_plan import SearchPlan
from .sweep import PrivacySweepCV
from .sweep_curve import EpsilonInterval

__all__ = [
    "EpsilonInterval",
    "PrivacySweepCV",
    "PrivateSearchCV",
    "SearchPlan",
    "loss_auc",
    "make_leakage_scorer",
]
