"""Private synthetic tables, and what they are worth."""

from .grid import Grid
from .quality import SyntheticQuality, synthetic_quality
from .synthesizer import PrivateSynthesizer

__all__ = ["Grid", "PrivateSynthesizer", "SyntheticQuality", "synthetic_quality"]
