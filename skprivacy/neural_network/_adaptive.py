"""A clipping norm that follows a quantile of the gradients' norms, paid for within each step."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from . import _clipping

__all__ = ["AdaptiveClipping"]

_RATE = 0.2  # of the norm's change
_PRECISION = 0.05  # wanted standard deviation of the share of short gradients
_LEAST, _MOST = 1e-4, 0.1  # of a step's privacy, for the count
_FARTHEST = 1e6  # the norm stays within this factor of where it began


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
        self._counted = 0.0
        self.noise_on_sum = noise / self._sum_weight

    def __call__(self, squared: Tensor, total: Tensor, allowed: float) -> Tensor:
        """Return the factors of each gradient, as the functions of ``_clipping.py`` do; count."""
        norms = total.sqrt()
        short = (norms <= self.norm)[torch.isfinite(total)]
        self._counted += float(short.sum()) - 0.5 * len(short)
        scale = allowed * _clipping._SAFETY * self._sum_weight
        return (scale / norms).clamp_(max=scale / self.norm).expand_as(squared)

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
