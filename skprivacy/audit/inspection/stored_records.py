"""Training records stored inside a fitted model, found without knowledge of its class.

All arrays and objects of the model are searched at any depth, for the records as each part of a
pipeline or an ensemble sees them. Start reading at :func:`stored_records`.
"""

from __future__ import annotations

import logging
import numbers
import pickle
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import binom
from sklearn.pipeline import Pipeline

from ..._input_data import all_numbers
from ..._validation import num_samples
from ...attacks.record_tables import fingerprints
from ...metrics.rates import clopper_pearson

_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, logging.Logger)
_WORKING = ("fit", "predict", "transform", "named_parameters")  # an object with one is a part
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
MOST_VIEWS = 200  # a bagging of columns shows each of its parts a different table


@dataclass(frozen=True)
class StoredRecords:
    """Training records found in a model."""

    n_train: int
    places: tuple[str, ...]  # attributes that hold them, as far as known
    in_context: str  # class that is known to carry records in any form; empty if there is none


def stored_records(contents: Contents, X_train: Any, X_test: Any, common: int) -> StoredRecords:
    """Count the training records in the arrays of a model.

    Rows are compared in single precision: as given, and as transformed by each pipeline,
    transformer and bagging inside the model. Rows that at least ``common`` records share, rows of
    equal numbers and single whole numbers are not counted: they identify nobody.

    Rows of small whole numbers are in arrays by chance. So an array counts only if it holds
    training records more often than other rows: new records, and rows in which each number comes
    from another training record. Compressed or encrypted records are not found.
    """
    known = _RowDigests(contents.arrays)
    new_views = iter(()) if X_test is None else iter_tables(X_test, contents.parts)
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
                places |= dict.fromkeys(_list_places(array, contents.parts))
    names = [type(part).__name__ for part in contents.parts]
    in_context = next((name for name in names if name in IN_CONTEXT), "")
    return StoredRecords(int(train.sum()), tuple(places), in_context)


@dataclass
class Contents:
    """Arrays and objects found inside a model."""

    arrays: list[Any] = field(default_factory=list)  # each once; nested lists of numbers too
    parts: list[Any] = field(default_factory=list)  # estimators and modules, outer ones first
    complete: bool = True  # whether the whole model could be searched


def collect_contents(model: Any) -> Contents:
    """Return all arrays and parts of a model, from its attributes and from its pickle."""
    collector = _Collector()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            collector.dump(model)
        except RecursionError:
            collector.found.complete = False
    return collector.found


def iter_tables(X: Any, parts: list[Any]) -> Iterator[Any]:
    """Yield the records as given, and as the parts of a model pass them to each other."""
    seen: dict[int, Any] = {}
    for view in _view_all(X, parts):
        if id(view) not in seen and (table := as_table(view)) is not None:
            seen[id(view)] = view
            yield table
        if len(seen) > MOST_VIEWS:
            return


def as_table(view: Any) -> Any:
    """Return records as a two-dimensional array or CSR matrix; None if they are neither."""
    if sparse.issparse(view):
        return sparse.csr_matrix(view)
    if isinstance(view, pd.DataFrame):
        return view.to_numpy(dtype=float if all_numbers(view) else object, na_value=np.nan)
    values = np.asarray(view)
    if values.ndim < 2 or not values.size or values.dtype.kind not in "biufOUS":
        return None
    flat = values.reshape(len(values), -1)
    return flat if flat.dtype.kind in "biuf" else flat.astype(object)


class _NullFile:
    def write(self, data: Any) -> int:
        return len(data)


class _Collector(pickle.Pickler):
    """Pickler that collects arrays and parts; what cannot be pickled gives its attributes."""

    def __init__(self) -> None:
        super().__init__(_NullFile(), protocol=5)
        self.found = Contents()
        self._seen: dict[int, Any] = {}  # references, so that no id is reused

    def persistent_id(self, value: Any) -> int | None:
        """Collect a value if it is an array or a part; return 1 if it need not be searched."""
        if isinstance(value, _CODE):
            return 1
        if isinstance(value, (np.ndarray, pd.DataFrame, pd.Series)) or sparse.issparse(value):
            self._keep(value)
            return None if isinstance(value, np.ndarray) and value.dtype.hasobject else 1
        if type(value).__module__.startswith("torch") and hasattr(value, "detach"):
            self._keep(value.detach().cpu().float().numpy(), of=value)
            return 1
        if isinstance(value, (list, tuple)):
            self._keep_rows(value)
        elif any(hasattr(type(value), name) for name in _WORKING) and id(value) not in self._seen:
            self._seen[id(value)] = value
            self.found.parts.append(value)
        return None

    def reducer_override(self, value: Any) -> Any:
        inside = [getattr(value, "__dict__", None)]
        try:
            reduced = value.__reduce_ex__(5)
            if isinstance(reduced, tuple):
                arguments, *states = reduced[1:]
                held = (list(s) if hasattr(s, "__next__") else s for s in states)
                inside += [arguments, *held]
        except Exception:  # a class without pickle support may raise anything
            pass
        return list, (inside,)

    def _keep(self, array: Any, of: Any = None) -> None:
        held = array if of is None else of
        if id(held) not in self._seen:
            self._seen[id(held)] = held
            self.found.arrays.append(array)

    def _keep_rows(self, value: Any) -> None:
        """Collect a list of lists of numbers as an array."""
        first = value[0] if value else None
        if isinstance(first, (list, tuple)) and first and isinstance(first[0], numbers.Real):
            try:
                self._keep(np.array(value, dtype=float), of=value)
            except (TypeError, ValueError):  # lists of different lengths, or with other values
                return


