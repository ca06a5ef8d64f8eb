"""Records as cells: categories and numbers binned at quantiles, with counts per cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ._coordinates import split_columns
from ._records import as_table, numeric_columns

__all__ = ["Cells", "Counts"]

Codes = NDArray[np.int64]


class Cells:
    """Encode values as cells, learned from the records ``X``.

    A column with more than ``n_bins`` distinct numbers is cut at its quantiles.

    **Edge cases.** Missing numbers share a cell, and so do unknown categories.
    """

    def __init__(self, X: Any, n_bins: int) -> None:
        numbers, texts = split_columns(X)
        self._bin_edges = [_bin_edges(column, n_bins) for column in numbers.T]
        self._values = [pd.Index(np.unique(column), dtype=object) for column in texts.T]
        self.names = _column_names(X)

    def encode(self, X: Any, name: str) -> Codes:
        """Return the cell of each value, numeric columns first, shape (n, n_columns)."""
        numbers, texts = split_columns(X)
        if (numbers.shape[1], texts.shape[1]) != (len(self._bin_edges), len(self._values)):
            raise ValueError(
                f"The records of {name} have {numbers.shape[1]} numeric and {texts.shape[1]} other "
                f"columns; expected {len(self._bin_edges)} and {len(self._values)}, as in the "
                "reference. Pass the same columns, of the same types."
            )
        codes = [
            np.where(np.isnan(column), 0, 1 + np.searchsorted(edges, column, side="right"))
            for column, edges in zip(numbers.T, self._bin_edges, strict=True)
        ]
        codes += [
            1 + values.get_indexer(pd.Index(column, dtype=object))
            for column, values in zip(texts.T, self._values, strict=True)
        ]
        return np.column_stack(codes).astype(np.int64)


def _bin_edges(column: NDArray[np.float64], n_bins: int) -> NDArray[np.float64]:
    known = np.unique(column[np.isfinite(column)])
    if len(known) <= n_bins:
        return (known[1:] + known[:-1]) / 2
    shares = np.linspace(0.0, 1.0, n_bins + 1)[1:-1]
    return np.unique(np.quantile(column[np.isfinite(column)], shares))


def _column_names(X: Any) -> list[Any]:
    """Return the names of the columns, numeric ones first."""
    frame = X if isinstance(X, pd.DataFrame) else as_table(np.reshape(X, (len(X), -1)))
    number = numeric_columns(frame)
    return [*frame.columns[number], *frame.columns[~number]]


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
