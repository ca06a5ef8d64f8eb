"""Means and variances of records' log-odds over IN and OUT models, which a mask selects."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Moments", "column_means", "log_ratio", "standard_score"]

Float64Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Moments(NamedTuple):
    """Mean, sum of squared deviations and degrees of freedom of each column."""

    mean: Float64Array
    squares: Float64Array
    free: NDArray[np.intp]

    @classmethod
    def from_values(cls, values: Float64Array, used: Mask) -> Moments:
        """Return the moments of the columns of ``values`` over the rows where ``used``."""
        count = used.sum(axis=0)
        mean = _column_sums(values, used) / np.maximum(count, 1)
        squares = _column_sums(((row - mean) ** 2 for row in values), used)
        return cls(mean, squares, np.maximum(count - 1, 0))

    def pooled(self) -> float:
        """Return the variance within columns, pooled over columns; 0 if no column has two rows."""
        return float(self.squares.sum() / max(int(self.free.sum()), 1))

    def deviation(self, prior: float, pooled: float | None) -> Float64Array:
        """Return the standard deviation of each column, at least ``1e-6``.

        Its variance is averaged with ``combine_starts``, which has the weight of ``prior`` rows.
        None uses the pooled variance of these columns.
        """
        pooled = self.pooled() if pooled is None else pooled
        if math.isinf(prior):
            variance = np.full(len(self.mean), pooled)
        else:
            variance = (self.squares + prior * pooled) / np.maximum(self.free + prior, 1)
        # models that do not vary must not cause a division by zero
        return np.sqrt(np.maximum(variance, 1e-12))


def column_means(values: Float64Array, used: Mask) -> Float64Array:
    """Return the mean of each column over the rows where ``used``; NaN if there are none."""
    means: Float64Array = _column_sums(values, used) / used.sum(axis=0)
    return means


def _column_sums(rows: Iterable[Float64Array], used: Mask) -> Float64Array:
    """Return the sum of each column over the rows where ``used``.

    **Guarantees.** The sum of a column depends only on its values, to the last bit. Rows are added
    one by one, because numpy's rounding depends on the number of columns and the memory layout.
    """
    sums = np.zeros(used.shape[1])
    with np.errstate(invalid="ignore"):  # 0 times infinity
        for row, counts in zip(rows, used, strict=True):
            taken = row * counts  # several times faster than ``where``
            sums += taken if np.isfinite(taken.sum()) else np.where(counts, row, 0.0)
    return sums


def standard_score(
    target: Float64Array, out: Moments, prior: float, pooled: float | None = None
) -> Float64Array:
    """Return the standard score of the target's signal among OUT models."""
    return (target - out.mean) / out.deviation(prior, pooled)


def log_ratio(
    target: Float64Array,
    out: Moments,
    inside: Moments,
    prior: float,
    pooled: tuple[float, float] | None = None,
) -> Float64Array:
    """Return the log-likelihood ratio of the target's signal, IN against OUT models."""
    sd_out, sd_in = (
        moments.deviation(prior, given)
        for moments, given in zip((out, inside), pooled or (None, None), strict=True)
    )
    # the logarithm of Carlini et al. 2022, Algorithm 1, line 15
    z_out, z_in = (target - out.mean) / sd_out, (target - inside.mean) / sd_in
    return (z_out**2 - z_in**2) / 2 + np.log(sd_out) - np.log(sd_in)
