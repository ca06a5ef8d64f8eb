"""Nearest other records of a record, in any table of features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from ._records import as_table, fingerprints, num_samples, numeric_columns, safe_indexing

__all__ = ["NearestRecords"]

MOST_VALUES = 50  # indicators per non-numeric column


class NearestRecords:
    """Find the nearest records among at least two distinct ones.

    Numbers are standardised, other columns become indicators of their values, and missing numbers
    count as the mean.

    **Guarantees.** The neighbours of a record never include the record or a copy of it. If the
    order of the records is independent of membership, so is the choice between equal distances.
    """

    def __init__(self, X: Any, n_neighbours: int) -> None:
        self._encoder = _Encoder(X)
        self._prints = fingerprints(X)
        self._sorted = np.argsort(self._prints)
        self.n_neighbours = min(n_neighbours, num_samples(X) - 1)
        coordinates = self._encoder(X)
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
            coordinates = self._encoder(safe_indexing(X, np.flatnonzero(others)))
            near[others] = self._search(coordinates, prints[others])
        return near

    def _search(self, coordinates: Any, prints: NDArray[np.uint64]) -> NDArray[np.intp]:
        found = self._index.kneighbors(coordinates, return_distance=False)
        own = self._prints[found] == prints[:, None]
        # the record itself moves to the end, and the last column is dropped
        order = np.argsort(own, axis=1, kind="stable")
        return np.take_along_axis(found, order, axis=1)[:, : self.n_neighbours]


class _Encoder:
    """Encode records as coordinates: standardised numbers, and indicators of other columns."""

    def __init__(self, X: Any) -> None:
        if sparse.issparse(X):
            return
        number, text = _numbers_and_texts(X)
        self._numbers = StandardScaler().fit(number) if number.shape[1] else None
        self._texts = None
        if text.shape[1]:
            self._texts = OneHotEncoder(
                max_categories=MOST_VALUES,
                handle_unknown="infrequent_if_exist",
                sparse_output=False,
                dtype=np.float32,
            ).fit(text)

    def __call__(self, X: Any) -> Any:
        if sparse.issparse(X):
            return X
        number, text = _numbers_and_texts(X)
        coded = []
        if self._numbers is not None:
            scaled = self._numbers.transform(number)
            coded.append(np.nan_to_num(scaled, nan=0.0, posinf=0.0, neginf=0.0))
        if self._texts is not None:
            coded.append(self._texts.transform(text))
        return np.hstack(coded).astype(np.float32)


def _numbers_and_texts(X: Any) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return the numeric columns, and the other columns as text."""
    if not isinstance(X, pd.DataFrame) and X.dtype.kind in "biuf":
        return X.reshape(len(X), -1).astype(float), np.empty((len(X), 0), dtype=object)
    frame = as_table(X)
    number = numeric_columns(frame)
    values = frame.loc[:, number].to_numpy(dtype=float, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan), frame.loc[:, ~number].to_numpy(dtype=str)
