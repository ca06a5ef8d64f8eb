"""Choosing a privacy level: what it costs in utility and what it buys against attacks."""

from .leakage import loss_auc, make_leakage_scorer
from .sweep import PrivacySweepCV

__all__ = ["PrivacySweepCV", "loss_auc", "make_leakage_scorer"]
