"""Queries drawn from noisy class-conditional marginals, for want of public records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..accounting.calibration import analytic_noise_multiplier
from ..mechanisms import Gaussian
from ..preprocessing import BoundedColumn, CategoricalColumn, Schema
from ..preprocessing.cell_values import category_codes, column_numbers, mask_unreadable
from ..preprocessing.columns import Column
from ..preprocessing.transformer import described_columns

_BINS = 8  # of a numeric column, of equal width on its scale
_MISSING = -1


@dataclass(frozen=True)
class Marginals:
    """Counts of records by class and by the value, or bin, of each column.

    A unit, a record or all records of a group, adds at most 1 in total to the counts of each
    column. Removing a unit thus changes the counts of a column by at most 1 in L2, and replacing it
    by at most sqrt(2). A value that is missing, unreadable or unknown is not counted.
    """

    schema: Schema  # of BoundedColumn and CategoricalColumn alone
    n_classes: int
    epsilon: float  # of the counts; infinity means no noise
    delta: float
    relation: str

    @property
    def mechanism(self) -> Gaussian:
        """Mechanism that releases the counts."""
        changed = 2.0 if self.relation == "replace_one" else 1.0
        sensitivity = math.sqrt(changed * len(self.schema))
        if math.isinf(self.epsilon):
            return Gaussian(0.0, sensitivity)
        return Gaussian(analytic_noise_multiplier(self.epsilon, self.delta), sensitivity)

    def counts(
        self, X: Any, codes: NDArray[np.int64], shares: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the private counts, (n_cells, n_classes); shares of a unit add up to at most 1."""
        tables = []
        for column, fact in described_columns(self.schema, X):
            cells = _cell_indices(mask_unreadable(column), fact)
            known = cells != _MISSING
            places = cells[known] * self.n_classes + codes[known]
            size = _n_cells(fact) * self.n_classes
            tables.append(np.bincount(places, shares[known], size).reshape(-1, self.n_classes))
        return np.concatenate(tables)

    def draw_records(
        self, noisy: NDArray[np.float64], n: int, random: np.random.RandomState
    ) -> pd.DataFrame:
        """Draw unlabelled records from noisy counts: equally many of each class, by column."""
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
            if isinstance(fact, BoundedColumn):
                columns[name] = fact.from_unit((cells + random.uniform(size=n)) / _BINS)
            elif isinstance(fact, CategoricalColumn):
                columns[name] = np.array(fact.values, dtype=object)[cells]
        return pd.DataFrame(columns)


def _n_cells(fact: Column) -> int:
    return len(fact.values) if isinstance(fact, CategoricalColumn) else _BINS


def _cell_indices(column: pd.Series, fact: Column) -> NDArray[np.int64]:
    """Return the bin or category of each value, independent of the other values."""
    if isinstance(fact, CategoricalColumn):
        return category_codes(column, fact.values).astype(np.int64)
    assert isinstance(fact, BoundedColumn)
    values = column_numbers(column)
    bins = np.minimum(_BINS * fact.to_unit(values), _BINS - 1).astype(np.int64)
    return np.where(np.isnan(values), _MISSING, bins)


def _project_to_simplex(noisy: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return shares of noisy counts: their Euclidean projection onto the simplex."""
    total = noisy.sum()
    if not total > 0:
        return np.full(len(noisy), 1 / len(noisy))
    falling = np.sort(noisy)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(noisy) + 1)
    kept = np.maximum(noisy - excess[falling > excess][-1], 0.0)
    shares: NDArray[np.float64] = kept / kept.sum()
    return shares
