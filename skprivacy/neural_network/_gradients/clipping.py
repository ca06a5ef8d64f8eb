"""Clip factors of gradients: flat, per-layer, automatic and adaptive clipping.

Each function maps squared norms of shape (parts, batch), their sum over the parts, and the allowed
norm to factors of that shape, or of shape (batch,) if all parts share them. The scaled gradient of
an example never exceeds the allowed norm over all parts jointly. Arrays may be numpy's or torch's:
this file needs no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Clip = Callable[[Any, Any, float], Any]

_ACCUMULATOR = "clipped_sum"  # attribute of a parameter

# Clipping is this much below the declared norm, so that neighbouring sums stay within it.
#
# Single precision: norms are off by about 1e-5 relative. The sum over a batch, of which at most
# 2,048 rows are added up in single precision, is off by up to 5e-4 of one contribution. Both were
# measured on sums of one sign; rounding errors that all point one way would be more.
#
# Double precision: here it is a proof. A norm is off by at most 3e-4 if all errors point one way,
# because 4,096 squares are added up at a time (``contributions.py``), each sum rounded by a part in
# 2**24. A row's contribution is a factor times single-precision numbers, exact to a part in 2**53,
# and so is each addition. After t additions the sum is off by t 2**-53 of the added lengths; t
# counts additions within a part of at most 2,048 rows, and additions of parts. Over a million rows
# this is 3e-7 of one contribution, and twice that for two sums. Where a row's positions cancel,
# their lengths may add up to 1,000 times its norm: over 10,000 such rows in parts of 2**16
# positions the error is 7e-5.
_SAFETY = 1.0 - 1e-3

# Added to the norm by automatic clipping, so that gradients near zero stay small.
_STABILITY = 0.01

# Adaptive clipping.
_NORM_LEARNING_RATE = 0.2  # learning rate of the norm
_COUNT_STD = 0.05  # target standard deviation of the released share of short gradients
_MIN_COUNT_SHARE, _MAX_COUNT_SHARE = 1e-4, 0.1  # share of a step's privacy that the count may use
_MAX_NORM_FACTOR = 1e6  # the norm stays within this factor of its start


def _flat(squared: Any, total: Any, allowed: float) -> Any:
    """Shorten gradients longer than the allowed norm."""
    # Abadi et al. 2016, Algorithm 1, "Clip gradient": g / max(1, norm / C)
    return (allowed * _SAFETY / total**0.5).clip(max=1.0)


def _per_layer(squared: Any, total: Any, allowed: float) -> Any:
    """Clip each of k parts to ``allowed / sqrt(k)``."""
    return (allowed / len(squared) ** 0.5 * _SAFETY / squared**0.5).clip(max=1.0)


def _automatic(squared: Any, total: Any, allowed: float) -> Any:
    """Scale every gradient, long or short, to just below the allowed norm.

    Z. Bu, Y.-X. Wang, S. Zha and G. Karypis, "Automatic clipping: differentially private deep
    learning made easier and stronger", NeurIPS 2023.
    """
    # Bu et al. 2023, AUTO-S: 1 / (norm + gamma)
    return allowed * _SAFETY / (total**0.5 + _STABILITY)


CLIPPING: dict[str, Clip] = {
    "flat": _flat,
    "per-layer": _per_layer,
    "automatic": _automatic,
}


class AdaptiveClipping:
    """Clips to a norm that follows a ``quantile`` of the gradient norms (Andrew et al. 2021).

    ``start`` is the norm of the first step. ``allowed`` is the sensitivity a of the mechanism: the
    sum is divided by the current norm and multiplied by a, so that the size of an update does not
    depend on the norm. ``noise`` is the standard deviation of the noise in units of ``allowed``,
    and ``divisor`` the expected batch size.

    **Guarantees.** In units of ``allowed``, a record with gradient g contributes a g / max(abs(g),
    norm) to the sum, of norm at most a. It adds w (b - 1/2) to one more number, where b is 1 if g
    is within the norm and else 0: w / 2 at most, and nothing if it has no gradient. With a^2 + (w /
    2)^2 = 1, both together have norm at most 1, so the longer vector is one release of the same
    mechanism. In terms of Andrew et al., noise multipliers z / a for the sum and z / w for the
    count give the accounted z. The norm of the next step is computed from released numbers.

    **Edge cases.** An empty batch counts nothing, and noise alone moves the norm. With small
    batches the count stays noisy, because it may use a tenth of the privacy at most.

    G. Andrew, O. Thakkar, B. McMahan and S. Ramaswamy, "Differentially private learning with
    adaptive clipping", NeurIPS 2021.
    """

    def __init__(
        self, start: float, allowed: float, noise: float, quantile: float, divisor: float
    ) -> None:
        self.norm = start
        self.quantile = quantile
        self._start = start
        self._allowed = allowed
        self._divisor = divisor
        wanted = (noise / (2.0 * _COUNT_STD * divisor)) ** 2
        self.share = min(max(wanted, _MIN_COUNT_SHARE), _MAX_COUNT_SHARE)
        # Andrew et al. 2021, Theorem 1: the noise of one release, split between sum and count
        self._sum_weight = math.sqrt(1.0 - self.share)
        self._count_weight = 2.0 * math.sqrt(self.share)
        self._counted: Any = 0.0
        self.noise_on_sum = noise / self._sum_weight

    def __call__(self, squared: Any, total: Any, allowed: float) -> Any:
        """Return the clip factors, and count the gradients below the norm."""
        norms = total**0.5
        short = (norms <= self.norm)[total < math.inf]  # excludes NaN too
        # Andrew et al. 2021, Section 2: b - 1/2 halves the sensitivity of the count
        self._counted += float(short.sum()) - 0.5 * len(short)
        scale = allowed * _SAFETY * self._sum_weight
        return (scale / norms).clip(max=scale / self.norm)

    def append_count(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum with the count appended, and reset the count."""
        counted, self._counted = self._counted, 0.0
        return np.append(total, self._allowed * self._count_weight * counted)

    def remove_count(self, noisy: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the noisy sum, and update the norm by the noisy count."""
        counted = float(noisy[-1]) / (self._allowed * self._count_weight)
        share = 0.5 + counted / self._divisor
        # Andrew et al. 2021, geometric update: C exp(-eta (b - gamma))
        log = math.log(self.norm / self._start) - _NORM_LEARNING_RATE * (share - self.quantile)
        farthest = math.log(_MAX_NORM_FACTOR)
        self.norm = self._start * math.exp(min(max(log, -farthest), farthest))
        return noisy[:-1] / self._sum_weight


def set_accumulator(parameter: Any, total: Any) -> None:
    """Let clipped gradients of a parameter be summed in ``total``, a tensor of its shape.

    It is not ``grad``: exact noise sums in double precision, which torch before 2.9 refuses there.
    """
    setattr(parameter, _ACCUMULATOR, total)


def accumulator(parameter: Any) -> Any:
    """Return the sum that :func:`set_accumulator` has given a parameter."""
    return getattr(parameter, _ACCUMULATOR)
