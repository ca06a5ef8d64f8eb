"""The command line ``skprivacy``. Start at ``main``; each command has a module of its name."""

from .main import main

__all__ = ["main"]
