"""Private synthetic tables, what they are worth, and models that are trained on them."""

from .gan import DPGANSynthesizer
from .grid import Grid
from .quality import SyntheticQuality, synthetic_quality
from .synthesizer import PrivateSynthesizer
from .training import SyntheticDataClassifier, SyntheticDataRegressor

__all__ = [
    "DPGANSynthesizer",
    "Grid",
    "PrivateSynthesizer",
    "SyntheticDataClassifier",
    "SyntheticDataRegressor",
    "SyntheticQuality",
    "synthetic_quality",
]
