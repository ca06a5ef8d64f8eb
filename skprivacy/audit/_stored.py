"""Training records that a model carries inside it, found without knowing the model."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline

from .._sklearn import num_samples
from .._validation import all_numbers
from ..attacks._records import as_records, fingerprints
from ._contents import Contents, contents_of

__all__ = ["StoredRecords", "stored_records"]

Digests = NDArray[np.uint64]

# Models that predict from the records themselves, whatever form they keep them in.
IN_CONTEXT = ("TabPFNClassifier", "TabPFNRegressor", "TabICLClassifier", "TabICLRegressor")
MOST_VIEWS = 200  # a bagging of columns shows each of its parts another table


@dataclass(frozen=True)
class StoredRecords:
    """How many records stand in a model, and where.

    Attributes
    ----------
    n_train : int
        Number of training records found.
    n_new : int
        Number of other records found that equal no training record: matches by chance.
    places : tuple of str
        The attributes that hold them, as far as they are known.
    in_context : str
        The class that is known to carry records, in whatever form; empty without one.
    """

    n_train: int
    n_new: int
    places: tuple[str, ...]
    in_context: str


def stored_records(contents: Contents, X_train: Any, X_new: Any, common: int) -> StoredRecords:
    """Count the training records that stand in the arrays of a model.

    Parameters
    ----------
    contents : Contents
    X_train, X_new : array-like of shape (n_train, n_features) and (n_new, n_features)
        ``X_new`` may be None.
    common : int
        A row that so many records share identifies none of them and is not counted.

    Notes
    -----
    Rows are compared in single precision, as they are given and as every pipeline, transformer and
    bagging inside the model shows them to what follows. A row of equal numbers, such as zeros, is
    not counted: arrays hold such rows for other reasons.

    **Edge cases.** A single column is looked for only in arrays that hold mostly its values: one
    number matches by chance. Records that are kept in another form, such as compressed or
    encrypted, are not found.
    """
    known = _Digested(contents.arrays)
    own = [_Table.of(view) for view in _tables(X_train, contents.parts)]
    train = np.zeros(num_samples(X_train), bool)
    places: dict[str, None] = {}
    for table in own:
        for array, digests in known.like(table):
            hits = table.identifying(common) & np.isin(table.digests, digests)
            train |= hits
            places |= dict.fromkeys(_places(array, contents.parts) if hits.any() else [])
    strangers = []
    if X_new is not None:
        strangers = [_Table.of(view) for view in _tables(X_new, contents.parts)]
    new = np.zeros(0 if X_new is None else num_samples(X_new), bool)
    for table, shown in zip(strangers, own, strict=False):
        unknown = table.identifying(common) & ~np.isin(table.digests, shown.digests)
        for _, digests in known.like(shown):
            new |= unknown & np.isin(table.digests, digests)
    names = [type(part).__name__ for part in contents.parts]
    in_context = next((name for name in names if name in IN_CONTEXT), "")
    return StoredRecords(int(train.sum()), int(new.sum()), tuple(places), in_context)


@dataclass(frozen=True)
class _Table:
    """Records as a part of the model sees them, with a fingerprint of each."""

    rows: Any
    digests: Digests

    @classmethod
    def of(cls, rows: Any) -> _Table:
        return cls(rows, _digest(rows))

    @property
    def width(self) -> int:
        return int(self.rows.shape[1])

    def identifying(self, common: int) -> NDArray[np.bool_]:
        """Return which rows fewer than ``common`` records share, and whose numbers differ."""
        _, group, counts = np.unique(self.digests, return_inverse=True, return_counts=True)
        rare = counts[group] < common
        if sparse.issparse(self.rows):
            return rare & (np.diff(self.rows.indptr) > 0)
        if self.rows.dtype == object or self.width == 1:
            return rare
        return rare & (self.rows != self.rows[:, :1]).any(axis=1)


class _Digested:
    """The rows of arrays, cut to the width of the records that are looked for."""

    def __init__(self, arrays: list[Any]) -> None:
        self._arrays = [array for array in arrays if _values(array) is not None]
        self._cut: dict[int, list[tuple[Any, Digests]]] = {}

    def like(self, table: _Table) -> list[tuple[Any, Digests]]:
        """Return the arrays that can be read as such rows, with the digests of these."""
        width = table.width
        if width not in self._cut:
            self._cut[width] = [
                (array, np.concatenate([_digest(rows) for rows in cut]))
                for array in self._arrays
                if (cut := list(_cut(_values(array), width)))
            ]
        if width > 1:
            return self._cut[width]
        return [held for held in self._cut[1] if _mostly(held[1], table.digests)]


def _mostly(digests: Digests, own: Digests) -> bool:
    return len(digests) > 1 and float(np.isin(digests, own).mean()) > 0.5


def _values(array: Any) -> Any:
    """Return an array that may hold records; None for one that cannot."""
    if isinstance(array, (pd.DataFrame, pd.Series)):
        return _table(array.to_frame() if isinstance(array, pd.Series) else array)
    if sparse.issparse(array):
        return array if array.dtype.kind in "biuf" else None
    kinds = "biufO" if array.ndim == 2 else "biuf"
    return array if array.dtype.kind in kinds and array.size else None


def _cut(values: Any, width: int) -> Iterator[Any]:
    if sparse.issparse(values):
        if values.shape[1] == width:
            yield sparse.csr_matrix(values)
        return
    if values.size % width:
        return
    if values.dtype != object or values.shape[1] == width:
        yield values.reshape(-1, width)
    if values.ndim == 2 and values.shape[0] == width != values.shape[1] and values.dtype != object:
        yield values.T


def _digest(rows: Any) -> Digests:
    """Return a fingerprint of each row, the same for a sparse row and a dense one."""
    if sparse.issparse(rows):
        parts = [rows[i : i + 1000].toarray() for i in range(0, max(rows.shape[0], 1), 1000)]
        return np.concatenate([_digest(part) for part in parts])
    with np.errstate(over="ignore"):
        values = rows if rows.dtype == object else rows.astype(np.float32)
    return fingerprints(values)


def _tables(X: Any, parts: list[Any]) -> Iterator[Any]:
    """Yield the records as they are, and as the parts of a model show them to one another."""
    seen: dict[int, Any] = {}
    for view in _views(as_records(X), parts):
        if id(view) not in seen and (table := _table(view)) is not None:
            seen[id(view)] = view
            yield table
        if len(seen) > MOST_VIEWS:
            return


def _views(X: Any, parts: list[Any]) -> Iterator[Any]:
    yield X
    entered: set[int] = set()
    for part in parts:
        if id(part) in entered:
            continue
        inside: list[tuple[Any, Any]] = []  # what is shown, and to what
        if isinstance(part, Pipeline):
            inside = list(_steps(part, X))
        elif getattr(part, "estimators_features_", None) is not None:
            inside = list(_columns(part, X))
        elif hasattr(part, "transform") and not hasattr(part, "predict"):
            inside = [(view, None) for view in _tried(part, X)]
        if inside:
            entered |= {id(inner) for inner in contents_of(part).parts}
        for view, inner in inside:
            yield from _views(view, [p for p in contents_of(inner).parts if p is not part])


def _steps(pipeline: Any, X: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each step of a pipeline with the records that it sees."""
    for _, step in pipeline.steps:
        if step is None or isinstance(step, str):
            continue
        yield X, step
        if not (after := _tried(step, X)):
            return
        [X] = after
    yield X, None


