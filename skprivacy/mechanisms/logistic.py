"""FloatLogistic: logistic noise in ordinary floating point, for the long vectors of DP-SGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._validation import check_flat, is_tensor
from ..accounting import events
from .base import Mechanism
from .entropy import SecureRandom
from .floating import check_finite, check_noise

__all__ = ["FloatLogistic", "standard_logistic"]

_CHUNK = 1 << 14  # numbers at a time, so that the work arrays stay in the second-level cache
_SIGN = np.uint32(1 << 31)
_TAIL = np.uint32(1 << 11)  # words below are in the outermost 2**-20, and get 32 more bits
_MIDDLE = np.uint32((1 << 31) - (1 << 24))  # words above need the exact distance to 1


@dataclass(frozen=True)
class FloatLogistic(Mechanism):
    """Add floating-point logistic noise to a long vector, in place.

    Parameters
    ----------
    noise_multiplier : float
        Scale of the noise divided by ``sensitivity``; the standard deviation is
        pi / sqrt(3) = 1.81 times as large. 0 adds no noise, and the event is then ``NonPrivate``.
    sensitivity : float
        L2 sensitivity of the vector: the clipping norm, for a sum of clipped gradients.

    Notes
    -----
    **Guarantees.** One release of a vector whose neighbours lie within ``sensitivity`` in L2 is
    accounted as ``LogisticEvent(noise_multiplier, norm=2)``, for any length: it composes like
    Gaussian noise of sqrt(3) times the scale. That is the guarantee for real numbers. The noise is
    rounded to floating point and **not hardened**, as for :class:`FloatGaussian`. For a single
    release, use :class:`Logistic`, which is exact on a grid.

    **Edge cases.** As for :class:`FloatGaussian`.

    References
    ----------
    Y. Yang, P. Gohari and U. Topcu, "On the privacy risks of deploying recurrent neural networks
    in machine learning models", PoPETs 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.mechanisms import FloatLogistic, SecureRandom
    >>> gradient = np.zeros(4, np.float32)
    >>> mechanism = FloatLogistic(noise_multiplier=1.1, sensitivity=0.5)
    >>> mechanism.release(gradient, SecureRandom()) is gradient
    True
    """

    arithmetic = "floating_point"

    noise_multiplier: float
    sensitivity: float
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        check_noise(self.noise_multiplier, self.sensitivity)

    @property
    def event(self) -> events.Event:
        """``LogisticEvent(noise_multiplier, norm=2)``, or ``NonPrivate()`` without noise."""
        if self.noise_multiplier == 0:
            return events.NonPrivate()
        return events.LogisticEvent(self.noise_multiplier, norm=2)

    def _release(self, value: Any, random: SecureRandom) -> Any:
        check_flat(value)
        if self.noise_multiplier == 0:
            return value
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
