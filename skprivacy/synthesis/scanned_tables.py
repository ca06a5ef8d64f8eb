"""Marginal tables of a table that stays in its engine: a scan for cells, and one for bins."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._groups import SHARES_PER_GROUP, Groups
from ..sums import SumTotal
from ..sums.batch_columns import read_numbers, read_series
from ..sums.sum_plan import Integers, SumPlan
from .domain import ColumnCells, Domain, NumberCells

Clique = tuple[int, ...]


@dataclass(frozen=True)
class MarginalPlan(SumPlan):
    """Counts of records in the cells, or the bins, of several sets of columns.

    **Guarantees.** A record is in at most one cell of each set. A record of a group counts its
    share, a multiple of 2**-20.
    """

    _counts_cells = True

    domain: Domain
    cliques: tuple[Clique, ...]  # sorted indices of columns
    bins: tuple[tuple[int, ...], ...] | None = None  # of each cell of each column

    @property
    def record_columns(self) -> tuple[str, ...]:
        return tuple(self.domain.names)

    def column_kinds(self) -> dict[str, str]:
        return {c.name: "number" for c in self.domain.columns if isinstance(c.cells, NumberCells)}

    @property
    def sizes(self) -> list[int]:
        """Number of cells, or of bins, of each column."""
        return self.domain.sizes if self.bins is None else [max(own) + 1 for own in self.bins]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        sizes = self.sizes
        return [tuple(sizes[c] for c in clique) for clique in self.cliques]

    @property
    def n_sums(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes)

    def facts(self) -> dict[str, Any]:
        columns = [describe_cells(column) for column in self.domain.columns]
        return {"columns": columns, "cliques": self.cliques, "bins": self.bins}

    def _read_batch(self, batch: Any) -> tuple[NDArray[Any], ...]:
        """Return the cell codes of each record; -1 for a record that is left out."""
        return (encode_cells(self.domain, read_cells(batch, self.domain)),)

    def _sum_slice(self, sizes: Integers | None, *records: NDArray[Any]) -> Integers:
        kept = records[0][:, 0] >= 0
        codes = np.asfortranarray(records[0] if kept.all() else records[0][kept], np.int64)
        if self.bins is not None:  # columns stay contiguous, for many counts
            codes = np.array([np.asarray(b)[codes[:, j]] for j, b in enumerate(self.bins)]).T
        weights = None
        if sizes is not None:
            weights = Groups.exact_shares_of(sizes)[kept] * SHARES_PER_GROUP
        counts = [
            count_cells(codes, clique, shape, weights)
            for clique, shape in zip(self.cliques, self.shapes, strict=True)
        ]
        return np.concatenate(counts).astype(np.int64)

    def tables(self, total: SumTotal) -> list[NDArray[np.float64]]:
        """Return the private table of each set of columns."""
        sums = total._read_sums() / (1 if self.unit == "record" else SHARES_PER_GROUP)
        cuts = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        parts = np.split(sums, cuts)
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]


def count_cells(
    codes: NDArray[Any], columns: Sequence[int], shape: Sequence[int], weights: Any
) -> NDArray[Any]:
    """Return the number of records in each cell of some columns, or the sum of their weights."""
    return np.bincount(flatten_cells(codes, columns, shape), weights, math.prod(shape))


def flatten_cells(
    codes: NDArray[Any], columns: Sequence[int], shape: Sequence[int]
) -> NDArray[np.int64]:
    """Return the cell of each record in the flattened table of some columns."""
    cells = np.zeros(len(codes), np.int64)
    for column, size in zip(columns, shape, strict=True):
        cells = cells * size + codes[:, column]
    return cells


def read_cells(batch: Any, domain: Domain) -> list[pd.Series[Any]]:
    """Return the columns of a batch that have cells."""
    return [
        pd.Series(read_numbers(batch, (column.name,))[:, 0])
        if isinstance(column.cells, NumberCells)
        else read_series(batch, column.name)
        for column in domain.columns
    ]


def encode_cells(domain: Domain, series: list[pd.Series[Any]]) -> NDArray[np.int32]:
    """Return the cell codes of each record; -1 for a record that is left out."""
    kept_codes, kept = domain.encode(series)
    if kept.all():
        return kept_codes
    codes = np.full((len(kept), len(series)), -1, np.int32)
    codes[kept] = kept_codes
    return codes


def describe_cells(column: ColumnCells) -> list[Any]:
    """Return the public facts of a column's cells in types of JSON."""
    cells = column.cells
    if isinstance(cells, NumberCells):
        facts: list[Any] = [cells.left.tolist(), cells.right.tolist(), cells.whole]
    else:
        facts = [cells.fact.to_dict()]
    return [column.name, column.may_be_missing, *facts]


class ScannedTables:
    """Private tables of a scan: all that a synthesizer computes from private records."""

    def __init__(self, plan: MarginalPlan, total: SumTotal) -> None:
        self._plan, self.sizes = plan, plan.sizes
        self._tables = dict(zip(plan.cliques, plan.tables(total), strict=True))

    def table(self, columns: Iterable[int]) -> NDArray[np.float64]:
        """Return the counts of a marginal, with an axis for each column."""
        order = tuple(columns)
        known = tuple(sorted(order))
        return np.ascontiguousarray(
            np.transpose(self._tables[known], [known.index(column) for column in order])
        )

    def plan_bins(self, bins: list[NDArray[np.int64]], cliques: Iterable[Clique]) -> MarginalPlan:
        """Return the plan of another scan, of tables by bins."""
        mapped = tuple(tuple(own.tolist()) for own in bins)
        return replace(self._plan, cliques=tuple(cliques), bins=mapped)
