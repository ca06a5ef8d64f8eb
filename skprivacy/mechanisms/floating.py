"""Gaussian noise in ordinary floating point, for the long vectors of DP-SGD."""

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

# Between these, noise in single precision keeps all its digits, and so does a vector of this norm.
_LEAST_STD, _MOST_STD = 1e-30, 1e30
_LEAST_NORM, _MOST_NORM = 1e-20, 1e20


@dataclass(frozen=True)
class FloatGaussian(Mechanism):
    """Add floating-point Gaussian noise to a long vector, in place.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by ``sensitivity``. 0 adds no noise, and the
        event is then ``NonPrivate``.
    sensitivity : float
        L2 sensitivity of the vector: the clipping norm, for a sum of clipped gradients.

    Notes
    -----
    **Guarantees.** One release of a vector whose neighbours lie within ``sensitivity`` in L2 is
    accounted as ``Gaussian(noise_multiplier)``, whatever the length. That is the guarantee for
    real numbers. The noise is rounded to floating point and **not hardened**: the lowest bits of
    a result can reveal more than the real-number guarantee allows (Mironov 2012). For a single
    release, use :class:`Gaussian`, which is exact on a grid.

    **Edge cases.** NaN and infinity, which no noise hides, are refused: the caller's clipping has
    to remove them. An empty vector is returned unchanged. A tensor of torch's gets its noise on its
    own device, by ChaCha20 with a key of ``random``'s; one on a GPU that holds NaN or infinity
    comes back as NaN in every place, since to look at it there would be to wait.

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
        """``Gaussian(noise_multiplier)``, or ``NonPrivate()`` without noise."""
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
    "value holds NaN or infinity, which no noise hides. Clip each record's part of it before they "
    "are summed."
)
# Kinds of devices that compute on while the processor goes ahead: to look there is to wait.
_AHEAD = {"cuda"}


def check_finite(value: Any) -> None:
    """Refuse a vector with a number whose noisy version tells it for certain.

    **Guarantees.** Nothing of a vector with such a number is released: an error is raised. A vector
    on a GPU becomes NaN in every place instead, which tells no more than the error.
    """
    if is_tensor(value) and value.device.type in _AHEAD:
        if len(value):
            value += 0.0 * value.norm(math.inf)
    elif not _all_finite(value):
        raise ValueError(NOT_FINITE)


def _all_finite(value: Any) -> bool:
    """Whether a vector has neither NaN nor infinity.

    Its squared length, one pass over memory, is finite only if it has none. One of 1e19 and more
    may be too long to square: such a vector is looked at number by number.
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
            f"{_MOST_NORM:g}: the noise is in single precision. Scale the vector."
        )
    if noise_multiplier and not _LEAST_STD <= noise_multiplier * sensitivity <= _MOST_STD:
        raise ValueError(
            f"noise_multiplier={noise_multiplier!r} times sensitivity={sensitivity!r} must lie "
            f"between {_LEAST_STD:g} and {_MOST_STD:g}: the noise is in single precision, where "
            "less would be rounded to zero. Scale the vector."
        )
