"""Search for training records inside a model's arrays, without knowledge of its class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import binom

from .._sklearn import num_samples
from ..attacks._records import fingerprints
from ..metrics import clopper_pearson
from ._contents import Contents
from ._views import as_table, iter_tables

__all__ = ["StoredRecords", "stored_records"]

Digests = NDArray[np.uint64]
Mask = NDArray[np.bool_]

# Models that predict from the training records themselves, in whatever form they keep them.
IN_CONTEXT = ("TabPFNClassifier", "TabPFNRegressor", "TabICLClassifier", "TabICLRegressor")
# Artificial rows that estimate how often such rows are in an array by chance.
MOST_STRANGERS = 1000
FEWEST_STRANGERS = 20
MOST_NUMBERS = 10**7
RARE = 1e-5  # assumed chance that a random row is a record, if none of the artificial rows is one
SURE = 1e-4  # error probability of the decision that an array holds records


@dataclass(frozen=True)
class StoredRecords:
    """Training records found in a model.

    Attributes
    ----------
    n_train : int
        Number of training records found.
    places : tuple of str
        Attributes that hold them, as far as known.
    in_context : str
        Class that is known to carry records in any form; empty if there is none.
    """

    n_train: int
    places: tuple[str, ...]
    in_context: str


def stored_records(contents: Contents, X_train: Any, X_new: Any, common: int) -> StoredRecords:
    """Count the training records in the arrays of a model.

    Rows are compared in single precision: as given, and as every pipeline, transformer and bagging
    inside the model passes them on. Three kinds of rows are not counted: rows that at least
    ``common`` records share, which identify none of them; rows of equal numbers, such as zeros,
    which arrays hold for other reasons; and single whole numbers.

    Small whole numbers are in arrays by chance: counts, codes, the children of a tree's nodes. So
    an array counts only if it holds training records more often than strangers: new records, and
    rows in which each number comes from another training record. Compressed or encrypted records
    are not found.
    """
    known = _RowDigests(contents.arrays)
    new_views = iter(()) if X_new is None else iter_tables(X_new, contents.parts)
    train = np.zeros(num_samples(X_train), bool)
    places: dict[str, None] = {}
    numbers_alone = False
    for number, view in enumerate(iter_tables(X_train, contents.parts)):
        new = next(new_views, None)
        numbers_alone |= number == 0 and _is_one_whole_number(view)
        arrays = known.arrays_like(view)
        if not arrays or (numbers_alone and view.shape[1] == 1):
            continue
        table = _Table(view, _digest(view))
        found = [
            (array, digests, inside)
            for array, digests in arrays
            if (inside := np.isin(table.digests, digests)).any()
        ]
        if not found:  # as in most models
            continue
        identifying, chance = table.find_identifying(common), table.chance(new)
        for array, digests, inside in found:
            hits = identifying & inside
            if hits.any() and not chance.explains(table, identifying, hits, digests):
                train |= hits
                places |= dict.fromkeys(_places(array, contents.parts))
    names = [type(part).__name__ for part in contents.parts]
    in_context = next((name for name in names if name in IN_CONTEXT), "")
    return StoredRecords(int(train.sum()), tuple(places), in_context)


@dataclass(frozen=True)
class _Table:
    """Records as one part of the model sees them, with a fingerprint of each."""

    rows: Any
    digests: Digests

    @property
    def width(self) -> int:
        return int(self.rows.shape[1])

    def find_identifying(self, common: int) -> Mask:
        """Return the rows that fewer than ``common`` records share, and whose numbers differ."""
        _, group, counts = np.unique(self.digests, return_inverse=True, return_counts=True)
        rare = counts[group] < common
        if sparse.issparse(self.rows):
            return rare & (np.diff(self.rows.indptr) > 0)
        if self.rows.dtype == object or self.width == 1:
            return rare
        return rare & (self.rows != self.rows[:, :1]).any(axis=1)

    def chance(self, new: Any) -> _Chance:
        """Return the rows that look like records of this table and are none."""
        rng = np.random.default_rng(0)
        n = min(MOST_STRANGERS, max(MOST_NUMBERS // self.width, 1))
        drawn = self.rows[rng.integers(0, len(self.digests), n)]
        drawn = drawn.toarray() if sparse.issparse(drawn) else drawn
        other = np.take_along_axis(drawn, rng.integers(0, n, drawn.shape), axis=0)
        if self.width == 1 and drawn.dtype != object:  # no other columns to mix: use averages
            other = (drawn + other) / 2
        mixed = _digest(other)
        likely = np.isin(mixed, self.digests)
        others = [mixed[~likely]]
        if new is not None and new.shape[1] == self.width:
            others.append(np.setdiff1d(_digest(new), self.digests))
        return _Chance(np.unique(np.concatenate(others)), float(likely.mean()))


@dataclass(frozen=True)
class _Chance:
    """Rows that look like records but are none, and the chance that such a row is a record."""

    strangers: Digests
    likely: float

    def explains(self, table: _Table, identifying: Mask, hits: Mask, digests: Digests) -> bool:
        """Return whether chance explains that an array holds these rows.

        Chance is rejected in two cases. Either the array holds mainly records, more than random
        rows would be, and hardly any strangers (binomial test). Or a far larger share of the
        records than of the strangers is in it (Clopper-Pearson intervals). If every possible row is
        a record, there are no strangers, and an array of records must hold most of them.
        """
        n, found = int(identifying.sum()), int(hits.sum())
        if len(self.strangers) < FEWEST_STRANGERS:
            return 2 * found <= n
        by_chance = int(np.isin(self.strangers, digests).sum())
        rows = np.unique(digests)
        records = int(np.isin(rows, table.digests).sum())
        if 2 * records > len(rows) and 5 * by_chance / len(self.strangers) <= found / n:
            return bool(binom.sf(records - 1, len(rows), max(self.likely, RARE)) >= SURE)
        high = clopper_pearson(by_chance, len(self.strangers), SURE)[1]
        return bool(clopper_pearson(found, n, SURE)[0] <= high)


def _is_one_whole_number(view: Any) -> bool:
    """Return whether a record is a single whole number: every array of counts holds such rows."""
    if view.shape[1] > 1 or sparse.issparse(view) or view.dtype == object:
        return False
    return bool((view == np.round(view)).all())


class _RowDigests:
    """Fingerprints of the arrays' rows, cut to the width of the records."""

    def __init__(self, arrays: list[Any]) -> None:
        self._values = [
            (array, values) for array in arrays if (values := _values(array)) is not None
        ]
        self._cut: dict[tuple[int, bool], list[tuple[Any, Digests]]] = {}

    def arrays_like(self, view: Any) -> list[tuple[Any, Digests]]:
        """Return each array that can be read as rows like those of a view, with their digests.

        Arrays of one row are joined, because a model may hold one array per record.
        """
        width, text = int(view.shape[1]), view.dtype == object
        if (width, text) not in self._cut:
            held = [(array, v) for array, v in self._values if (v.dtype == object) is text]
            cut = [(array, _digest(rows)) for array, v in held for rows in _as_rows(v, width)]
            several = [(array, digests) for array, digests in cut if len(digests) > 1]
            single = [digests for _, digests in cut if len(digests) == 1]
            united = np.unique(np.concatenate(single)) if single else np.zeros(0, np.uint64)
            self._cut[width, text] = several + [(None, united)] * (len(united) > 1)
        return self._cut[width, text]


def _values(array: Any) -> Any:
    """Return an array that may hold records; None otherwise."""
    if isinstance(array, (pd.DataFrame, pd.Series)):
        return as_table(array.to_frame() if isinstance(array, pd.Series) else array)
    if sparse.issparse(array):
        return array if array.dtype.kind in "biuf" else None
    kinds = "biufO" if array.ndim == 2 else "biuf"
    return array if array.dtype.kind in kinds and array.size else None


def _as_rows(values: Any, width: int) -> Iterator[Any]:
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
    """Return a fingerprint of each row, the same for sparse and dense rows."""
    if sparse.issparse(rows):
        parts = [rows[i : i + 1000].toarray() for i in range(0, max(rows.shape[0], 1), 1000)]
        return np.concatenate([_digest(part) for part in parts])
    with np.errstate(over="ignore"):
        values = rows if rows.dtype == object else rows.astype(np.float32)
    return fingerprints(values)


def _places(array: Any, parts: list[Any]) -> list[str]:
    """Return the attributes that hold an array directly; empty if there are none."""
    return [
        f"{type(part).__name__}.{name}"
        for part in parts
        for name, value in getattr(part, "__dict__", {}).items()
        if value is array
    ]
