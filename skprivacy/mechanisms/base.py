"""The interface of every mechanism: all private data is released through it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from .._validation import PlainNumbers, is_tensor
from ..accounting.noise_arithmetic import StatesArithmetic
from .entropy import SecureRandom

__all__ = ["Mechanism", "answers", "check_random"]

_ANSWERS: ContextVar[list[tuple[Mechanism, Any]] | None] = ContextVar("_ANSWERS", default=None)


@contextmanager
def answers() -> Iterator[list[tuple[Mechanism, Any]]]:
    """Collect mechanisms, with copies of what they release in this thread: never what they get.

    It is for verification: a guarantee that adds up the events of its mechanisms is one of their
    answers, of which the model is made.
    """
    collected: list[tuple[Mechanism, Any]] = []
    token = _ANSWERS.set(collected)
    try:
        yield collected
    finally:
        _ANSWERS.reset(token)


def check_random(random: Any) -> None:
    """Refuse any other source of chance than ours."""
    if not isinstance(random, SecureRandom):
        raise TypeError(f"random={random!r} must be a SecureRandom, the source of all noise.")


class Mechanism(PlainNumbers, StatesArithmetic, ABC):
    """A randomised function of a value computed from private data.

    Concrete mechanisms are small frozen dataclasses with a declared ``sensitivity``: the largest
    distance between the ``value`` of two neighbouring data sets, in the norm that the mechanism
    names. Every release of the library passes through :meth:`release`, so that a test can record
    the inputs and replay the outputs.

    ``arithmetic`` is that of the noise. Each class states its own: ``"exact"`` only if its proof
    covers every bit of what it releases. A class that states nothing has ``"unspecified"`` noise.
    """

    sensitivity: float

    @property
    @abstractmethod
    def event(self) -> Any:
        """The accounting event of one release."""

    def release(self, value: Any, random: SecureRandom) -> Any:
        """Return a noisy version of ``value``; floating-point arrays may be changed in place.

        Parameters
        ----------
        value : object
            What the mechanism takes, such as an array.
        random : SecureRandom
            The source of all noise.

        Returns
        -------
        object
            What the mechanism releases; an array for an array.
        """
        check_random(random)
        answer = self._release(value, random)
        if (collected := _ANSWERS.get()) is not None:
            here = answer.cpu().numpy() if is_tensor(answer) else answer
            collected.append((self, np.array(here, copy=True)))
        return answer

    @abstractmethod
    def _release(self, value: Any, random: SecureRandom) -> Any: ...
