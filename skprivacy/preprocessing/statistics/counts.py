"""Private counts of the records in public cells: conditions, bins and categories."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ..._docs import fill_docs
from ..._groups import SHARES_PER_GROUP, Groups
from ..._input_data import check_numbers
from ...accounting import PrivacyBudget
from ...accounting.event import numbers
from ...sums import SumTotal
from ...sums.batch_columns import read_numbers, read_text
from ...sums.sources import SumSource
from ...sums.sum_plan import Integers, SumPlan
from .release import (
    RELEASE_DOCS,
    Release,
    Statistic,
    check_release_target,
    open_column,
    release_statistic,
)


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


@fill_docs(RELEASE_DOCS)
def private_count(
    x: ArrayLike,
    *,
    epsilon: float,
    delta: float = 0.0,
    relation: str = "add_remove",
    groups: ArrayLike | None = None,
    budget: PrivacyBudget | None = None,
    noise_seed: int | None = None,
) -> Release:
    """Return a private count of the records that meet a condition.

    Parameters
    ----------
    x : array-like of bool, shape (n_samples,)
        Whether the condition holds for each record, such as ``frame["age"] > 65``. Missing values
        are not counted. ``numpy.ones(n, bool)`` counts all records.
    %(release_epsilon)s
    %(release_relation)s
    %(release_groups)s
    %(release_budget)s

    Returns
    -------
    Release
        ``value`` is a float, which can be fractional or negative. Clipping or rounding it costs
        no privacy.

    Raises
    ------
    ValueError
        If ``x`` holds anything but True, False, 0, 1 and missing values, or a parameter is wrong.

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy of a row or, with ``groups``, of a
    group: it changes the count by at most 1 under each relation. Shares of groups are rounded down
    to a grid on which sums are exact. The noise is exact on a grid.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.preprocessing import private_count
    >>> count, privacy = private_count(np.arange(1000) < 300, epsilon=1.0)
    >>> 250 < count < 350
    True
    """
    check_release_target(epsilon, delta, relation)
    source, name = open_column(x, groups)
    _check_conditions(source.rows)
    return _release_counts(
        source, CellPlan(name, Condition(), unit=source.unit), "private_count",
        lambda noisy: float(noisy[0]), epsilon=epsilon, delta=delta, relation=relation,
        budget=budget, noise_seed=noise_seed, changed=1.0,
    )  # fmt: skip


def _check_conditions(values: NDArray[Any]) -> None:
    """Refuse values in memory that are neither true nor false."""
    known = values[~pd.isna(values)]
    if known.dtype.kind not in "biufO" or not np.isin(known, (0, 1)).all():
        raise ValueError(
            f"x holds values of type {values.dtype}; expected booleans, or zeros and ones. Pass a "
            "condition on each record, such as frame['age'] > 65."
        )


def _release_counts(
    source: SumSource,
    plan: CellPlan,
    name: str,
    read: Callable[[NDArray[np.float64]], Any],
    *,
    changed: float,
    **params: Any,
) -> Release:
    """Release the counts of cells, of which a unit changes ``changed`` by 1 at most."""
    statistic = Statistic(
        plan, changed, math.sqrt(changed), plan.counts, lambda noisy, *_: read(noisy)
    )
    return release_statistic(statistic, source, name, **params)


@fill_docs(RELEASE_DOCS)
def private_histogram(
    x: ArrayLike,
    *,
    bins: ArrayLike | None = None,
    categories: ArrayLike | None = None,
    epsilon: float,
    delta: float = 0.0,
    relation: str = "add_remove",
    groups: ArrayLike | None = None,
    budget: PrivacyBudget | None = None,
    noise_seed: int | None = None,
) -> Release:
    """Return a private histogram: the number of records in each public bin or category.

    Parameters
    ----------
    x : array-like of shape (n_samples,)
        Values outside all bins, unknown categories and NaN are not counted.
    bins : array-like of shape (n_bins + 1,), default=None
        Public edges, increasing. The last bin includes its right edge.
    categories : array-like of shape (n_categories,), default=None
        Public categories, instead of ``bins``.
    %(release_epsilon)s
    %(release_relation)s
    %(release_groups)s
    %(release_budget)s

    Returns
    -------
    Release
        ``value`` of shape (n_bins,) or (n_categories,): counts that can be fractional or negative.
        Clipping and rounding them costs no privacy.

    Examples
    --------
    >>> from skprivacy.preprocessing import private_histogram
    >>> counts, privacy = private_histogram(["a", "b", "a"], categories=["a", "b"], epsilon=1.0)
    >>> counts.shape
    (2,)
    """
    check_release_target(epsilon, delta, relation)
    if (bins is None) == (categories is None):
        raise ValueError(
            f"bins={bins!r} and categories={categories!r}: exactly one of them must be given. Pass "
            "bins=edges or categories=values, from public knowledge."
        )
    cells = _make_cells(bins, categories)
    source, name = open_column(x, groups)
    if bins is not None:
        check_numbers(source.rows[~pd.isna(source.rows)], "x")
    return _release_counts(
        source, CellPlan(name, cells, unit=source.unit), "private_histogram",
        lambda noisy: noisy, epsilon=epsilon, delta=delta, relation=relation, budget=budget,
        noise_seed=noise_seed, changed=2.0 if relation == "replace_one" else 1.0,
    )  # fmt: skip


def _make_cells(bins: ArrayLike | None, categories: ArrayLike | None) -> Bins | Categories:
    """Return public bins or categories."""
    if bins is not None:
        edges = np.array(numbers("bins", bins))
        if edges.ndim != 1 or len(edges) < 2 or not (np.diff(edges) > 0).all():
            raise ValueError(
                f"bins={bins!r} must be at least two increasing edges, such as [0, 18, 65, 120]."
            )
        return Bins(tuple(edges.tolist()))
    named = np.asarray(categories)
    if named.ndim != 1 or not named.size or len(np.unique(named)) != named.size:
        raise ValueError(
            f"categories={categories!r} must be a flat list of at least one value, without "
            "duplicates. Pass all public categories once."
        )
    return Categories(tuple(named.tolist()))
