"""Records in any container that scikit-learn accepts: convert, fingerprint, encode, find nearest.

:class:`Coordinates` measures numbers in units of their standard deviation, and puts different
categories at distance 1. :class:`NearestRecords` finds the neighbours of a record.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import OneHotEncoder

from .._input_data import as_frame, check_cells, check_readable, make_row_major
from .._sklearn import safe_indexing
from .._validation import as_array, num_samples

Float64Array = NDArray[np.float64]
_FAR = 1e100  # deviations; beyond, squares of distances would overflow
MOST_VALUES = 50  # indicators per non-numeric column


def as_records(X: Any, name: str = "X") -> Any:
    """Return X as an array or DataFrame in C order, or as a CSR matrix, copying only if needed."""
    if sparse.issparse(X):
        return sparse.csr_matrix(X) if X.format != "csr" else X
    check_readable(X, name)
    X = as_frame(X, name)
    records = X if isinstance(X, pd.DataFrame) else as_array(name, X)
    if not records.ndim:
        raise ValueError(f"{name} must be a table of records, not of type {type(X).__name__}.")
    if 0 in records.shape[1:]:
        raise ValueError(
            f"{name} has shape {records.shape}; expected at least one column. Pass records with "
            "features."
        )
    check_cells(records, name)
    return make_row_major(records)


def as_table(X: Any) -> pd.DataFrame:
    """Return records as a DataFrame."""
    if np.ndim(X) > 2:
        raise ValueError(f"X has shape {np.shape(X)}; expected one row of features per record.")
    return pd.DataFrame(X)


def as_nonempty_records(X: Any, name: str) -> Any:
    """Return X as :func:`as_records`; ValueError if it holds no record."""
    records = as_records(X, name)
    if not num_samples(records):
        raise ValueError(f"{name} holds no records. Pass at least one.")
    return records


_PART = 1 << 15  # rows per call, which bounds the memory of models and hashes on large tables


def apply_in_parts(of_rows: Callable[[Any], Any], X: Any) -> NDArray[Any]:
    """Return a function's values for all rows, from calls on at most ``_PART`` rows each."""
    if num_samples(X) <= _PART:
        return np.asarray(of_rows(X))
    parts = (safe_indexing(X, rows) for rows in split_rows(num_samples(X)))
    return np.concatenate([np.asarray(of_rows(part)) for part in parts])


def split_rows(n: int) -> list[slice]:
    """Split ``n`` rows into slices of at most ``_PART`` rows; one empty slice if ``n`` is 0."""
    return [slice(start, start + _PART) for start in range(0, max(n, 1), _PART)]


def fingerprints(X: Any) -> NDArray[np.uint64]:
    """Return a 64-bit fingerprint of each row; rows of equal values have equal fingerprints.

    Numbers of any type are compared by value, other columns by their text. Among a million
    different rows, two collide with probability below 1e-7.
    """
    if sparse.issparse(X):
        return _sparse_fingerprints(X)
    if not isinstance(X, pd.DataFrame):
        X = np.asarray(X)
        X = X.reshape(len(X), -1) if X.ndim > 2 else X
    return apply_in_parts(_fingerprints, X)


def _fingerprints(X: Any) -> NDArray[np.uint64]:
    frame = X if isinstance(X, pd.DataFrame) else as_table(X)
    plain: dict[int, Any] = {}
    for i in range(frame.shape[1]):
        column = frame.iloc[:, i]
        if pd.api.types.is_numeric_dtype(column.dtype):
            # adding 0.0 turns -0.0 into 0.0
            plain[i] = column.to_numpy(dtype=float, na_value=np.nan) + 0.0
        else:
            plain[i] = _mark_column(column)
    hashed = pd.util.hash_pandas_object(pd.DataFrame(plain), index=False)
    return np.asarray(hashed, dtype=np.uint64)


def concat(first: Any, second: Any, names: str = "X_in and X_out") -> Any:
    """Stack two containers of records of the same kind."""
    check_alike(first, second, names)
    if isinstance(first, pd.DataFrame):
        return pd.concat([first, second], ignore_index=True)
    if sparse.issparse(first) or sparse.issparse(second):
        return sparse.vstack([first, second], format="csr")
    return np.concatenate([np.asarray(first), np.asarray(second)])


def check_alike(first: Any, second: Any, names: str) -> None:
    """Raise ValueError unless two containers of records have the same columns."""
    frames = isinstance(first, pd.DataFrame), isinstance(second, pd.DataFrame)
    if frames[0] != frames[1]:
        raise ValueError(
            f"{names} must both be DataFrames, or neither; got "
            f"{type(first).__name__} and {type(second).__name__}. Convert one of them."
        )
    if frames[0]:
        if list(first.columns) != list(second.columns):
            raise ValueError(
                f"{names} must have the same columns in the same order; got "
                f"{list(first.columns)[:20]} and {list(second.columns)[:20]}. Select the same "
                "columns from both."
            )
    elif first.shape[1:] != second.shape[1:]:
        raise ValueError(
            f"{names} have records of shapes {first.shape[1:]} and {second.shape[1:]}; expected "
            "equal shapes."
        )


def numeric_columns(X: Any) -> NDArray[np.bool_]:
    """Return a mask of the numeric columns."""
    if not isinstance(X, pd.DataFrame):
        return np.full(X.shape[1], X.dtype.kind in "biuf")
    return np.array([pd.api.types.is_numeric_dtype(dtype) for dtype in X.dtypes])