@dataclass(frozen=True)
class _Table:
    """Records as one part of the model sees them, with a fingerprint of each."""

    rows: Any
    digests: Digests

    @property
    def width(self) -> int:
        return int(self.rows.shape[1])

    def find_identifying(self, common: int) -> Mask:
        """Return the rows that fewer than ``common`` records share, but no constant rows."""
        _, group, counts = np.unique(self.digests, return_inverse=True, return_counts=True)
        rare = counts[group] < common
        if sparse.issparse(self.rows):
            return rare & (np.diff(self.rows.indptr) > 0)
        if self.rows.dtype == object or self.width == 1:
            return rare
        return rare & (self.rows != self.rows[:, :1]).any(axis=1)

    def chance(self, new: Any) -> _Chance:
        """Return the rows that look like records of this table, but are not."""
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
    """Rows that look like records, but are not, and the chance that such a row is one."""

    strangers: Digests
    likely: float

    def explains(self, table: _Table, identifying: Mask, hits: Mask, digests: Digests) -> bool:
        """Return whether chance explains that an array holds these rows.

        Chance is rejected in two cases. Either the array holds mainly records, more than random
        rows would be, and hardly any strangers (binomial test). Or a far larger share of the
        records than of the strangers is in it (Clopper-Pearson intervals). If every possible row is
        a record, an array of records must hold most of them.
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
            (array, values) for array in arrays if (values := _read_values(array)) is not None
        ]
        self._cut: dict[tuple[int, bool], list[tuple[Any, Digests]]] = {}

    def arrays_like(self, view: Any) -> list[tuple[Any, Digests]]:
        """Return each array with digests of rows like a view's; arrays of one row are joined."""
        width, text = int(view.shape[1]), view.dtype == object
        if (width, text) not in self._cut:
            held = [(array, v) for array, v in self._values if (v.dtype == object) is text]
            cut = [(array, _digest(rows)) for array, v in held for rows in _as_rows(v, width)]
            several = [(array, digests) for array, digests in cut if len(digests) > 1]
            single = [digests for _, digests in cut if len(digests) == 1]
            united = np.unique(np.concatenate(single)) if single else np.zeros(0, np.uint64)
            self._cut[width, text] = several + [(None, united)] * (len(united) > 1)
        return self._cut[width, text]


def _read_values(array: Any) -> Any:
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


def _list_places(array: Any, parts: list[Any]) -> list[str]:
    """Return the attributes that hold an array directly; empty if there are none."""
    return [
        f"{type(part).__name__}.{name}"
        for part in parts
        for name, value in getattr(part, "__dict__", {}).items()
        if value is array
    ]


def _view_all(X: Any, parts: list[Any]) -> Iterator[Any]:
    yield X
    entered: set[int] = set()
    for part in parts:
        if id(part) in entered:
            continue
        inside: list[tuple[Any, Any]] = []  # pairs: a view, and the part that sees it
        if isinstance(part, Pipeline):
            inside = list(_iter_steps(part, X))
        elif getattr(part, "estimators_features_", None) is not None:
            inside = list(_iter_columns(part, X))
        elif hasattr(part, "transform") and not hasattr(part, "predict"):
            inside = [(view, None) for view in _try_transform(part, X)]
        if inside:
            entered |= {id(inner) for inner in collect_contents(part).parts}
        for view, inner in inside:
            yield from _view_all(view, [p for p in collect_contents(inner).parts if p is not part])


def _iter_steps(pipeline: Any, X: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each step of a pipeline with the records that it sees."""
    for _, step in pipeline.steps:
        if step is None or isinstance(step, str):
            continue
        yield X, step
        if not (after := _try_transform(step, X)):
            return
        [X] = after
    yield X, None


def _iter_columns(bagging: Any, X: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each part of a bagging with the columns that it sees."""
    table = as_table(X)
    for columns, part in zip(bagging.estimators_features_, bagging.estimators_, strict=True):
        every = np.array_equal(columns, np.arange(0 if table is None else table.shape[1]))
        if table is not None:
            yield (X if every else table[:, columns]), part


def _try_transform(step: Any, view: Any) -> list[Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            after = step.transform(view)
    except Exception:  # a step for other columns, or one that is not fitted
        return []
    return [after] if hasattr(after, "shape") else []
