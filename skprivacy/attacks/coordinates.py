"""Coordinates of mixed-type records: points, cells with counts, and nearest other records.

:class:`Coordinates` measures numbers in units of their standard deviation, and puts different
categories at distance 1. :class:`Cells` bins numbers at quantiles. :class:`NearestRecords` finds
the neighbours of a record in any table of features.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import OneHotEncoder

from .._sklearn import safe_indexing
from .._validation import num_samples
from .record_tables import as_table, fingerprints, numeric_columns

Codes = NDArray[np.int64]
_FAR = 1e100  # deviations; beyond, squares of distances would overflow
MOST_VALUES = 50  # indicators per non-numeric column


class Coordinates:
    """Encode records as points: scaled numbers, and categories at a distance ``apart``.

    **Edge cases.** A missing number lies at the mean; an unknown category is nearer to all others.
    """

    def __init__(
        self, X: Any, name: str, *, apart: float = 1.0, max_categories: int | None = None
    ) -> None:
        self._name, self._weight = name, apart * math.sqrt(0.5)
        numbers, texts = split_columns(X)
        known = pd.DataFrame(_finite(numbers))
        self._mean = np.nan_to_num(known.mean().to_numpy(dtype=np.float64))
        std = np.nan_to_num(known.std(ddof=0).to_numpy(dtype=np.float64))
        self._std = np.where(std > 0, std, 1.0)
        self._encoder = OneHotEncoder(
            max_categories=max_categories, handle_unknown="infrequent_if_exist", sparse_output=False
        )
        if texts.shape[1]:
            self._encoder.fit(texts)
        self._width = numbers.shape[1], texts.shape[1]

    def encode(self, X: Any, name: str = "X") -> NDArray[np.float64]:
        """Return the points of records, shape (n, n_dimensions)."""
        numbers, texts = _split_alike(X, name, self._width, self._name)
        with np.errstate(over="ignore"):
            scaled = np.nan_to_num((_finite(numbers) - self._mean) / self._std)
        points = [np.clip(scaled, -_FAR, _FAR)]
        if texts.shape[1]:
            points.append(self._encoder.transform(texts) * self._weight)
        return np.hstack(points)


class Cells:
    """Encode values as cells: numbers cut at quantiles of ``X``, missing ones in their own cell."""

    def __init__(self, X: Any, n_bins: int) -> None:
        numbers, texts = split_columns(X)
        self._bin_edges = [_bin_edges(column, n_bins) for column in numbers.T]
        self._values = [pd.Index(np.unique(column), dtype=object) for column in texts.T]
        frame = X if isinstance(X, pd.DataFrame) else as_table(np.reshape(X, (len(X), -1)))
        number = numeric_columns(frame)
        self.names = [*frame.columns[number], *frame.columns[~number]]  # as the cells are ordered

    def encode(self, X: Any, name: str) -> Codes:
        """Return the cell of each value, numeric columns first, shape (n, n_columns)."""
        widths = len(self._bin_edges), len(self._values)
        numbers, texts = _split_alike(X, name, widths, "reference")
        codes = [
            np.where(np.isnan(column), 0, 1 + np.searchsorted(edges, column, side="right"))
            for column, edges in zip(numbers.T, self._bin_edges, strict=True)
        ]
        codes += [
            1 + values.get_indexer(pd.Index(column, dtype=object))
            for column, values in zip(texts.T, self._values, strict=True)
        ]
        return np.column_stack(codes).astype(np.int64)


class Counts:
    """Contingency table: number of records in each cell of several columns."""

    def __init__(self, codes: Codes, columns: tuple[int, ...]) -> None:
        self._columns = list(columns)
        self._size = int(codes.max()) + 2
        self._cells, self._counts = np.unique(self._keys(codes), return_counts=True)
        self.total = len(codes)

    def count(self, codes: Codes) -> NDArray[np.float64]:
        """Return the count of each record's cell."""
        keys = self._keys(codes)
        place = np.minimum(np.searchsorted(self._cells, keys), len(self._cells) - 1)
        return np.where(self._cells[place] == keys, self._counts[place], 0).astype(np.float64)

    def _keys(self, codes: Codes) -> Codes:
        keys = np.zeros(len(codes), np.int64)
        for column in self._columns:
            keys = keys * self._size + np.minimum(codes[:, column], self._size - 1)
        return keys


