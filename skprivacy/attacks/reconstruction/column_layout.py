"""Layout of mixed-type rows: which features form a column, and when two columns are equal.

:func:`null_model_rows` guesses rows without a gradient, and :func:`null_model_ceiling` bounds the
share that any such guess recovers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from ...preprocessing import CategoricalColumn, HashedColumn, Schema

Float64Array = NDArray[np.float64]
# A number counts as recovered within this distance, in standard deviations (Vero et al. 2023,
# TabLeak).
TOLERANCE = 0.319
_EXACT = 1e-3  # standard deviations


@dataclass(frozen=True)
class ColumnLayout:
    """Columns of features, with the range and spread of each feature in the attacker's records.

    **Guarantees.** The layout depends only on public facts and the attacker's own records.

    **Edge cases.** A category whose features are all off is "none", which equals only "none". NaN
    equals nothing.
    """

    names: tuple[str, ...]
    columns: tuple[NDArray[np.intp], ...]  # one feature for a number, several for a category
    low: Float64Array  # range and standard deviation of features, (n_features,)
    high: Float64Array
    spread: Float64Array

    @classmethod
    def from_columns(cls, X: Float64Array, described: Schema | None) -> ColumnLayout:
        """Build the layout from a schema; None means numbers only."""
        d = X.shape[1]
        if described is None:
            named = {str(j): np.array([j]) for j in range(d)}
        else:
            named = _columns_of_schema(described, d)
        low, high, spread = X.min(axis=0), X.max(axis=0), X.std(axis=0)
        return cls(
            tuple(named),
            tuple(named.values()),
            low,
            np.where(high > low, high, low + 1.0),
            np.where(spread > 0, spread, 1.0),
        )

    @property
    def one_hot(self) -> list[NDArray[np.intp]]:
        """Features of each category."""
        return [features for features in self.columns if len(features) > 1]

    def decode_columns(self, X: Float64Array) -> Float64Array:
        """Return one number per column: its value, or the index of the category (-1 for none)."""
        unit = (X - self.low) / (self.high - self.low)
        out = np.empty((len(X), len(self.columns)))
        for j, features in enumerate(self.columns):
            if len(features) == 1:
                out[:, j] = X[:, features[0]]
                continue
            block = unit[:, features]
            missing: NDArray[np.bool_] = np.asarray(np.isnan(block).any(axis=1))
            block = np.where(missing[:, None], 0.0, block)
            out[:, j] = np.where(block.max(axis=1) < 0.5, -1, block.argmax(axis=1))
            out[missing, j] = np.nan
        return out

    def within(self, share: float) -> Float64Array:
        """Return the tolerance of each column's decoded values; categories must be equal."""
        numbers = np.array([len(f) == 1 for f in self.columns])
        spread = np.array([self.spread[f[0]] for f in self.columns])
        return np.where(numbers, share * spread, 0.5)

    def _iter_columns(self) -> Iterator[tuple[int, NDArray[np.intp], float]]:
        near = self.within(TOLERANCE).tolist()
        return zip(range(len(near)), self.columns, near, strict=True)

    def equal(
        self, guesses: Float64Array, truth: Float64Array, share: float = TOLERANCE
    ) -> NDArray[np.bool_]:
        """Return which columns of guesses and rows are equal, (guesses, rows, columns)."""
        off = np.abs(self.decode_columns(guesses)[:, None] - self.decode_columns(truth)[None])
        equal: NDArray[np.bool_] = off <= self.within(share)
        return equal

    def match_rows(
        self, guesses: Float64Array, truth: Float64Array
    ) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Match rows with guesses; return which columns they recover, and the guess of each row."""
        equal = self.equal(guesses, truth)
        apart = np.abs(guesses[:, None] - truth[None]) / (self.high - self.low)
        nearness = 1e-3 * np.exp(-np.nan_to_num(apart, nan=1e3).mean(axis=2))
        guess, row = linear_sum_assignment(-(equal.mean(axis=2) + nearness))
        order = guess[np.argsort(row)]
        return equal[order, np.arange(len(truth))], order

    def exact(self, guesses: Float64Array, truth: Float64Array) -> NDArray[np.bool_]:
        """Return which rows equal some guess in all columns, up to .001 standard deviations."""
        return np.asarray(self.equal(guesses, truth, _EXACT).all(axis=2).any(axis=0))

    def most_voted_rows(
        self, X: Float64Array, votes: Float64Array
    ) -> tuple[Float64Array, Float64Array]:
        """Return the values with most votes, (n_rows, n_candidates), and their mean share."""
        votes = votes / votes.sum(axis=1, keepdims=True)
        rows, values = votes @ X, self.decode_columns(X)
        certain = np.empty((len(rows), len(self.columns)))
        for j, features, near in self._iter_columns():
            if len(features) == 1:
                rows[:, features[0]], certain[:, j] = _most_voted_value(values[:, j], near, votes)
                continue
            # the code -1 (none) comes last, so rows of the identity are the categories
            options = np.arange(len(features) + 1)
            of_code = (values[:, j][:, None] % len(options) == options).astype(float)
            total = votes @ of_code
            certain[:, j] = total.max(axis=1)
            chosen = np.eye(len(options))[total.argmax(axis=1), :-1]
            span = self.high[features] - self.low[features]
            rows[:, features] = self.low[features] + span * chosen
        return rows, certain.mean(axis=1)

    def most_common_share(self, X: Float64Array) -> Float64Array:
        """Return for each column the largest share of rows that one guessed value recovers."""
        values, shares = self.decode_columns(X), np.empty(len(self.columns))
        one = np.full((1, len(X)), 1 / len(X))
        for j, features, near in self._iter_columns():
            if len(features) == 1:
                shares[j] = _most_voted_value(values[:, j], near, one)[1][0]
            else:
                shares[j] = np.unique(values[:, j], return_counts=True)[1].max() / len(X)
        return shares


def null_model_rows(
    layout: ColumnLayout,
    reference: Float64Array,
    of_reference: NDArray[Any],
    shape: tuple[int, ...],
    labels: NDArray[Any] | None,
    rng: np.random.Generator,
) -> dict[str, Float64Array]:
    """Return the guesses of each null model, which sees what the attack sees but the gradient."""
    middle = (layout.low + layout.high) / 2
    for features in layout.one_hot:
        middle[features] = layout.low[features]
        middle[features[0]] = layout.high[features[0]]
    mode, random_rows = np.empty((2, *shape, len(middle)))
    known = np.zeros(shape, dtype=int) if labels is None else labels
    for label in np.unique(known):
        pool = reference if labels is None else reference[of_reference == label]
        pool = pool if len(pool) else reference
        here = known == label
        mode[here] = layout.most_voted_rows(pool, np.ones((1, len(pool))))[0][0]
        random_rows[here] = pool[rng.integers(len(pool), size=int(here.sum()))]
    return {"middle": np.broadcast_to(middle, mode.shape), "mode": mode, "random rows": random_rows}


def null_model_ceiling(
    layout: ColumnLayout, truth: Float64Array, labels: NDArray[Any] | None
) -> Float64Array:
    """Bound, for each column, the share that guesses without a gradient recover.

    The bound also holds for guesses chosen knowing these rows. Any of a batch's n guesses may be
    matched with a row: at most n times the best single guess. The rest of a batch reveals which of
    the N rows are left, a factor of at most N / (N - n + 1).
    """
    n = truth.shape[1]
    rows = truth.reshape(-1, truth.shape[2])
    known = np.zeros(len(rows)) if labels is None else np.ravel(labels)
    ceiling = np.zeros(len(layout.columns))
    for label in np.unique(known):
        share = layout.most_common_share(rows[known == label])
        left = len(rows) / (len(rows) - n + 1)
        ceiling += np.mean(known == label) * np.minimum(1.0, n * left * share)
    return ceiling


def _most_voted_value(
    values: Float64Array, near: float, votes: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Return for each row of votes the value with most votes within ``near``, and their sum."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    # an optimal interval of this width begins at a value
    last = np.searchsorted(ordered, ordered + 2 * near * (1 + 1e-9), side="right")
    first = np.searchsorted(ordered, ordered, side="left")
    best, mass = np.empty(len(votes)), np.empty(len(votes))
    for k, own in enumerate(votes):
        total = np.concatenate([[0.0], np.cumsum(own[order])])
        within = total[last] - total[first]
        at = int(within.argmax())
        best[k], mass[k] = (ordered[at] + ordered[last[at] - 1]) / 2, within[at]
    return best, mass


def _columns_of_schema(schema: Schema, d: int) -> dict[str, NDArray[np.intp]]:
    if schema.n_features_out != d:
        raise ValueError(
            f"X has {d} features, but columns= describes {schema.n_features_out}. Pass rows "
            "transformed by SchemaTransformer(schema)."
        )
    named, at = {}, 0
    for name, fact in schema.items():
        width = fact.n_features_out
        # features after a number or a date (such as indicators of bins) and indicators of missing
        # values are not evaluated
        of_category = (
            width - fact.missing if isinstance(fact, CategoricalColumn | HashedColumn) else 1
        )
        named[str(name)] = np.arange(at, at + of_category)
        at += width
    return named
