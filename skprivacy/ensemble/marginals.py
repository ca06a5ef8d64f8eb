"""Records drawn from noisy counts of the private ones, for want of public records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..mechanisms import Gaussian, analytic_noise_multiplier
from ..preprocessing import Bounded, Categories, Schema
from ..preprocessing._values import category_codes, column_numbers, plain
from ..preprocessing.columns import Column
from ..preprocessing.transformer import described_columns

__all__ = ["Marginals"]

_BINS = 8  # of a numeric column, equally wide on its scale
_MISSING = -1


@dataclass(frozen=True)
class Marginals:
    """Counts of the records of each class with each value of a column, or in each bin of it.

    Columns that are drawn each by itself go together as no real ones do; drawn by class, they go
    together as far as the class explains it.

    **Guarantees.** A unit, which is a record or all records of a group, adds at most 1 to the
    counts of each column: to one of them, or shared out between some by its records. Without the
    unit the counts of a column have changed by at most 1 in L2, and with another in its place by at
    most sqrt(2).

    **Edge cases.** A value that is missing, no number or none of the categories is not counted; one
    beyond the range counts as the end of it.
    """

    schema: Schema
    n_classes: int
    epsilon: float
    delta: float
    relation: str

    @property
    def mechanism(self) -> Gaussian:
        """The mechanism that releases the counts."""
        changed = 2.0 if self.relation == "replace_one" else 1.0
        sensitivity = math.sqrt(changed * len(self.schema))
        if math.isinf(self.epsilon):
            return Gaussian(0.0, sensitivity)
        return Gaussian(analytic_noise_multiplier(self.epsilon, self.delta), sensitivity)

    def counts(
        self, X: Any, codes: NDArray[np.int64], shares: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the counts, which are private."""
        tables = []
        for column, fact in described_columns(self.schema, X):
            cells = _cell_indices(plain(column), fact)
            known = cells != _MISSING
            places = cells[known] * self.n_classes + codes[known]
            size = _n_cells(fact) * self.n_classes
            tables.append(np.bincount(places, shares[known], size).reshape(-1, self.n_classes))
        return np.concatenate(tables)

    def drawn(
        self, noisy: NDArray[np.float64], n: int, random: np.random.RandomState
    ) -> pd.DataFrame:
        """Return records drawn from noisy counts: as many of each class, column by column."""
        classes = np.arange(n) % self.n_classes
        columns: dict[str, NDArray[Any]] = {}
        start = 0
        for name, fact in self.schema.items():
            table = noisy[start : start + _n_cells(fact)]
            start += len(table)
            cells = np.empty(n, np.int64)
            for code in range(self.n_classes):
                own = np.flatnonzero(classes == code)
                cells[own] = random.choice(
                    len(table), len(own), p=_project_to_simplex(table[:, code])
                )
            if isinstance(fact, Bounded):
                columns[name] = fact.from_unit((cells + random.uniform(size=n)) / _BINS)
            elif isinstance(fact, Categories):
                columns[name] = np.array(fact.values, dtype=object)[cells]
        return pd.DataFrame(columns)


def _n_cells(fact: Column) -> int:
    return len(fact.values) if isinstance(fact, Categories) else _BINS


def _cell_indices(column: pd.Series, fact: Column) -> NDArray[np.int64]:
    """Return the bin or category of each value, by that value alone."""
    if isinstance(fact, Categories):
        return category_codes(column, fact.values).astype(np.int64)
    assert isinstance(fact, Bounded)
    values = column_numbers(column)
    bins = np.minimum(_BINS * fact.to_unit(values), _BINS - 1).astype(np.int64)
    return np.where(np.isnan(values), _MISSING, bins)


def _project_to_simplex(noisy: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the shares nearest to noisy counts: these less a constant, and none below 0.

    Clipping alone would give many empty cells a share that is nothing but noise.
    """
    total = noisy.sum()
    if not total > 0:
        return np.full(len(noisy), 1 / len(noisy))
    falling = np.sort(noisy)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(noisy) + 1)
    kept = np.maximum(noisy - excess[falling > excess][-1], 0.0)
    shares: NDArray[np.float64] = kept / kept.sum()
    return shares