def split_columns(X: Any) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return the numeric columns of records, and the other columns as text."""
    if sparse.issparse(X):
        X = X.toarray()
    if not isinstance(X, pd.DataFrame):
        X = np.asarray(X)
        X = X.reshape(len(X), math.prod(X.shape[1:]))
    number = numeric_columns(X)
    frame = as_table(X)
    texts = frame.loc[:, ~number].astype(object)
    known = texts.where(texts.notna(), "missing").to_numpy(dtype=object)
    numbers = frame.loc[:, number].to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers, np.asarray(np.vectorize(str, otypes=[object])(known))


class NearestRecords:
    """Find the nearest other records of a record, among at least two distinct ones.

    **Guarantees.** No neighbour is a copy of the record. If the order of the records is independent
    of membership, so is the choice between equal distances.
    """

    def __init__(self, X: Any, n_neighbours: int) -> None:
        self._encoder = None  # sparse records are points already
        if not sparse.issparse(X):
            self._encoder = Coordinates(X, "fit", apart=math.sqrt(2), max_categories=MOST_VALUES)
        self._prints = fingerprints(X)
        self._sorted = np.argsort(self._prints)
        self.n_neighbours = min(n_neighbours, num_samples(X) - 1)
        coordinates = self._encode(X)
        self._index = NearestNeighbors(n_neighbors=self.n_neighbours + 1).fit(coordinates)
        self._near = self._search(coordinates, self._prints)

    def find_nearest(self, X: Any) -> NDArray[np.intp]:
        """Return the indices of the nearest records, of shape (n_records, n_neighbours)."""
        prints = fingerprints(X)
        place = np.searchsorted(self._prints, prints, sorter=self._sorted)
        place = self._sorted[np.minimum(place, len(self._prints) - 1)]
        near = self._near[place]
        others = self._prints[place] != prints
        if others.any():
            coordinates = self._encode(safe_indexing(X, np.flatnonzero(others)))
            near[others] = self._search(coordinates, prints[others])
        return near

    def _encode(self, X: Any) -> Any:
        return X if self._encoder is None else self._encoder.encode(X).astype(np.float32)

    def _search(self, coordinates: Any, prints: NDArray[np.uint64]) -> NDArray[np.intp]:
        found = self._index.kneighbors(coordinates, return_distance=False)
        own = self._prints[found] == prints[:, None]
        # the record itself moves to the end, and the last column is dropped
        order = np.argsort(own, axis=1, kind="stable")
        return np.take_along_axis(found, order, axis=1)[:, : self.n_neighbours]


def _split_alike(
    X: Any, name: str, widths: tuple[int, int], known: str
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Split the columns; ValueError unless there are as many of each kind as in ``known``."""
    numbers, texts = split_columns(X)
    if (numbers.shape[1], texts.shape[1]) != widths:
        raise ValueError(
            f"The records of {name} have {numbers.shape[1]} numeric and {texts.shape[1]} other "
            f"columns; expected {widths[0]} and {widths[1]}, as the {known} records have. Pass the "
            "same columns, of the same types."
        )
    return numbers, texts


def _bin_edges(column: NDArray[np.float64], n_bins: int) -> NDArray[np.float64]:
    known = np.unique(column[np.isfinite(column)])
    if len(known) <= n_bins:
        return (known[1:] + known[:-1]) / 2
    shares = np.linspace(0.0, 1.0, n_bins + 1)[1:-1]
    return np.unique(np.quantile(column[np.isfinite(column)], shares))


def _finite(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(numbers), numbers, np.nan)