def _columns(bagging: Any, X: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each part of a bagging with the columns that it sees."""
    table = _table(X)
    for columns, part in zip(bagging.estimators_features_, bagging.estimators_, strict=True):
        every = np.array_equal(columns, np.arange(0 if table is None else table.shape[1]))
        if table is not None:
            yield (X if every else table[:, columns]), part


def _tried(step: Any, view: Any) -> list[Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            after = step.transform(view)
    except Exception:  # a step that was made for other columns, or is not fitted
        return []
    return [after] if hasattr(after, "shape") else []


def _table(view: Any) -> Any:
    """Return records as an array of two dimensions or a CSR matrix; None if they are neither."""
    if sparse.issparse(view):
        return sparse.csr_matrix(view)
    if isinstance(view, pd.DataFrame):
        return view.to_numpy(dtype=float if all_numbers(view) else object, na_value=np.nan)
    values = np.asarray(view)
    if values.ndim < 2 or not values.size or values.dtype.kind not in "biufOUS":
        return None
    flat = values.reshape(len(values), -1)
    return flat if flat.dtype.kind in "biuf" else flat.astype(object)


def _places(array: Any, parts: list[Any]) -> list[str]:
    """Return the attributes that hold an array; the parts alone if none holds it directly."""
    return [
        f"{type(part).__name__}.{name}"
        for part in parts
        for name, value in getattr(part, "__dict__", {}).items()
        if value is array
    ]
