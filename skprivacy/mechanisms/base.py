"""What every mechanism promises: the one door through which private data leaves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from .entropy import SecureRandom

__all__ = ["Mechanism"]


class Mechanism(ABC):
    """A randomised function of a value computed from private data.

    Concrete mechanisms are small frozen dataclasses with a declared ``sensitivity``: the most by
    which neighbouring data sets can move ``value``, in the norm that the mechanism names. Every
    release of the library passes through :meth:`release`, so that a test can record what goes in
    and replay what comes out.
    """

    sensitivity: float

    @property
    @abstractmethod
    def event(self) -> Any:
        """The accounting event of one release."""

    def release(self, value: Any, random: SecureRandom) -> Any:
        """Return a noisy version of ``value``; floating-point arrays may be changed in place."""
        return self._release(value, random)

    @abstractmethod
    def _release(self, value: Any, random: SecureRandom) -> Any: ...
