"""Contrastive encoders, trained on public records without labels."""

from .scarf import SCARFEncoder
from .simclr import SimCLREncoder

__all__ = ["SCARFEncoder", "SimCLREncoder"]
