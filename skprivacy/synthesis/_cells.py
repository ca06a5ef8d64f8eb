"""Cells of a single column: which cell a value is in, and which value a cell may stand for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..preprocessing import Bounded, Categories
from ..preprocessing._values import category_codes, column_numbers, plain
from .grid import Grid

__all__ = ["Cells", "NumberCells", "ValueCells", "number_cells"]

_UNKNOWN = -1


@dataclass(frozen=True)
class ValueCells:
    """A cell for each category.

    Notes
    -----
    **Guarantees.** The cell of a value depends on that value alone.

    **Edge cases.** What is missing or no category has the code -1.
    """

    fact: Categories

    @property
    def size(self) -> int:
        return len(self.fact.values)

    def codes(self, column: pd.Series) -> NDArray[np.int64]:
        return category_codes(plain(column), self.fact.values).astype(np.int64)

    def values(self, codes: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[Any]:
        return np.array(self.fact.values, dtype=object)[codes]


@dataclass(frozen=True)
class NumberCells:
    """Cells between increasing left edges; an atom is a cell of one value.

    Notes
    -----
    **Guarantees.** The cell of a value depends on that value alone.

    **Edge cases.** Values beyond the range count as its ends, infinite ones too. What is missing or
    no number has the code -1.
    """

    left: NDArray[np.float64]
    right: NDArray[np.float64]  # of integers, one above the largest
    whole: bool

    @property
    def size(self) -> int:
        return len(self.left)

    def codes(self, column: pd.Series) -> NDArray[np.int64]:
        numbers = column_numbers(plain(column))
        codes = np.searchsorted(self.left, numbers, side="right") - 1
        return np.where(np.isnan(numbers), _UNKNOWN, np.clip(codes, 0, self.size - 1))

    def values(self, codes: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[Any]:
        left, right = self.left[codes], self.right[codes]
        numbers = left + shares * (right - left)
        if self.whole:
            return np.minimum(np.floor(numbers), right - 1)
        return np.minimum(numbers, np.nextafter(right, left))  # the right edge is the next cell's


Cells = NumberCells | ValueCells


def number_cells(fact: Bounded, grid: Grid, whole: bool) -> NumberCells:
    """Return the cells of a numeric column, by public facts alone.

    Parameters
    ----------
    fact : Bounded
    grid : Grid
    whole : bool
        Whether its values are integers.
    """
    atoms = np.array([a for a in grid.atoms if fact.lower <= a <= fact.upper])
    first, last = math.ceil(fact.lower), math.floor(fact.upper)
    if whole and first <= last:
        starts = np.ceil(grid.edges(fact)[:-1])
        if grid.step is None and last - first < grid.cells:
            starts = np.arange(first, last + 1, dtype=float)
        atoms = atoms[atoms == np.floor(atoms)]
        left = np.unique(np.concatenate([[first], starts, atoms, atoms + 1]))
        left = left[left <= last]
        return NumberCells(left, np.append(left[1:], last + 1.0), True)
    starts = grid.edges(fact)[:-1]
    left = np.unique(np.concatenate([[fact.lower], starts, atoms, np.nextafter(atoms, np.inf)]))
    left = left[left <= fact.upper]
    right = np.append(left[1:], fact.upper)
    return NumberCells(left, np.where(np.isin(left, atoms), left, right), False)
