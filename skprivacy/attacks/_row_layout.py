"""Rows of mixed types: which features form a number or a category, and which are equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from .._validation import sequence
from ..preprocessing import Categories, Hashed, Schema

__all__ = ["TOLERANCE", "RowLayout"]

Float64Array = NDArray[np.float64]
TOLERANCE = 0.319  # of a standard deviation: a number so near counts as recovered (TabLeak)
_EXACT = 1e-3  # of a standard deviation


@dataclass(frozen=True)
class RowLayout:
    """How features form columns, and the range and spread of each among an attacker's records.

    **Guarantees.** It is a function of public facts and of the attacker's own records.

    **Edge cases.** A category whose features are all off is none, which is equal to none only. NaN
    is equal to nothing. A constant feature counts as recovered within .319.

    Attributes
    ----------
    names : tuple of str
        The columns.
    columns : tuple of ndarray
        The features of each: one, of a number; several, of a category, of which one is on.
    low, high, spread : ndarray of shape (n_features,)
        Range and standard deviation.
    """

    names: tuple[str, ...]
    columns: tuple[NDArray[np.intp], ...]
    low: Float64Array
    high: Float64Array
    spread: Float64Array

    @classmethod
    def of(cls, X: Float64Array, described: Any) -> RowLayout:
        """Return the layout of rows that a schema or a list of columns describes; None: numbers."""
        d = X.shape[1]
        if described is None:
            named = {str(j): np.array([j]) for j in range(d)}
        elif isinstance(described, Schema):
            named = _by_schema(described, d)
        else:
            named = _by_lists(described, d)
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
        """The features of each category."""
        return [features for features in self.columns if len(features) > 1]

    def decoded(self, X: Float64Array) -> Float64Array:
        """Return a number for each column: its own, or which feature is on; -1 is none of them."""
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
        """Return how far apart two decoded values may be to count as equal, for each column."""
        numbers = np.array([len(f) == 1 for f in self.columns])
        spread = np.array([self.spread[f[0]] for f in self.columns])
        return np.where(numbers, share * spread, 0.5)

    def _columns_within(self) -> Iterator[tuple[int, NDArray[np.intp], float]]:
        near = self.within(TOLERANCE).tolist()
        return zip(range(len(near)), self.columns, near, strict=True)

    def equal(
        self, guesses: Float64Array, truth: Float64Array, share: float = TOLERANCE
    ) -> NDArray[np.bool_]:
        """Return which columns of each guess equal those of each row: (guesses, rows, columns)."""
        off = np.abs(self.decoded(guesses)[:, None] - self.decoded(truth)[None])
        equal: NDArray[np.bool_] = off <= self.within(share)
        return equal

    def matched(
        self, guesses: Float64Array, truth: Float64Array
    ) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Match each row with one guess, so that most columns are recovered; ties: the nearer one.

        Returns
        -------
        equal : ndarray of bool of shape (n_rows, n_columns)
        guess : ndarray of shape (n_rows,)
            Which guess belongs to each row.
        """
        equal = self.equal(guesses, truth)
        apart = np.abs(guesses[:, None] - truth[None]) / (self.high - self.low)
        nearness = 1e-3 * np.exp(-np.nan_to_num(apart, nan=1e3).mean(axis=2))
        guess, row = linear_sum_assignment(-(equal.mean(axis=2) + nearness))
        order = guess[np.argsort(row)]
        return equal[order, np.arange(len(truth))], order

    def exact(self, guesses: Float64Array, truth: Float64Array) -> NDArray[np.bool_]:
        """Return which rows equal some guess in all columns, numbers to a thousandth deviation."""
        return np.asarray(self.equal(guesses, truth, _EXACT).all(axis=2).any(axis=0))

    def commonest(self, X: Float64Array) -> Float64Array:
        """Return the row of the commonest values: of a number, what most others are near to."""
        return self.voted(X, np.ones((1, len(X))))[0][0]

    def voted(self, X: Float64Array, votes: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Return rows whose columns are recovered with most votes, and their mean share of them.

        Parameters
        ----------
        X : ndarray of shape (n_candidates, n_features)
        votes : ndarray of shape (n_rows, n_candidates)

        Returns
        -------
        rows : ndarray of shape (n_rows, n_features)
            Features that belong to no column are means.
        certain : ndarray of shape (n_rows,)
        """
        votes = votes / votes.sum(axis=1, keepdims=True)
        rows, values = votes @ X, self.decoded(X)
        certain = np.empty((len(rows), len(self.columns)))
        for j, features, near in self._columns_within():
            if len(features) == 1:
                rows[:, features[0]], certain[:, j] = _densest(values[:, j], near, votes)
                continue
            # The code -1, of none, comes last: rows of the identity are the categories.
            options = np.arange(len(features) + 1)
            of_code = (values[:, j][:, None] % len(options) == options).astype(float)
            total = votes @ of_code
            certain[:, j] = total.max(axis=1)
            chosen = np.eye(len(options))[total.argmax(axis=1), :-1]
            span = self.high[features] - self.low[features]
            rows[:, features] = self.low[features] + span * chosen
        return rows, certain.mean(axis=1)

    def most_common_share(self, X: Float64Array) -> Float64Array:
        """Return for each column the share of rows that the best guess of one value recovers."""
        values, shares = self.decoded(X), np.empty(len(self.columns))
        one = np.full((1, len(X)), 1 / len(X))
        for j, features, near in self._columns_within():
            if len(features) == 1:
                shares[j] = _densest(values[:, j], near, one)[1][0]
            else:
                shares[j] = np.unique(values[:, j], return_counts=True)[1].max() / len(X)
        return shares


def _densest(
    values: Float64Array, near: float, votes: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Return for each row of votes the number within ``near`` of most of them, and how many."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    # The best interval of this width may begin at a value.
    last = np.searchsorted(ordered, ordered + 2 * near * (1 + 1e-9), side="right")
    first = np.searchsorted(ordered, ordered, side="left")
    best, mass = np.empty(len(votes)), np.empty(len(votes))
    for k, own in enumerate(votes):
        total = np.concatenate([[0.0], np.cumsum(own[order])])
        within = total[last] - total[first]
        at = int(within.argmax())
        best[k], mass[k] = (ordered[at] + ordered[last[at] - 1]) / 2, within[at]
    return best, mass


def _by_schema(schema: Schema, d: int) -> dict[str, NDArray[np.intp]]:
    if schema.n_features_out != d:
        raise ValueError(
            f"X has {d} features; columns= describes {schema.n_features_out}. Pass rows as "
            "SchemaTransformer(schema) returns them."
        )
    named, at = {}, 0
    for name, fact in schema.items():
        width = fact.n_features_out
        # What follows a number or a date, such as bits of bins, and missing bits are not judged.
        of_category = width - fact.missing if isinstance(fact, Categories | Hashed) else 1
        named[str(name)] = np.arange(at, at + of_category)
        at += width
    return named


def _by_lists(columns: Any, d: int) -> dict[str, NDArray[np.intp]]:
    try:
        listed = sequence("columns", columns)
    except TypeError:
        raise TypeError(
            f"columns={columns!r} must be a Schema, a list with the features of each column, or "
            "None."
        ) from None
    named = {}
    seen: set[int] = set()
    for j, features in enumerate(listed):
        found = np.atleast_1d(np.asarray(features))
        usable = found.dtype.kind in "iu" and found.ndim == 1 and len(found)
        if not usable or found.min() < 0 or found.max() >= d or seen & set(found.tolist()):
            raise ValueError(
                f"columns[{j}]={features!r} must list features from 0 to {d - 1}, each in one "
                "column only."
            )
        seen |= set(found.tolist())
        named[str(j)] = found.astype(np.intp)
    if not named:
        raise ValueError("columns is empty. List the features of each column, or pass None.")
    return named
