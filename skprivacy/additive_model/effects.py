"""Shrunken Newton steps of noisy tables, and the effects of columns that they add up to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..synthesis.marginal_tables import project_to_counts
from .losses import NewtonSums

__all__ = ["AdditiveEffect", "EffectSum", "bin_codes", "shrink_step"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def shrink_step(sums: NewtonSums, dispersion: float) -> tuple[Floats, Floats]:
    """Return a Newton step for each cell, shrunk by empirical Bayes, and the noise in it.

    A cell's gradient is its hessian H times an effect of variance v, plus sampling noise of
    variance ``dispersion`` * H, plus the mechanism's. v is estimated by moments over the cells of
    the table, and the step is the posterior mean of the effect.
    """
    step, noise = np.zeros_like(sums.gradient), np.zeros_like(sums.gradient)
    stds = np.broadcast_to(sums.std, step.shape)
    for k in range(step.shape[-1]):
        gradient, raw, std = sums.gradient[..., k], sums.hessian[..., k], stds[..., k]
        hessian = project_to_counts(raw, max(float(raw.sum()), 1.0))
        other = dispersion * hessian + std**2
        excess = float((gradient**2 - other).sum())
        variance = max(excess, 0.0) / float((hessian**2).sum())
        total = variance * hessian**2 + other
        shrunk = np.divide(variance * hessian, total, out=np.zeros_like(total), where=total > 0)
        step[..., k], noise[..., k] = -shrunk * gradient, shrunk * std
    return step, noise


@dataclass
class EffectSum:
    """Sum of the steps for some columns, over their finest bins, and the variance of its noise."""

    scores: Floats  # (n_bins, ..., n_outputs)
    variance: Floats

    def add(self, step: Floats, noise: Floats, axes: list[Integers]) -> Floats:
        """Add a step over bins of coarser levels, and return it over the finest bins."""
        fine = np.ix_(*axes)
        self.scores += step[fine]
        self.variance += noise[fine] ** 2
        added: Floats = step[fine]
        return added


@dataclass(frozen=True)
class AdditiveEffect:
    """The effect of one or two columns on the score, in bins, with the noise in it.

    Parameters
    ----------
    columns : tuple of str
        The columns.
    scores : ndarray of shape (n_bins, n_outputs) or (n_bins_1, n_bins_2, n_outputs)
        Change of the score: log-odds, or units of the target of a regressor. The average over
        records is about 0.
    noise_std : ndarray of the same shape
        Standard deviation of the noise in ``scores`` that protects the records. Sampling error of
        the records is not included.
    """

    columns: tuple[str, ...]
    scores: Floats = field(repr=False)
    noise_std: Floats = field(repr=False)

    @property
    def size(self) -> float:
        """Root mean square of the scores over bins."""
        return math.sqrt(float(np.mean(self.scores**2)))

    def lookup(self, codes: tuple[Integers, ...]) -> Floats:
        """Return the scores of records, (n, n_outputs), from their bins; 0 for a bin of -1."""
        padded = np.pad(self.scores, [(0, 1)] * len(codes) + [(0, 0)])
        found: Floats = padded[codes]
        return found


def bin_codes(cells: NDArray[np.integer], bins: Integers) -> Integers:
    """Return the bin of each cell code, or -1 for a value without a cell."""
    found: Integers = np.append(bins, -1)[cells]
    return found
