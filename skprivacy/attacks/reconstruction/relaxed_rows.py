"""Gradient matching by descent on relaxed rows: softmax categories and pooled starts (TabLeak)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from ..torch_gradients import LossGradients
from .column_layout import ColumnLayout

__all__ = ["Descent", "Relaxation", "combine_starts"]

Float64Array = NDArray[np.float64]
_WIDEST = 12.0  # bound on the arguments of exponentials
_AS_GOOD = 1.5  # starts within this factor of the smallest distance are pooled
_ROUNDING = 1e-6  # smallest distance that counts as different from 0


class Relaxation:
    """Rows as smooth functions of free parameters: sigmoids for numbers, softmax for categories."""

    def __init__(self, layout: ColumnLayout, dtype: torch.dtype) -> None:
        d = len(layout.low)
        self.low = torch.as_tensor(layout.low, dtype=dtype)
        self.width = torch.as_tensor(layout.high - layout.low, dtype=dtype)
        self.together = torch.zeros((d, d), dtype=dtype)
        self.is_category = torch.zeros(d, dtype=torch.bool)
        for features in layout.one_hot:
            self.together[np.ix_(features, features)] = 1.0
            self.is_category[features] = True

    def rows(self, free: Tensor) -> Tensor:
        return self.low + self.width * self.shares(free)

    def shares(self, free: Tensor) -> Tensor:
        """Return each feature's position in its range, from 0 to 1."""
        bounded = _WIDEST * torch.tanh(free / _WIDEST)
        raised = bounded.exp()
        of_block = raised @ self.together
        # 1e-3 is the weight of "none": all features of a category may be off
        return torch.where(self.is_category, raised / (of_block + 1e-3), bounded.sigmoid())

    def free_parameters_near(self, rows: Tensor) -> Tensor:
        """Return free parameters near these rows, with categories far from certain."""
        share = ((rows - self.low) / self.width).clip(0.02, 0.98)
        logits = (share / (1 - share)).log()
        return torch.where(self.is_category, 0.3 * logits, logits)


@dataclass(frozen=True)
class Descent:
    """Adam on the free parameters, with a step that decreases to zero.

    The distance of gradients is "cosine" (Geiping et al.) or "squared" (Zhu et al.).
    """

    max_iter: int
    step: float
    distance: str

    def __call__(
        self,
        gradients: LossGradients,
        relaxation: Relaxation,
        observed: Tensor,
        labels: Tensor,
        start: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Solve independent problems together; return their free parameters and distances.

        ``observed`` has shape (problems, size), ``labels`` (problems, n_records) and ``start``
        (problems, n_records, n_features).
        """
        free = start.clone()
        first, second = torch.zeros_like(free), torch.zeros_like(free)
        scale = observed.square().sum(1).clamp(min=1e-30)
        # Zhu et al. 2019: minimise the distance of gradients over the records
        for t in range(self.max_iter):
            free.requires_grad_(True)
            away = self._distances(gradients.mean(relaxation.rows(free), labels), observed, scale)
            (slope,) = torch.autograd.grad(away.sum(), free)
            free = free.detach()
            first = 0.9 * first + 0.1 * slope
            second = 0.99 * second + 0.01 * slope.square()
            size = self.step * 0.5 * (1 + math.cos(math.pi * t / self.max_iter))  # cosine decay
            ahead = first / (1 - 0.9 ** (t + 1))
            free = free - size * ahead / ((second / (1 - 0.99 ** (t + 1))).sqrt() + 1e-12)
        with torch.no_grad():
            found = gradients.mean(relaxation.rows(free), labels)
            return free, self._distances(found, observed, scale)

    def _distances(self, found: Tensor, observed: Tensor, scale: Tensor) -> Tensor:
        if self.distance == "squared":  # Zhu et al. 2019
            return (found - observed).square().sum(1) / scale
        product = (found * observed).sum(1)
        # Geiping et al. 2020: 1 minus the cosine similarity
        return 1 - product / (found.square().sum(1).clamp(min=1e-30) * scale).sqrt()


def combine_starts(shares: Tensor, distances: Tensor, is_category: Tensor) -> tuple[Tensor, Tensor]:
    """Pool the rows of several starts for one batch, matched with the best start (TabLeak).

    ``shares`` has shape (starts, n_records, n_features). Returns the mean of categories and the
    median of numbers, (n_records, n_features), and the standard deviation between starts. Starts
    far worse than the best are left out.
    """
    order = distances.argsort()
    least = distances[order[0]].clamp(min=_ROUNDING)  # rounding may make it negative
    good = order[: max(1, int((distances <= _AS_GOOD * least).sum()))]
    best = shares[good[0]]
    aligned = [best]
    for k in good[1:]:
        apart = torch.cdist(best, shares[k], p=1).numpy()
        aligned.append(shares[k][linear_sum_assignment(apart)[1]])
    stacked = torch.stack(aligned)
    middle = torch.where(is_category, stacked.mean(0), stacked.median(0).values)
    return middle, stacked.std(0, unbiased=False)
