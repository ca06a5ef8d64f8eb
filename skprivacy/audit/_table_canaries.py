"""Canaries for a synthesizer's noisy tables, and their scores from tables or synthetic records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ..preprocessing import Bounded, Categories
from ..synthesis import PrivateSynthesizer
from ._canaries import training_rows

__all__ = ["Mixture", "score_from_rows", "score_from_tables", "spread_records"]

Facts = dict[str, Bounded | Categories]
Floats = NDArray[np.float64]

# Clip in deviations of a table's noise: larger ones are errors of the model, not noise.
_CLIPPED = 3.0


def spread_records(facts: Facts, types: Any, n: int, random: np.random.Generator) -> pd.DataFrame:
    """Return records whose values are spread evenly over public ranges and categories.

    Each column is shuffled separately, so that canaries share few cells of any table, and lie where
    real records are rare.
    """
    return pd.DataFrame({c: _values(fact, types[c], n, random) for c, fact in facts.items()})


def _values(
    fact: Bounded | Categories, dtype: Any, n: int, random: np.random.Generator
) -> pd.Series[Any]:
    order = random.permutation(n)
    if isinstance(fact, Categories):
        places = (order + random.integers(len(fact.values))) % len(fact.values)
        return pd.Series([fact.values[i] for i in places], dtype=object)
    numbers = np.asarray(fact.from_unit((order + random.random(n)) / n), dtype=np.float64)
    if pd.api.types.is_integer_dtype(dtype):
        numbers = np.clip(np.rint(numbers), np.ceil(fact.lower), np.floor(fact.upper))
    return pd.Series(numbers)


@dataclass(frozen=True)
class Mixture:
    """Records, of which coins replaced some by canaries.

    ``records`` holds the canaries last. ``rows`` are the records that canaries may replace,
    ``trained`` the coins.
    """

    records: pd.DataFrame
    rows: NDArray[np.intp]
    trained: NDArray[np.bool_]
    coin: str

    @classmethod
    def draw(
        cls, X: pd.DataFrame, facts: Facts, n_canaries: int, coin: str, random: np.random.Generator
    ) -> Mixture:
        """Draw canaries, the rows that they may replace, and the coins."""
        rows = np.sort(random.permutation(len(X))[:n_canaries])
        crafted = spread_records(facts, X.dtypes, n_canaries, random)[list(X.columns)]
        plain = {c: t for c, t in X.dtypes.items() if not isinstance(t, pd.CategoricalDtype)}
        both = pd.concat([X.astype(object), crafted.astype(object)], ignore_index=True)
        return cls(both.astype(plain), rows, random.random(n_canaries) < 0.5, coin)

    def training_table(self) -> pd.DataFrame:
        """Return the table to fit."""
        place = training_rows(self._n, self.rows, self.trained, self.coin)
        return self.records.iloc[place].reset_index(drop=True)

    @property
    def _n(self) -> int:
        return len(self.records) - len(self.rows)

    @property
    def expected(self) -> float:
        """Expected number of records in the fit, for an attacker who does not know the coins."""
        kept = self._n - len(self.rows)
        return kept + len(self.rows) * (0.5 if self.coin == "add_remove" else 1.0)

    def counts_and_changes(self, cells: sparse.csr_matrix) -> tuple[Floats, sparse.csr_matrix]:
        """Return the counts without canaries, and the change by each canary."""
        before, canaries = cells[: self._n], cells[self._n :]
        counts = np.asarray(before.sum(axis=0)).ravel()
        given_up = before[self.rows]
        if self.coin == "add_remove":
            return counts - np.asarray(given_up.sum(axis=0)).ravel(), canaries
        return counts, canaries - given_up


def score_from_tables(fitted: PrivateSynthesizer, mixture: Mixture) -> Floats:
    """Return the score of each canary from the noisy tables, for an attacker with all other data.

    Scores depend only on the tables and on records that no coin touches.
    """
    noisy = [measurement.table.ravel() for measurement in fitted.measurements_]
    return _scores(fitted, mixture, noisy, np.inf)


def score_from_rows(
    fitted: PrivateSynthesizer, mixture: Mixture, synthetic: pd.DataFrame
) -> Floats:
    """Return the score of each canary from synthetic records, counted in the same tables."""
    share = mixture.expected / len(synthetic)
    drawn = [np.asarray(cells.sum(axis=0)).ravel() * share for cells in _cells(fitted, synthetic)]
    return _scores(fitted, mixture, drawn, _CLIPPED)


def _scores(
    fitted: PrivateSynthesizer, mixture: Mixture, seen: Sequence[Floats], clipped: float
) -> Floats:
    """Return the best linear estimates of the coins, centred at 0.

    Each coin has variance 1/4. The noise is that of the tables.
    """
    n = len(mixture.rows)
    gram, signal = np.zeros((n, n)), np.zeros(n)
    for measurement, cells, table in zip(
        fitted.measurements_, _cells(fitted, mixture.records), seen, strict=True
    ):
        counts, changes = mixture.counts_and_changes(cells)
        std = max(float(np.max(measurement.std)), 1e-6)
        expected = counts + np.asarray(changes.sum(axis=0)).ravel() / 2
        off = np.clip((table - expected) / std, -clipped, clipped)
        gram += (changes @ changes.T).toarray() / std**2
        signal += changes @ off / std
    # Linear minimum mean squared error estimate, for coins of variance 1/4 and independent noise.
    return np.asarray(np.linalg.solve(4 * np.eye(n) + gram, signal), dtype=np.float64)


def _cells(fitted: PrivateSynthesizer, frame: pd.DataFrame) -> list[sparse.csr_matrix]:
    """Return the cell of each noisy table that counts each record; none for excluded records."""
    domain = fitted.domain_
    codes, kept = domain.encoded([frame[name] for name in domain.names])
    binned = np.column_stack([own[codes[:, c]] for c, own in enumerate(fitted.bins_)])
    who = np.flatnonzero(kept)
    found = []
    for k, measurement in enumerate(fitted.measurements_):
        own = codes if k < len(fitted.tables_) else binned
        axes = tuple(own[:, c] for c in measurement.columns)
        cell = np.ravel_multi_index(axes, measurement.table.shape)
        shape = len(frame), measurement.table.size
        found.append(sparse.csr_matrix((np.ones(len(who)), (who, cell)), shape=shape))
    return found
