"""Private neural networks (needs torch and skorch, which are imported here and not before)."""

from ._persistence import load_model, save_model
from .augmentation import RandomFlip, RandomShift
from .dpsgd import DPSGDClassifier
from .regression import DPSGDRegressor

__all__ = [
    "DPSGDClassifier",
    "DPSGDRegressor",
    "RandomFlip",
    "RandomShift",
    "load_model",
    "save_model",
]
