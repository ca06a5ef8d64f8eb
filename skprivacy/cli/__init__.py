"""The command line: ``skprivacy sweep``, ``audit``, ``budget`` and ``datasets``."""

from .main import main

__all__ = ["main"]
