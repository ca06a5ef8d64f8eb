"""Sums of the rows by which records enter the releases of an additive model, over public cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._groups import Groups
from ..mechanisms.base import quantize
from ..sums import SumTotal
from ..sums.sum_plan import Integers, Labels, SumPlan, TargetRange
from ..synthesis.domain import Domain, NumberCells
from ..synthesis.scanned_tables import describe_cells, encode_cells, flatten_cells, read_cells
from .losses import Loss

Floats = NDArray[np.float64]
Clique = tuple[int, ...]

_ROW_STEPS = 2.0**16  # rows are multiples of 2**-16


@dataclass(frozen=True)
class ReleasedScores:
    """The scores of records by all releases so far, over the finest bins of each column."""

    bins: tuple[NDArray[np.int64], ...]  # of each cell, by column
    constant: Floats  # (n_outputs,)
    start: tuple[Floats, ...]  # first effect of each column, (n_bins, n_outputs)
    steps: tuple[tuple[Clique, Floats], ...] = ()  # later ones, in order

    @property
    def sizes(self) -> list[int]:
        """Number of bins of each column."""
        return [len(effect) for effect in self.start]

    def after(self, columns: Clique, step: Floats) -> ReleasedScores:
        """Return the scores after a step over the bins of some columns."""
        return replace(self, steps=(*self.steps, (columns, step)))

    def scores_of(self, codes: NDArray[Any]) -> Floats:
        """Return scores (n, n_outputs) from bins, each rounded independently of other records."""
        scores = np.zeros((len(codes), len(self.constant)))
        for c, effect in enumerate(self.start):
            scores += effect[codes[:, c]]
        scores += self.constant
        for columns, step in self.steps:
            cells = flatten_cells(codes, columns, step.shape[:-1])
            scores += step.reshape(-1, len(self.constant))[cells]
        return scores

    def facts(self) -> list[Any]:
        steps = [[columns, step.tolist()] for columns, step in self.steps]
        start = [effect.tolist() for effect in self.start]
        return [[own.tolist() for own in self.bins], self.constant.tolist(), start, steps]


@dataclass(frozen=True)
class RowPlan(SumPlan):
    """Sums of the rows of ``loss`` over the cells, or the bins, of several sets of columns.

    **Guarantees.** A record adds one row of norm at most 1 (``losses``) to one cell of each set. A
    record of a group adds its row times its share. A record with a value that has no cell, with a
    missing target or with an unknown label adds nothing.
    """

    _counts_cells = True

    domain: Domain
    target: str
    encoding: TargetRange | Labels
    loss: Loss
    cliques: tuple[Clique, ...]
    released: ReleasedScores | None = None  # None: start rows, over cells

    @property
    def record_columns(self) -> tuple[str, ...]:
        return (*self.domain.names, self.target)

    @property
    def target_column(self) -> str:
        return self.target

    def column_kinds(self) -> dict[str, str]:
        kinds = {c.name: "number" for c in self.domain.columns if isinstance(c.cells, NumberCells)}
        return {**kinds, self.target: self.encoding.kind}

    @property
    def row_length(self) -> int:
        if self.released is None:
            return self.loss.start_row(np.zeros(1, np.int64)).shape[1]
        scores = np.zeros((1, self.loss.n_outputs))
        return self.loss.derivative_row(scores, np.zeros(1, np.int64)).shape[1]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        sizes = self.domain.sizes if self.released is None else self.released.sizes
        return [tuple(sizes[c] for c in clique) for clique in self.cliques]

    @property
    def n_sums(self) -> int:
        return self.row_length * sum(map(math.prod, self.shapes))

    def facts(self) -> dict[str, Any]:
        return {
            "columns": [describe_cells(column) for column in self.domain.columns],
            "target": [self.target, *self.encoding.facts()],
            "loss": [type(self.loss).__name__, dict(vars(self.loss))],
            "cliques": self.cliques,
            "released": None if self.released is None else self.released.facts(),
        }

    def _read_batch(self, batch: Any) -> tuple[NDArray[Any], ...]:
        codes = encode_cells(self.domain, read_cells(batch, self.domain))
        return codes, self.encoding.encode(self.encoding.read_target(batch, self.target))

    def _sum_slice(self, sizes: Integers | None, *records: NDArray[Any]) -> Integers:
        kept = (records[0][:, 0] >= 0) & ~np.isnan(records[1])
        codes = np.asfortranarray(records[0][kept], np.int64)
        if self.released is not None:  # columns stay contiguous, for many sums
            codes = np.array([own[codes[:, j]] for j, own in enumerate(self.released.bins)]).T
        shares = None if sizes is None else Groups.exact_shares_of(sizes)[kept]
        rows = weighted_rows(self._rows(codes, records[1][kept]), shares) * _ROW_STEPS
        return sum_rows(rows, codes, self.cliques, self.shapes).astype(np.int64)

    def _rows(self, codes: NDArray[Any], target: Floats) -> Floats:
        """Return the row of each record, before its share."""
        targets = target.astype(np.int64) if isinstance(self.encoding, Labels) else target
        if self.released is None:
            return self.loss.start_row(targets)
        return self.loss.derivative_row(self.released.scores_of(codes), targets)

    def tables(self, total: SumTotal) -> dict[Clique, Floats]:
        """Return the private sums over each set of columns, (n_cells, ..., row length)."""
        sums, end, tables = total._read_sums() / _ROW_STEPS, 0, {}
        for clique, shape in zip(self.cliques, self.shapes, strict=True):
            start, end = end, end + self.row_length * math.prod(shape)
            table = sums[start:end].reshape(self.row_length, *shape)
            tables[clique] = np.ascontiguousarray(np.moveaxis(table, 0, -1))
        return tables


def sum_rows(
    rows: Floats, codes: NDArray[Any], cliques: Sequence[Clique], shapes: Sequence[Clique]
) -> Floats:
    """Return the sums of rows over each set of columns: for each number of a row, its cells."""
    numbers = np.ascontiguousarray(rows.T)
    sums = []
    for clique, shape in zip(cliques, shapes, strict=True):
        cells, size = flatten_cells(codes, clique, shape), math.prod(shape)
        sums += [np.bincount(cells, own, size) for own in numbers]
    return np.concatenate(sums)


def weighted_rows(rows: Floats, shares: Floats | None) -> Floats:
    """Return rows times the records' shares, on a grid on which sums are exact."""
    if shares is not None:
        rows = rows * shares[:, None]
    return quantize(rows, out=rows)
