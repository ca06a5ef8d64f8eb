"""Gaussian and logistic noise in ordinary floating point, for the long vectors of DP-SGD."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._validation import check_flat, is_number, is_tensor
from ..accounting import Event, events
from .base import NoiseMechanism
from .secure_random import SecureRandom

# In these ranges, noise and vectors in single precision keep all their digits.
_LEAST_STD, _MOST_STD = 1e-30, 1e30
_LEAST_NORM, _MOST_NORM = 1e-20, 1e20
NOT_FINITE = (
    "value holds NaN or infinity, which no noise hides. Clip each record's contribution before "
    "summing."
)
# Devices that compute asynchronously: reading a value from them synchronises.
_ASYNCHRONOUS = {"cuda"}
_CHUNK = 1 << 14  # numbers at a time, so that the work arrays stay in the second-level cache
_SIGN = np.uint32(1 << 31)
_TAIL = np.uint32(1 << 11)  # words below are in the outermost 2**-20, and get 32 more bits
_MIDDLE = np.uint32((1 << 31) - (1 << 24))  # words above need the exact distance to 1


@dataclass(frozen=True)
class VectorNoise(NoiseMechanism):
    """Noise that is added to a long vector, in place."""

    noise_multiplier: float
    sensitivity: float

    def __post_init__(self) -> None:
        check_noise(self.noise_multiplier, self.sensitivity)

    def _release(self, value: Any, random: SecureRandom) -> Any:
        check_flat(value)
        return self._add_noise(value, random) if self.noise_multiplier else value

    @abstractmethod
    def _add_noise(self, value: Any, random: SecureRandom) -> Any: ...


@dataclass(frozen=True)
class FloatGaussian(VectorNoise):
    """Add floating-point Gaussian noise to a long vector, in place.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by ``sensitivity``. 0 adds no noise, and the event
        is then ``NonPrivateEvent``.
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
    to remove them. An empty vector is returned unchanged. A torch tensor gets its noise on its
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

    def _event(self) -> Event:
        return events.GaussianEvent(self.noise_multiplier)

    def _add_noise(self, value: Any, random: SecureRandom) -> Any:
        check_finite(value)
        std = self.noise_multiplier * self.sensitivity
        if is_tensor(value):
            from .chacha import DeviceRandom

            return DeviceRandom(random, value.device).add_normal(value, std)
        random.add_normal(value, std)
        return value


def check_finite(value: Any) -> None:
    """Refuse a vector with NaN or infinity, or make it all NaN on a GPU: noise hides neither."""
    if is_tensor(value) and value.device.type in _ASYNCHRONOUS:
        if len(value):
            value += 0.0 * value.norm(math.inf)
    elif not _all_finite(value):
        raise ValueError(NOT_FINITE)


def check_noise(noise_multiplier: float, sensitivity: float) -> None:
    """Refuse invalid noise multipliers and sensitivities, and noise outside single precision."""
    if not (is_number(noise_multiplier) and 0 <= noise_multiplier < math.inf):
        raise ValueError(
            f"noise_multiplier={noise_multiplier!r} must be a finite number >= 0. Use 0 for no "
            "noise."
        )
    if not (is_number(sensitivity) and _LEAST_NORM <= sensitivity <= _MOST_NORM):
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


@dataclass(frozen=True)
class FloatLogistic(VectorNoise):
    """Add floating-point logistic noise to a long vector, in place.

    Parameters
    ----------
    noise_multiplier : float
        Scale of the noise divided by ``sensitivity``; the standard deviation is
        pi / sqrt(3) = 1.81 times as large. 0 adds no noise, and the event is then
        ``NonPrivateEvent``.
    sensitivity : float
        L2 sensitivity of the vector: the clipping norm, for a sum of clipped gradients.

    Notes
    -----
    **Guarantees.** One release of a vector whose neighbours lie within ``sensitivity`` in L2 is
    accounted as ``LogisticEvent(noise_multiplier, norm=2)``, for any length: it composes like
    Gaussian noise of sqrt(3) times the scale. This guarantee is for real numbers. The noise is
    rounded to floating point and **not hardened**, as for :class:`FloatGaussian`. For a single
    release, use ``Logistic``, which is exact on a grid.

    **Edge cases.** As for :class:`FloatGaussian`.

    References
    ----------
    Y. Yang, P. Gohari and U. Topcu, "On the privacy risks of deploying recurrent neural networks
    in machine learning models", PoPETs 2023.
    """

    arithmetic = "floating_point"

    norm: ClassVar[str] = "l2"

    def _event(self) -> Event:
        return events.LogisticEvent(self.noise_multiplier, norm=2)

    def _add_noise(self, value: Any, random: SecureRandom) -> Any:
        check_finite(value)
        scale = np.float32(self.noise_multiplier * self.sensitivity)
        if is_tensor(value):
            from .chacha import DeviceRandom

            return DeviceRandom(random, value.device).add_logistic(value, float(scale))
        for start in range(0, value.size, _CHUNK):
            part = value[start : start + _CHUNK]
            noise = standard_logistic(part.size, random)
            noise *= scale
            part += noise
        return value


def standard_logistic(size: int, random: SecureRandom) -> NDArray[np.float32]:
    """Draw logistic numbers of scale 1 in single precision.

    A sign and a tail probability w in (0, 1), from 32 bits, give +-ln((2 - w) / w). If w is below
    2**-20, another 32 bits are drawn, so the tail reaches 44 scales instead of 22. If w is close to
    1, the ratio would round to 1, and the noise to 0. Its logarithm is then computed from its exact
    distance to 1.
    """
    bits = np.frombuffer(random.random_bytes(4 * size), np.uint32)
    steps = bits & ~_SIGN
    w = steps.astype(np.float32)
    w += np.float32(0.5)
    tail = np.flatnonzero(steps < _TAIL)
    if tail.size:
        fine = np.frombuffer(random.random_bytes(4 * tail.size), np.uint32)
        w[tail] = steps[tail] + (fine + 0.5) * 2.0**-32
    w *= np.float32(2.0**-31)
    noise = np.log((np.float32(2.0) - w) / w)
    middle = np.flatnonzero(steps > _MIDDLE)
    v = (~(bits[middle] | _SIGN) + 0.5) * 2.0**-31  # 1 - w
    noise[middle] = np.log1p(2.0 * v / (1.0 - v))
    noise.view(np.uint32)[:] |= bits & _SIGN
    return noise


def _all_finite(value: Any) -> bool:
    """Return True if a vector has neither NaN nor infinity, usually in one pass over memory."""
    if is_tensor(value):
        return bool(value.isfinite().all())
    with np.errstate(all="ignore"):
        squared = np.dot(value, value)
    return bool(np.isfinite(squared)) or bool(np.isfinite(value).all())
