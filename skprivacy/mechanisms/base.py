"""Mechanism: the base class of all mechanisms, whose ``release`` is the only way out for data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._validation import PlainNumbers, as_array, check_unmasked, is_tensor
from ..accounting import Event
from ..accounting.events import NonPrivateEvent
from ..accounting.guarantee import UNSPECIFIED
from .bounds import _WHOLE
from .secure_random import SecureRandom, check_random

_RECORDED_RELEASES: ContextVar[list[tuple[Mechanism, Any]] | None] = ContextVar(
    "_ANSWERS", default=None
)


@contextmanager
def record_releases() -> Iterator[list[tuple[Mechanism, Any]]]:
    """Collect mechanisms with copies of their releases in this thread, never with their inputs."""
    collected: list[tuple[Mechanism, Any]] = []
    token = _RECORDED_RELEASES.set(collected)
    try:
        yield collected
    finally:
        _RECORDED_RELEASES.reset(token)


class StatesArithmetic:
    """Base of classes that add noise; each class body states the arithmetic of its noise.

    **Guarantees.** A subclass that states none has "unspecified" noise, even if its base class is
    exact: the subclass may release by other code.
    """

    arithmetic: ClassVar[str] = UNSPECIFIED

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "arithmetic" not in cls.__dict__:
            cls.arithmetic = UNSPECIFIED


class Mechanism(PlainNumbers, StatesArithmetic, ABC):
    """A randomised function of a value that was computed from private data.

    Concrete mechanisms are small frozen dataclasses with a declared ``sensitivity``: the largest
    distance between the ``value`` of two neighbouring data sets, in the norm that the mechanism
    names. All releases of the library pass through :meth:`release`, so that a test can record the
    inputs and replay the outputs.

    ``arithmetic`` describes the noise. Each class states its own: ``"exact"`` only if its proof
    covers every bit of a release. Without a statement it is ``"unspecified"``.
    """

    sensitivity: float

    @property
    @abstractmethod
    def event(self) -> Any:
        """Accounting event of one release."""

    def release(self, value: Any, random: SecureRandom) -> Any:
        """Return a noisy version of ``value``; floating-point arrays may be changed in place.

        Parameters
        ----------
        value : object
            Input of the mechanism, such as an array.
        random : SecureRandom
            The source of all noise.

        Returns
        -------
        object
            The released value; an array for an array.
        """
        check_random(random)
        answer = self._release(value, random)
        if (collected := _RECORDED_RELEASES.get()) is not None:
            here = answer.cpu().numpy() if is_tensor(answer) else answer
            collected.append((self, np.array(here, copy=True)))
        return answer

    @abstractmethod
    def _release(self, value: Any, random: SecureRandom) -> Any: ...


class NoiseMechanism(Mechanism):
    """Mechanism that adds noise of ``noise_multiplier`` times its sensitivity."""

    noise_multiplier: float

    @property
    def event(self) -> Event:
        """Accounting event of one release; ``NonPrivateEvent()`` without noise."""
        return self._event() if self.noise_multiplier else NonPrivateEvent()

    @abstractmethod
    def _event(self) -> Event: ...


def as_nonexpanding_float64(value: Any, name: str = "value") -> NDArray[np.float64]:
    """Return numbers as float64, so that rounding moves no two of them further apart.

    Integers beyond 2**53 are clipped: float64 would round two that differ by 1 to numbers that
    differ by 256 or more, which no sensitivity accounts for. ValueError is raised for masked
    arrays, and for types that float64 cannot hold without rounding.
    """
    check_unmasked(value, name)
    given = as_array(name, value)
    if given.dtype.kind == "u":
        given = np.minimum(given.astype(np.uint64), np.uint64(_WHOLE))
    elif given.dtype.kind in "ib":
        given = np.clip(given.astype(np.int64), np.int64(-_WHOLE), np.int64(_WHOLE))
    elif given.dtype.kind == "O" and all(isinstance(v, int) for v in given.flat):
        given = np.array([min(max(v, -_WHOLE), _WHOLE) for v in given.flat]).reshape(given.shape)
    elif given.dtype.kind != "f" or given.dtype.itemsize > 8:
        raise ValueError(
            f"{name} has dtype {given.dtype}; expected real numbers in double precision, or "
            "integers. Convert each record before summing them."
        )
    return given.astype(np.float64)
