"""Exact counts of the records in public cells: conditions, bins, categories and candidates."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..._groups import SHARES_PER_GROUP, Groups
from ...sums import SumTotal
from ...sums.batch_columns import read_group_sizes, read_numbers, read_text
from ...sums.sum_plan import GROUP_SIZE, Integers, SumPlan


@dataclass(frozen=True)
class Condition:
    """One cell, of the records for which a condition holds."""

    kind = "number"
    size = 1

    def cell_codes(self, values: NDArray[Any]) -> NDArray[np.int64]:
        holds: Any = values == 1
        return np.where(np.asarray(holds, bool) & ~pd.isna(values), 0, -1)


@dataclass(frozen=True)
class Bins:
    """Cells between increasing edges; the last one includes its right edge."""

    edges: tuple[float, ...]

    kind = "number"

    @property
    def size(self) -> int:
        return len(self.edges) - 1

    def cell_codes(self, values: NDArray[Any]) -> NDArray[np.int64]:
        numbers = np.where(pd.isna(values), np.nan, values).astype(np.float64)
        codes = np.searchsorted(self.edges, numbers, side="right") - 1
        codes[numbers == self.edges[-1]] = self.size - 1
        return np.where(np.isnan(numbers) | (codes >= self.size), -1, codes)


@dataclass(frozen=True)
class Categories:
    """One cell for each category.

    Two categories may equal one value of another type: two integers beyond 2**53 may equal a float.
    Such a value counts for the first one.
    """

    values: tuple[Any, ...]

    @property
    def kind(self) -> str:
        return "text" if np.asarray(self.values).dtype.kind == "U" else "number"

    @property
    def size(self) -> int:
        return len(self.values)

    def cell_codes(self, values: NDArray[Any]) -> NDArray[np.int64]:
        codes = np.full(len(values), -1)
        places = np.flatnonzero(~pd.isna(values))
        for i, category in enumerate(np.asarray(self.values)):
            found = values[places] == category
            codes[places[found]] = i
            places = places[~found]
        return codes


@dataclass(frozen=True)
class Candidates:
    """Cells between equally spaced candidates: values in cell i reach exactly i of them."""

    lower: float
    upper: float
    count: int

    kind = "number"

    @property
    def size(self) -> int:
        return self.count + 1

    def cell_codes(self, values: NDArray[Any]) -> NDArray[np.int64]:
        candidates = np.linspace(self.lower, self.upper, self.count)
        clipped = np.clip(values, self.lower, self.upper)
        codes = np.searchsorted(candidates, clipped, side="right")
        return np.where(np.isnan(values), -1, codes)


@dataclass(frozen=True)
class CellPlan(SumPlan):
    """Number of records in each cell; a record of a group counts its share.

    **Guarantees.** A record is in at most one cell. Shares are multiples of 2**-20.
    """

    _counts_cells = True

    column: str
    cells: Condition | Bins | Categories | Candidates

    @property
    def record_columns(self) -> tuple[str, ...]:
        return (self.column,)

    def column_kinds(self) -> dict[str, str]:
        return {self.column: self.cells.kind}

    @property
    def n_sums(self) -> int:
        return self.cells.size

    def facts(self) -> dict[str, Any]:
        return {"column": self.column, "cells": [type(self.cells).__name__, asdict(self.cells)]}

    def _read_batch(self, batch: Any) -> tuple[NDArray[Any], ...]:
        if self.cells.kind == "text":
            return (read_text(batch, self.column),)
        return (read_numbers(batch, (self.column,))[:, 0],)

    def _sum_slice(self, sizes: Integers | None, *records: NDArray[Any]) -> Integers:
        codes = self.cells.cell_codes(records[0])
        known = codes >= 0
        shares = None if sizes is None else Groups.exact_shares_of(sizes)[known] * SHARES_PER_GROUP
        return np.bincount(codes[known], shares, self.cells.size).astype(np.int64)

    def counts(self, total: SumTotal) -> NDArray[np.float64]:
        """Return the private counts; with groups, sums of shares."""
        return total._read_sums() / (1 if self.unit == "record" else SHARES_PER_GROUP)


@dataclass(frozen=True)
class GroupSizePlan(SumPlan):
    """Number of rows in groups of 1, 2 ... ``max_size - 1`` rows.

    **Guarantees.** A group of m rows adds m to one of the sums at most, hence 1 to ``counts``.
    """

    _counts_cells = True

    max_size: int

    @property
    def record_columns(self) -> tuple[str, ...]:
        return ()

    def column_kinds(self) -> dict[str, str]:
        return {}

    @property
    def n_sums(self) -> int:
        return self.max_size - 1

    def facts(self) -> dict[str, Any]:
        return {"max_size": self.max_size}

    def _read_batch(self, batch: Any) -> tuple[NDArray[Any], ...]:
        return (read_group_sizes(batch, GROUP_SIZE),)

    def _sum_slice(self, sizes: Integers | None, *records: NDArray[Any]) -> Integers:
        rows = np.minimum(records[0], self.max_size)
        return np.bincount(rows, minlength=self.max_size + 1)[1 : self.max_size]

    def counts(self, total: SumTotal) -> NDArray[np.float64]:
        """Return the private number of groups of 0, 1 ... ``max_size`` rows or more, and a 0.

        Cell i is at or above i of the candidates 0.5, 1.5 ... ``max_size`` + 0.5.
        """
        exact = total._read_sums() / np.arange(1, self.max_size)
        return np.array([0.0, *exact, total.n_units - exact.sum(), 0.0])
