"""Choosing a privacy level, and hyper-parameters: what it costs and what it brings."""

from ._plan import SearchPlan
from ._reading import EpsilonInterval
from .leakage import loss_auc, make_leakage_scorer
from .search import PrivateSearchCV
from .sweep import PrivacySweepCV

__all__ = [
    "EpsilonInterval",
    "PrivacySweepCV",
    "PrivateSearchCV",
    "SearchPlan",
    "loss_auc",
    "make_leakage_scorer",
]
