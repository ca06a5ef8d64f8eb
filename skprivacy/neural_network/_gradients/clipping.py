"""By how much each example's gradient is scaled down, given the squared norms of its parts.

Each function maps the squared norms, shape (parts, batch), their sum over the parts, and the norm
that is allowed, to factors of that shape, or of shape (batch,) if all parts have the same. Whatever
the function, the scaled gradient of an example has at most that norm over all parts jointly. Arrays
may be torch's or numpy's: this file needs no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CLIPPING", "AdaptiveClipping", "Clip"]

Clip = Callable[[Any, Any, float], Any]

# Norms in single precision are off by about 1e-5 relative, and the sum over a batch, of which at
# most 2,048 rows are added up in single precision, by up to 5e-4 of one contribution (measured, on
# sums of one sign; rounding errors that all point one way would be more). Clipping this much below
# the declared norm keeps the distance between neighbouring sums within it.
#
# For sums in double precision it is a proof. The errors of a norm are at most 3e-4 if all point one
# way: 4,096 squares are added up at a time (``contributions.py``), each sum rounded by a part in
# 2**24. A row's contribution, a factor times numbers of single precision, is then exact to a part
# in 2**53, and so is each addition: t of them, one after another, are off by t 2**-53 of the
# lengths that are added up; t counts those within a part of at most 2,048 rows, and those of the
# parts. Over a million rows that is 3e-7 of one contribution, and twice that for two sums. Where a
# row's positions cancel out, their lengths may add up to 1,000 times its norm: over 10,000 such
# rows in parts of 2**16 positions it is 7e-5.
_SAFETY = 1.0 - 1e-3

# Added to the norm by automatic clipping: what is close to zero stays so.
_STABILITY = 0.01

# Of adaptive clipping.
_RATE = 0.2  # of the norm's change
_PRECISION = 0.05  # wanted standard deviation of the share of short gradients
_LEAST, _MOST = 1e-4, 0.1  # of a step's privacy, for the count
_FARTHEST = 1e6  # the norm stays within this factor of where it began


def _flat(squared: Any, total: Any, allowed: float) -> Any:
    """Scale the whole gradient to the allowed norm if it is longer."""
    # Algorithm 1 [Abadi et al. 2016]: clip by 1 / max(1, norm / C)
    return (allowed * _SAFETY / total**0.5).clip(max=1.0)


def _per_layer(squared: Any, total: Any, allowed: float) -> Any:
    """Clip each of k parts to ``allowed / sqrt(k)``."""
    return (allowed / len(squared) ** 0.5 * _SAFETY / squared**0.5).clip(max=1.0)


def _automatic(squared: Any, total: Any, allowed: float) -> Any:
    """Scale every gradient to about the allowed norm, long or short.

    Z. Bu, Y.-X. Wang, S. Zha and G. Karypis, "Automatic clipping: differentially private deep
    learning made easier and stronger", NeurIPS 2023.
    """
    return allowed * _SAFETY / (total**0.5 + _STABILITY)


CLIPPING: dict[str, Clip] = {
    "flat": _flat,
    "per-layer": _per_layer,
    "automatic": _automatic,
}


class AdaptiveClipping:
    """Clip to a norm that moves towards the ``quantile`` of the norms, and count who is below.

    Parameters
    ----------
    start : float
        The norm of the first step.
    allowed : float
        What the mechanism takes as one record's largest contribution. The clipped sum is divided
        by the norm of its step and multiplied by this, so that the size of an update does not
        depend on the norm.
    noise : float
        Standard deviation of the noise, in units of ``allowed``.
    quantile : float
        The share of gradients that should be below the norm.
    divisor : float
        Expected batch size.

    Notes
    -----
    **Guarantees.** A record contributes a (g / max(abs(g), norm)) to the sum, of norm at most a,
    and w (b - 1/2) to one number more, where b tells whether its gradient g is within the norm:
    w / 2 at most, and nothing if it has no gradient. With a^2 + (w / 2)^2 = 1 both together have
    norm at most 1, so the longer vector is one release of the same mechanism: in the words of
    Andrew et al., noise multipliers z / a for the sum and z / w for the count give the z that is
    accounted for. The norm of the next step is computed from what was released.

    **Edge cases.** An empty batch counts nobody on either side, and noise alone moves the norm.
    Where batches are small the count is left noisy rather than given more than a tenth of the
    privacy.

    References
    ----------
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
        wanted = (noise / (2.0 * _PRECISION * divisor)) ** 2
        self.share = min(max(wanted, _LEAST), _MOST)
        self._sum_weight = math.sqrt(1.0 - self.share)
        self._count_weight = 2.0 * math.sqrt(self.share)
        self._counted: Any = 0.0
        self.noise_on_sum = noise / self._sum_weight

    def __call__(self, squared: Any, total: Any, allowed: float) -> Any:
        """Return the factors of each gradient, as the functions above do; count."""
        norms = total**0.5
        short = (norms <= self.norm)[total < math.inf]  # nor NaN
        self._counted += float(short.sum()) - 0.5 * len(short)
        scale = allowed * _SAFETY * self._sum_weight
        return (scale / norms).clip(max=scale / self.norm)

    def joined(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum with the count after it, which begins anew."""
        counted, self._counted = self._counted, 0.0
        return np.append(total, self._allowed * self._count_weight * counted)

    def parted(self, noisy: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the noisy sum, and move the norm by the noisy count."""
        counted = float(noisy[-1]) / (self._allowed * self._count_weight)
        share = 0.5 + counted / self._divisor
        log = math.log(self.norm / self._start) - _RATE * (share - self.quantile)
        farthest = math.log(_FARTHEST)
        self.norm = self._start * math.exp(min(max(log, -farthest), farthest))
        return noisy[:-1] / self._sum_weight
