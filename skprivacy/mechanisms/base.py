"""The interface of every mechanism: all private data is released through it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from .entropy import SecureRandom

__all__ = ["Mechanism"]


class Mechanism(ABC):
    """A randomised function of a value computed from private data.

    Concrete mechanisms are small frozen dataclasses with a declared ``sensitivity``: the largest
    distance between the ``value`` of two neighbouring data sets, in the norm that the mechanism
    names. Every release of the library passes through :meth:`release`, so that a test can record
    the inputs and replay the outputs.
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
