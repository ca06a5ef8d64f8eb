"""Private neural networks (needs torch and skorch, which are imported here and not before)."""

from ._persistence import load_model, save_model
from ._training.optimizers import PrivateAdam
from .augmentation import RandomFlip, RandomShift
from .dp_net import DPNeuralNet
from .dpsgd import DPSGDClassifier
from .regression import DPSGDRegressor

__all__ = [
    "DPNeuralNet",
    "DPSGDClassifier",
    "DPSGDRegressor",
    "PrivateAdam",
    "RandomFlip",
    "RandomShift",
    "load_model",
    "save_model",
]