def encode(X: Any, others: Any) -> tuple[Float64Array, Float64Array, Callable[[Float64Array], Any]]:
    """Encode two samples of records as numeric matrices; also return the decoding function."""
    if np.ndim(X) != 2:
        raise ValueError(
            f"X has shape {np.shape(X)}; expected (n_records, n_features), since this attack "
            "changes single features. Reshape the records and put the model behind a pipeline step "
            "that restores the shape, or use LossThreshold, LiRA or RMIA."
        )
    alike = np.array_equal(numeric_columns(X), numeric_columns(others))
    if not alike or sparse.issparse(X) != sparse.issparse(others):
        raise ValueError(
            f"X is {_describe_columns(X)}, but the records given to fit are "
            f"{_describe_columns(others)}. Pass records of the same kind, with numbers in the same "
            "columns."
        )
    if sparse.issparse(X):
        return X.toarray(), others.toarray(), sparse.csr_matrix
    if not isinstance(X, pd.DataFrame) and X.dtype.kind in "biuf":
        return X.astype(float), np.asarray(others, dtype=float), lambda matrix: matrix
    frame, other_frame = as_table(X), as_table(others)
    number = numeric_columns(frame)
    values: dict[int, Any] = {}
    coded = np.empty((len(frame) + len(other_frame), frame.shape[1]))
    for i in range(frame.shape[1]):
        both = [sample.iloc[:, i].to_numpy() for sample in (frame, other_frame)]
        column = np.concatenate([np.asarray(part, dtype=object) for part in both])
        if number[i]:
            coded[:, i] = column.astype(float)
        else:
            coded[:, i], values[i] = pd.factorize(column, use_na_sentinel=False)

    def decode(matrix: Float64Array) -> Any:
        columns = [
            pd.Series(values[i][matrix[:, i].astype(int)]).astype(frame.dtypes.iloc[i])
            if i in values
            else pd.Series(matrix[:, i])
            for i in range(matrix.shape[1])
        ]
        decoded = pd.concat(columns, axis=1).set_axis(frame.columns, axis=1)
        return decoded if isinstance(X, pd.DataFrame) else decoded.to_numpy(dtype=object)

    return coded[: len(frame)], coded[len(frame) :], decode


def _describe_columns(X: Any) -> str:
    return f"of type {type(X).__name__} with numbers in {int(numeric_columns(X).sum())} columns"


def _mark_column(column: pd.Series[Any]) -> Any:
    """Return each value as a string, marked as number or text; repeated values are marked once."""
    if column.dtype == object:  # pandas may merge values that differ as text, as None and nan
        return _mark_values(column.to_numpy())
    try:
        codes, values = pd.factorize(column)
    except (TypeError, NotImplementedError):  # columns of lists, such as Arrow's
        return _mark_values(column.to_numpy(dtype=object))
    # missing values have the code -1, so their mark is the last one
    marks = _mark_values(np.append(values.to_numpy(dtype=object), np.nan))
    distinct, place = np.unique(marks, return_inverse=True)
    return pd.Categorical.from_codes(place[codes], categories=distinct.tolist())


def _mark_values(values: NDArray[np.object_]) -> NDArray[np.object_]:
    marked = [f"t{value}" if type(value) is str else _mark(value) for value in values]
    return np.array(marked, dtype=object)


def _mark(value: Any) -> str:
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        return f"n{float(value) + 0.0!r}"
    return f"t{value}"


def _sparse_fingerprints(X: Any) -> NDArray[np.uint64]:
    rows = sparse.csr_matrix(X, dtype=float, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    digests = []
    for start, stop in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        content = rows.indices[start:stop].astype(np.int64).tobytes()
        content += rows.data[start:stop].tobytes()
        digests.append(hashlib.blake2b(content, digest_size=8).digest())
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


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
            max_categories=max_categories,
            handle_unknown="infrequent_if_exist",
            sparse_output=False,
        )
        if texts.shape[1]:
            self._encoder.fit(texts)
        self._width = numbers.shape[1], texts.shape[1]

    def encode(self, X: Any, name: str = "X") -> NDArray[np.float64]:
        """Return the points of records, shape (n, n_dimensions)."""
        numbers, texts = split_alike(X, name, self._width, self._name)
        with np.errstate(over="ignore"):
            scaled = np.nan_to_num((_finite(numbers) - self._mean) / self._std)
        points = [np.clip(scaled, -_FAR, _FAR)]
        if texts.shape[1]:
            points.append(self._encoder.transform(texts) * self._weight)
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
    return numbers, np.asarray(np.vectorize(str, otypes=[object])(known))


class NearestRecords:
    """Find the nearest other records of a record, among at least two distinct ones.

    ``prints`` are the fingerprints of ``X``.

    **Guarantees.** No neighbour is a copy of the record. If the order of the records is independent
    of membership, so is the choice between equal distances.
    """

    def __init__(self, X: Any, prints: NDArray[np.uint64], n_neighbours: int) -> None:
        self._encoder = None  # sparse records are points already
        if not sparse.issparse(X):
            self._encoder = Coordinates(X, "fit", apart=math.sqrt(2), max_categories=MOST_VALUES)
        self._prints, self._sorted = prints, np.argsort(prints)
        self.n_neighbours = min(n_neighbours, num_samples(X) - 1)
        coordinates = self._encode(X)
        self._index = NearestNeighbors(n_neighbors=self.n_neighbours + 1).fit(coordinates)
        self._near = self._search(coordinates, prints)

    def find_nearest(self, X: Any, prints: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return the indices of the nearest records, of shape (n_records, n_neighbours)."""
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


def split_alike(
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


def _finite(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(numbers), numbers, np.nan)
