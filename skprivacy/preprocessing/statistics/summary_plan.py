"""Exact sums of a private summary: totals of bounded columns, and counts of marginal cells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._groups import SHARE_GRID, SHARES_PER_GROUP, Groups
from ...mechanisms.base import GRID_BITS
from ...sums import SumTotal
from ...sums.batch_columns import count_rows, read_numbers, read_series
from ...sums.sum_plan import Integers, SumPlan
from ..cell_values import category_codes, mask_unreadable
from ..columns import BoundedColumn, CategoricalColumn

Fact = BoundedColumn | CategoricalColumn


@dataclass(frozen=True)
class SummaryPlan(SumPlan):
    """Sums of columns scaled to [-1, 1], and counts of records in the cells of each marginal.

    **Guarantees.** A record adds whole steps of 2**-16 to each sum, 2**16 at most, and 1 to at most
    one cell of each marginal. It depends on this record only. Each of the m records of a group adds
    1 / m of that, rounded towards 0, so a group adds no more than a record would.
    """

    _counts_cells = True

    described: tuple[tuple[str, Fact], ...]  # the columns that are used, with their public facts
    means: tuple[str, ...]  # bounded columns that are summed
    marginals: tuple[tuple[str, ...], ...]  # columns that are counted together

    @property
    def fact_of(self) -> dict[str, Fact]:
        return dict(self.described)

    @property
    def record_columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.described)

    def column_kinds(self) -> dict[str, str]:
        return {n: "number" for n, fact in self.described if isinstance(fact, BoundedColumn)}

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Number of cells of each marginal, by its columns."""
        known = self.fact_of
        return [tuple(_count_cells(known[name]) for name in names) for names in self.marginals]

    @property
    def n_sums(self) -> int:
        return len(self.means) + sum(math.prod(shape) for shape in self.shapes)

    def facts(self) -> dict[str, Any]:
        described = [[name, fact.to_dict()] for name, fact in self.described]
        return {"columns": described, "means": self.means, "marginals": self.marginals}

    def _read_batch(self, batch: Any) -> tuple[NDArray[Any], ...]:
        """Return the records' indices, and each column as numbers or codes of categories."""
        columns = (_read_column(batch, name, fact) for name, fact in self.described)
        return np.arange(count_rows(batch)), *columns

    def _sum_slice(self, sizes: Integers | None, *records: NDArray[Any]) -> Integers:
        places, *columns = records
        values = dict(zip(self.record_columns, columns, strict=True))
        known = self.fact_of
        shares = None if sizes is None else Groups.exact_shares_of(sizes)
        steps = [_steps(values[name], known[name], shares).sum() for name in self.means]
        sums = [np.array(steps, np.int64)]
        used = {name for names in self.marginals for name in names}
        codes = {name: _cell_codes(values[name], known[name]) for name in used}
        for names, shape in zip(self.marginals, self.shapes, strict=True):
            cells, kept = np.zeros_like(places), np.ones(len(places), bool)
            for name, size in zip(names, shape, strict=True):
                kept &= codes[name] >= 0
                cells = cells * size + codes[name]
            weights = None if shares is None else shares[kept] * SHARES_PER_GROUP
            sums.append(np.bincount(cells[kept], weights, math.prod(shape)).astype(np.int64))
        return np.concatenate(sums)

    def vector(self, total: SumTotal) -> NDArray[np.float64]:
        """Return the private count, sums and marginals."""
        sums, n_means = total._read_sums(), len(self.means)
        if self.unit == "record":
            sums[:n_means] *= 2.0**-GRID_BITS
        else:
            sums[:n_means] *= SHARE_GRID
            sums[n_means:] /= SHARES_PER_GROUP
        return np.concatenate([[float(total.n_units)], sums])


def _read_column(batch: Any, name: str, fact: Fact) -> NDArray[Any]:
    if isinstance(fact, BoundedColumn):
        return read_numbers(batch, (name,))[:, 0]
    return category_codes(mask_unreadable(read_series(batch, name)), fact.values)


def _count_cells(fact: Fact) -> int:
    return fact.bins if isinstance(fact, BoundedColumn) else len(fact.values)


def _cell_codes(values: NDArray[Any], fact: Fact) -> NDArray[np.int64]:
    """Return the index of each value's bin or category; -1 for a value in no cell."""
    if isinstance(fact, CategoricalColumn):
        return values.astype(np.int64)
    missing = np.isnan(values)
    unit = fact.to_unit(np.where(missing, fact.lower, values))
    bins = np.minimum(np.floor(unit * fact.bins), fact.bins - 1).astype(np.int64)
    return np.where(missing, -1, bins)


def _steps(
    values: NDArray[np.float64], fact: Fact, shares: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Return each number's distance from the middle of its bounds, in whole steps.

    A step is 2**-16 of half the width of the bounds; with shares, ``SHARE_GRID`` of it.
    """
    assert isinstance(fact, BoundedColumn)
    half, middle = (fact.upper - fact.lower) / 2, (fact.upper + fact.lower) / 2
    if half == 0:
        return np.zeros(len(values))
    distance = (np.clip(values, fact.lower, fact.upper) - middle) / half
    steps = np.trunc(np.clip(distance, -1.0, 1.0) * 2.0**GRID_BITS)
    steps = np.where(np.isnan(values), 0.0, steps)
    return steps if shares is None else np.trunc(steps * shares * (2.0**-GRID_BITS / SHARE_GRID))
