"""Data sets with public schemas, checked against the published files."""

from .adult import fetch_adult
from .demo import load_demo

__all__ = ["fetch_adult", "load_demo"]
