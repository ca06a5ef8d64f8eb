"""The command line: ``skprivacy sweep``, ``audit``, ``verify``, ``budget`` and ``datasets``."""

from .main import main

__all__ = ["main"]
