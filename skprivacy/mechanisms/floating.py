"""FloatGaussian: Gaussian noise in ordinary floating point, for the long vectors of DP-SGD."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._validation import check_flat, is_tensor
from ..accounting import events
from ..accounting._checks import number
from .base import Mechanism
from .entropy import SecureRandom

__all__ = ["FloatGaussian"]

# In these ranges, noise and vectors in single precision keep all their digits.
_LEAST_STD, _MOST_STD = 1e-30, 1e30
_LEAST_NORM, _MOST_NORM = 1e-20, 1e20


@dataclass(frozen=True)
class FloatGaussian(Mechanism):
    """Add floating-point Gaussian noise to a long vector, in place.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by ``sensitivity``. 0 adds no noise, and the event
        is then ``NonPrivate``.
    sensitivity : float
        L2 sensitivity of the vector: the clipping norm, for a sum of clipped gradients.

    Notes
    -----
    **Guarantees.** One release of a vector whose neighbours lie within ``sensitivity`` in L2 is
    accounted as ``GaussianEvent(noise_multiplier)``, for any length. This is the guarantee for real
    numbers. The noise is rounded to floating point and **not hardened**: the lowest bits of a
    result can reveal more than the real-number guarantee allows (Mironov 2012). For a single
    release, use :class:`Gaussian`, which is exact on a grid.

    **Edge cases.** NaN and infinity, which no noise hides, are refused: the caller's clipping has
    to remove them. An empty vector is returned unchanged. A torch tensor gets its noise on its own
    device, by ChaCha20 with a key from ``random``. On a GPU, a tensor with NaN or infinity becomes
    NaN everywhere, because checking it there would synchronise.

    References
    ----------
    I. Mironov, "On significance of the least significant bits for differential privacy",
    CCS 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.mechanisms import FloatGaussian, SecureRandom
    >>> gradient = np.zeros(4, np.float32)
    >>> noisy = FloatGaussian(noise_multiplier=1.1, sensitivity=0.5).release(
    ...     gradient, SecureRandom()
    ... )
    >>> noisy is gradient
    True
    """

    arithmetic = "floating_point"

    noise_multiplier: float
    sensitivity: float

    def __post_init__(self) -> None:
        check_noise(self.noise_multiplier, self.sensitivity)

    @property
    def event(self) -> events.Event:
        """``GaussianEvent(noise_multiplier)``, or ``NonPrivate()`` without noise."""
        if self.noise_multiplier == 0:
            return events.NonPrivate()
        return events.GaussianEvent(self.noise_multiplier)

    def _release(self, value: Any, random: SecureRandom) -> Any:
        check_flat(value)
        if self.noise_multiplier == 0:
            return value
        check_finite(value)
        std = self.noise_multiplier * self.sensitivity
        if is_tensor(value):
            from .chacha import DeviceRandom

            return DeviceRandom(random, value.device).add_normal(value, std)
        random.add_normal(value, std)
        return value


NOT_FINITE = (
    "value holds NaN or infinity, which no noise hides. Clip each record's contribution before "
    "summing."
)
# Devices that compute asynchronously: reading a value from them synchronises.
_ASYNCHRONOUS = {"cuda"}


def check_finite(value: Any) -> None:
    """Refuse a vector with NaN or infinity, whose noisy version would reveal them.

    **Guarantees.** An error is raised, and nothing is released. A vector on a GPU becomes NaN
    everywhere instead, which reveals no more than the error does.
    """
    if is_tensor(value) and value.device.type in _ASYNCHRONOUS:
        if len(value):
            value += 0.0 * value.norm(math.inf)
    elif not _all_finite(value):
        raise ValueError(NOT_FINITE)


def _all_finite(value: Any) -> bool:
    """Return True if a vector has neither NaN nor infinity.

    Its squared length, one pass over memory, is finite only then. A vector with numbers of 1e19 or
    more may be too long to square, and is checked number by number.
    """
    if is_tensor(value):
        return bool(value.isfinite().all())
    with np.errstate(all="ignore"):
        squared = np.dot(value, value)
    return bool(np.isfinite(squared)) or bool(np.isfinite(value).all())


def check_noise(noise_multiplier: float, sensitivity: float) -> None:
    """Refuse invalid noise multipliers and sensitivities, and noise outside single precision."""
    number("noise_multiplier", noise_multiplier, "a finite number >= 0")
    number("sensitivity", sensitivity, f"a number from {_LEAST_NORM:g} to {_MOST_NORM:g}")
    if not 0 <= noise_multiplier < math.inf:
        raise ValueError(
            f"noise_multiplier={noise_multiplier!r} must be a finite number >= 0. Use 0 for no "
            "noise."
        )
    if not _LEAST_NORM <= sensitivity <= _MOST_NORM:
        raise ValueError(
            f"sensitivity={sensitivity!r} must be a number from {_LEAST_NORM:g} to "
            f"{_MOST_NORM:g}, the range of single precision. Scale the vector."
        )
    if noise_multiplier and not _LEAST_STD <= noise_multiplier * sensitivity <= _MOST_STD:
        raise ValueError(
            f"noise_multiplier={noise_multiplier!r} times sensitivity={sensitivity!r} must be "
            f"between {_LEAST_STD:g} and {_MOST_STD:g}, the range of noise in single precision. "
            "Scale the vector."
        )
