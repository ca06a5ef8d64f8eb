"""Private synthetic tables, what they are worth, and models that are trained on them."""

from .domain import Grid
from .gan import DPGANSynthesizer
from .marginal_synthesizer import PrivateSynthesizer
from .quality import SyntheticQuality, synthetic_quality
from .synthetic_training import SyntheticDataClassifier, SyntheticDataRegressor

__all__ = [
    "DPGANSynthesizer",
    "Grid",
    "PrivateSynthesizer",
    "SyntheticDataClassifier",
    "SyntheticDataRegressor",
    "SyntheticQuality",
    "synthetic_quality",
]
