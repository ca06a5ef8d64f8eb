"""Counts of private records: all that is ever computed from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._groups import PARTS

__all__ = ["Records", "distance"]


@dataclass(frozen=True)
class Records:
    """The private records, as codes.

    Parameters
    ----------
    codes : ndarray of shape (n, n_columns)
    sizes : list of int
        Cells of each column.
    weights : ndarray of shape (n,) or None
        Shares of records in their unit, in whole ``PARTS``; ``None`` if each is a unit of its own.
    """

    codes: NDArray[np.integer]
    sizes: list[int]
    weights: NDArray[np.float64] | None

    def table(self, columns: Sequence[int]) -> NDArray[np.float64]:
        """Return the counts of a marginal, with an axis for each column."""
        shape = [self.sizes[c] for c in columns]
        cells = np.zeros(len(self.codes), np.int64)
        for c in columns:
            cells = cells * self.sizes[c] + self.codes[:, c]
        counts = np.bincount(cells, self.weights, math.prod(shape))
        return counts.reshape(shape).astype(np.float64)

    def binned(self, bins: list[NDArray[np.int64]]) -> Records:
        """Return the records with bins for cells, which take the cells' place in memory."""
        for j, own in enumerate(bins):
            self.codes[:, j] = own[self.codes[:, j]]
        sizes = [int(own.max()) + 1 for own in bins]
        return Records(self.codes, sizes, self.weights)


def distance(table: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """Return the L1 distance of counts from what is expected, exactly on a grid.

    Notes
    -----
    **Guarantees.** Counts and expectations are multiples of 1 / ``PARTS``, 2**-20, so that sums
    below 2**33 are exact: a unit changes the distance by no more than its weight, not even by
    rounding.
    """
    return float(np.abs(table - np.rint(expected * PARTS) / PARTS).sum())
