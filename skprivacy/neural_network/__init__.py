"""Private neural networks (needs torch and skorch, which are imported here and not before)."""

from .dpsgd import DPSGDClassifier
from .regression import DPSGDRegressor

__all__ = ["DPSGDClassifier", "DPSGDRegressor"]
