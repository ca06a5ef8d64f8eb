"""Records as points: numbers in units of their standard deviation, categories at distance 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import OneHotEncoder

from ._records import as_table, numeric_columns

__all__ = ["Coordinates", "as_texts", "split_columns"]


_FAR = 1e100  # deviations; beyond, squares of distances would overflow


class Coordinates:
    """Encode records as points, with units learned from the records ``X``.

    **Edge cases.** A missing number lies at the mean, and numbers are clipped to 1e100 standard
    deviations. An unknown category is at distance 1 / sqrt(2) from all others. A constant column
    keeps its units.
    """

    def __init__(self, X: Any) -> None:
        numbers, texts = split_columns(X)
        known = pd.DataFrame(_finite(numbers))
        self._mean = np.nan_to_num(known.mean().to_numpy(dtype=np.float64))
        std = np.nan_to_num(known.std(ddof=0).to_numpy(dtype=np.float64))
        self._std = np.where(std > 0, std, 1.0)
        self._encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        if texts.shape[1]:
            self._encoder.fit(texts)
        self._width = numbers.shape[1], texts.shape[1]

    def encode(self, X: Any, name: str = "X") -> NDArray[np.float64]:
        """Return the points of records, shape (n, n_dimensions)."""
        numbers, texts = split_columns(X)
        if (numbers.shape[1], texts.shape[1]) != self._width:
            raise ValueError(
                f"The records of {name} have {numbers.shape[1]} numeric and {texts.shape[1]} "
                f"other columns; expected {self._width[0]} and {self._width[1]}, as in fit. Pass "
                "the same columns, of the same types."
            )
        with np.errstate(over="ignore"):
            scaled = np.nan_to_num((_finite(numbers) - self._mean) / self._std)
        points = [np.clip(scaled, -_FAR, _FAR)]
        if texts.shape[1]:
            points.append(self._encoder.transform(texts) * math.sqrt(0.5))
        return np.hstack(points)


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
    return numbers, as_texts(known)


def as_texts(values: NDArray[Any]) -> NDArray[Any]:
    """Return ``str`` of each value, as Python objects."""
    return np.asarray(np.vectorize(str, otypes=[object])(values))


def _finite(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(numbers), numbers, np.nan)
