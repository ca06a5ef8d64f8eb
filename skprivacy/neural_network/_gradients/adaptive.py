"""Adaptive clipping where the gradients are: neither the count nor the norm is waited for."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .clipping import _FARTHEST, _RATE, _SAFETY, AdaptiveClipping

__all__ = ["AdaptiveClippingOnDevice"]


class AdaptiveClippingOnDevice(AdaptiveClipping):
    """The same with the norm and the count on the device of the gradients.

    Parameters
    ----------
    host : AdaptiveClipping
        One that has not begun.
    device : str

    Notes
    -----
    **Guarantees.** Those of :class:`AdaptiveClipping`: the same numbers to rounding. The norm is
    changed in place and by :meth:`parted` alone, from what was released; operations that were
    recorded once and are repeated read it anew.

    **Edge cases.** To read :attr:`norm` is to wait for the device.
    """

    def __init__(self, host: AdaptiveClipping, device: str) -> None:
        vars(self).update({k: v for k, v in vars(host).items() if k != "norm"})
        self._norm = torch.tensor(host.norm, dtype=torch.float64, device=device)

    @property
    def norm(self) -> float:  # type: ignore[override]  # torch's number is read when it is asked for
        """The norm of the next step."""
        return float(self._norm)

    @property
    def state(self) -> Tensor:
        """What :meth:`parted` changes."""
        return self._norm

    def __call__(self, squared: Tensor, total: Tensor, allowed: float) -> Tensor:
        """Return the factors of each gradient; count."""
        norms, there = total.sqrt(), total < math.inf  # nor NaN
        self._counted += (there & (norms <= self._norm)).sum() - 0.5 * there.sum()
        scale = allowed * _SAFETY * self._sum_weight
        return (scale / norms).clip(max=scale / self._norm)

    def joined(self, total: Tensor) -> Tensor:  # type: ignore[override]  # a tensor for a tensor
        """Return the sum with the count after it, which begins anew."""
        counted, self._counted = self._counted, 0.0
        longer = total.new_empty(len(total) + 1)
        longer[:-1] = total
        longer[-1] = self._allowed * self._count_weight * counted
        return longer

    def parted(self, noisy: Tensor) -> Tensor:  # type: ignore[override]
        """Return the noisy sum, and move the norm by the noisy count."""
        counted = noisy[-1].double() / (self._allowed * self._count_weight)
        share = 0.5 + counted / self._divisor
        farthest = math.log(_FARTHEST)
        log = (self._norm / self._start).log() - _RATE * (share - self.quantile)
        self._norm.copy_(self._start * log.clip(-farthest, farthest).exp())
        return noisy[:-1] / self._sum_weight
