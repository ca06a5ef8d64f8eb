"""Adaptive clipping with its norm and count on the device of the gradients."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .clipping import _MAX_NORM_FACTOR, _NORM_LEARNING_RATE, _SAFETY, AdaptiveClipping


class AdaptiveClippingOnDevice(AdaptiveClipping):
    """AdaptiveClipping on a device; only reading :attr:`norm` synchronises with it.

    **Guarantees.** Those of :class:`AdaptiveClipping`: the same numbers up to rounding. Only
    :meth:`remove_count` changes the norm, in place, so captured operations read the new value.
    """

    def __init__(self, host: AdaptiveClipping, device: str) -> None:
        vars(self).update({k: v for k, v in vars(host).items() if k != "norm"})
        self._norm = torch.tensor(host.norm, dtype=torch.float64, device=device)

    @property
    def norm(self) -> float:  # type: ignore[override]  # read from the device on access
        """Norm of the next step."""
        return float(self._norm)

    @property
    def state(self) -> Tensor:
        """The tensor that :meth:`remove_count` changes."""
        return self._norm

    def __call__(self, squared: Tensor, total: Tensor, allowed: float) -> Tensor:
        """Return the clip factors, and count the gradients below the norm."""
        norms, there = total.sqrt(), total < math.inf  # excludes NaN too
        self._counted += (there & (norms <= self._norm)).sum() - 0.5 * there.sum()
        scale = allowed * _SAFETY * self._sum_weight
        return (scale / norms).clip(max=scale / self._norm)

    def append_count(self, total: Tensor) -> Tensor:  # type: ignore[override]  # a tensor for a tensor
        """Return the sum with the count appended, and reset the count."""
        counted, self._counted = self._counted, 0.0
        longer = total.new_empty(len(total) + 1)
        longer[:-1] = total
        longer[-1] = self._allowed * self._count_weight * counted
        return longer

    def remove_count(self, noisy: Tensor) -> Tensor:  # type: ignore[override]
        """Return the noisy sum, and update the norm by the noisy count."""
        counted = noisy[-1].double() / (self._allowed * self._count_weight)
        share = 0.5 + counted / self._divisor
        farthest = math.log(_MAX_NORM_FACTOR)
        log = (self._norm / self._start).log() - _NORM_LEARNING_RATE * (share - self.quantile)
        self._norm.copy_(self._start * log.clip(-farthest, farthest).exp())
        return noisy[:-1] / self._sum_weight
