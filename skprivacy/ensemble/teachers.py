"""Teachers of PATE: one model for each partition of private records, and their votes.

A partition must not depend on the data. Partitioned by position, removing a record would move
others to other teachers, so only data sets of the same size are neighbours. Partitioned by a keyed
hash of each record, removing a record changes one teacher, and replacing one changes two.

Start reading at :func:`count_votes`.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils.parallel import Parallel, delayed

from .._clones import seed_globally, shadow_clone, trial_fit
from .._environment import limit_workers, one_thread, single_thread
from .._groups import Groups
from .._sklearn import safe_indexing
from .._stacked import is_mlp, resolve_device, train_alone, train_isolated_networks
from .._validation import num_samples

# By partition and relation: teachers that a neighbour changes, hence votes of a query it moves.
MOVED_VOTES = {
    ("index", "zero_out"): 1,
    ("index", "replace_one"): 1,
    ("hash", "add_remove"): 1,
    ("hash", "zero_out"): 1,
    ("hash", "replace_one"): 2,
}
PARTITIONS = ("hash", "index")
_ROWS_PER_SLICE = 4096  # hashed at a time
_LARGEST_EXACT_INTEGER = 2.0**53  # float64 holds all integers up to it
_N_TRIAL_RECORDS = 200  # public records on which a teacher is tried before anything is charged
_teacher_lock = threading.RLock()  # is trained at a time in a process


def count_votes(
    teacher: Any,
    X: Any,
    y: NDArray[Any],
    parts: NDArray[np.int64],
    n_teachers: int,
    queries: Any,
    classes: NDArray[Any],
    seeds: NDArray[np.int64],
    n_jobs: int | None = None,
    device: str = "cpu",
) -> NDArray[np.int64]:
    """Return the number of teachers that vote for each class of each query."""
    votes = collect_votes(teacher, X, y, parts, n_teachers, queries, classes, seeds, n_jobs, device)
    counts = np.zeros((num_samples(queries), len(classes)), np.int64)
    for vote in votes:
        counts[np.arange(len(counts)), vote] += 1
    return counts


def collect_votes(
    teacher: Any,
    X: Any,
    y: NDArray[Any],
    parts: NDArray[np.int64],
    n_teachers: int,
    queries: Any,
    classes: NDArray[Any],
    seeds: NDArray[np.int64],
    n_jobs: int | None = None,
    device: str = "cpu",
) -> list[NDArray[np.int64]]:
    """Return each teacher's class of each query, as an index.

    A record moves at most one vote of each query for each partition that it changes: a teacher's
    votes depend only on its partition and on public facts, to the last bit. Neither the records of
    another partition nor their number reach the teacher. Not covered are a teacher that kills its
    process or keeps state outside itself, and a linear algebra library whose rounding depends on
    memory addresses.
    """
    train = _training_function(teacher)
    order = np.argsort(parts, kind="stable")
    ends = np.searchsorted(parts[order], np.arange(1, n_teachers))
    rows = np.split(order, ends)
    if (gpu := _device_of_teachers(device)) is not None:
        own_parts = [(safe_indexing(X, own), y[own]) for own in rows]
        members = train_isolated_networks(
            teacher, own_parts, np.shape(queries)[1], classes, seeds, gpu
        )
        return [
            _vote(partial(_keep_fitted, member), teacher, *part, queries, classes, int(seed),
                  i % len(classes))
            for i, (member, part, seed) in enumerate(zip(members, own_parts, seeds, strict=True))
        ]  # fmt: skip
    # The number of threads decides how sums round, so it must not depend on the records.
    with single_thread():
        votes: list[NDArray[np.int64]] = Parallel(n_jobs=limit_workers(n_jobs, len(rows)))(
            delayed(_vote)(
                train, teacher, safe_indexing(X, own), y[own], queries, classes, int(seeds[i]),
                i % len(classes),
            )
            for i, own in enumerate(rows)
        )  # fmt: skip
    return votes


def partition_by_index(n: int, n_teachers: int, random: np.random.RandomState) -> NDArray[np.int64]:
    """Return the teacher of each record, by shuffled position; ``n`` is public."""
    teachers = np.empty(n, np.int64)
    teachers[random.permutation(n)] = np.arange(n) % n_teachers
    return teachers


def partition_by_hash(
    X: Any, y: Any, n_teachers: int, random: np.random.RandomState
) -> NDArray[np.int64]:
    """Return the teacher of each record, by a keyed hash of the record."""
    key = random.bytes(32)  # independent of the data
    parts = [X] if y is None else [X, y]
    digests = b"".join(
        hashlib.blake2b(row, digest_size=8, key=key).digest()
        for start in range(0, num_samples(X), _ROWS_PER_SLICE)
        for row in _row_bytes([_slice_rows(part, start) for part in parts])
    )
    # The bias of a remainder of 64 random bits is below n_teachers / 2**64.
    return (np.frombuffer(digests, np.uint64) % np.uint64(n_teachers)).astype(np.int64)


def partition_by_group(
    groups: Groups, n_teachers: int, random: np.random.RandomState
) -> NDArray[np.int64]:
    """Return the teacher of each record, drawn by a keyed hash of the name of its group."""
    # By the name alone: the group's index would depend on other groups. Equal names may differ as
    # text, such as one moment in two time zones; one of them is hashed for all.
    return partition_by_hash(pd.Series(groups.names), None, n_teachers, random)[groups.codes]


def check_teacher(teacher: Any, public: Any, classes: NDArray[Any], device: str = "cpu") -> None:
    """Fit a teacher to public records with made-up labels, and raise if it fails."""
    # Later errors may be due to a private record and are not reported: all teachers would vote by a
    # public rule, and nobody would know.
    gpu = _device_of_teachers(device)
    if gpu is not None and (isinstance(teacher, Pipeline) or not is_mlp(teacher)):
        raise ValueError(
            f"device={device!r} needs teacher=MLPClassifier(solver='adam', early_stopping=False), "
            f"got {teacher!r}; nothing was charged. Use device='cpu', or transform the records "
            "beforehand by public facts."
        )
    some = safe_indexing(public, np.arange(_N_TRIAL_RECORDS) % num_samples(public))
    made_up = classes[np.arange(_N_TRIAL_RECORDS) % 2]
    remedy = (
        "Pass one that takes these records, for instance a pipeline that begins with "
        "SchemaTransformer."
    )
    with (
        _seed_shared_generators(0),
        one_thread(math.prod(np.shape(some))),
        trial_fit(f"teacher={teacher!r}", "public records with made-up labels", remedy),
    ):
        train = _training_function(teacher)
        if gpu is not None:
            part, width = [(some, made_up)], np.shape(some)[1]
            train = partial(
                _keep_fitted,
                *train_isolated_networks(teacher, part, width, classes, [0], gpu),
            )
        answers = train(teacher, some, made_up, classes, 0).predict(some)
    if np.shape(answers) != (_N_TRIAL_RECORDS,) or not np.isin(answers, classes).all():
        raise ValueError(
            f"teacher={teacher!r} does not predict one of classes={classes.tolist()!r} for each "
            "record. Nothing was charged. Pass a classifier."
        )


def _slice_rows(values: Any, start: int) -> pd.DataFrame:
    """Return some rows as a frame."""
    if isinstance(values, (pd.DataFrame, pd.Series)):
        return pd.DataFrame(values.iloc[start : start + _ROWS_PER_SLICE]).reset_index(drop=True)
    return pd.DataFrame(np.asarray(values)[start : start + _ROWS_PER_SLICE])


def _row_bytes(frames: list[pd.DataFrame]) -> Iterator[bytes]:
    """Yield each row as bytes, equal for equal values of any numeric type.

    The bytes depend on the row alone: a record that turns a column from numbers into objects leaves
    the bytes of the others as they were.
    """
    frame = pd.concat(frames, axis=1)
    plain = np.array([_is_plain(dtype) for dtype in frame.dtypes])
    numbers = np.full(frame.shape, np.nan)
    numbers[:, plain] = frame.loc[:, plain].to_numpy(np.float64, na_value=np.nan)
    texts: list[list[str]] = [[] for _ in range(len(frame))]
    for j, (_, column) in enumerate(frame.items()):
        if not plain[j] or _may_exceed_floats(column):
            for i, value in enumerate(column.to_numpy(object)):
                numbers[i, j], rest = _split_number(value)
                if rest:
                    texts[i].append(f"{j}:{rest}")
    numbers += 0.0  # no -0.0
    numbers[np.isnan(numbers)] = np.nan  # one bit pattern for all NaN
    for row, text in zip(numbers, texts, strict=True):
        yield row.tobytes() + "\x1f".join(text).encode()


def _is_plain(dtype: Any) -> bool:
    is_complex = pd.api.types.is_complex_dtype(dtype)
    return pd.api.types.is_numeric_dtype(dtype) and not is_complex


def _may_exceed_floats(column: pd.Series) -> bool:
    """Return whether some number of a column has more digits than a float holds."""
    if not pd.api.types.is_integer_dtype(column.dtype):
        return False
    return bool(((column >= _LARGEST_EXACT_INTEGER) | (column <= -_LARGEST_EXACT_INTEGER)).any())


def _split_number(value: Any) -> tuple[float, str]:
    """Return a value as a float, NaN for non-numbers, and the remainder as text."""
    value = value.item() if isinstance(value, np.generic) else value
    value = value.real if isinstance(value, complex) and value.imag == 0 else value
    if value is pd.NA:
        return np.nan, ""
    if not isinstance(value, (Real, Decimal)):
        return np.nan, repr(value)
    try:
        number = float(value)
        if not math.isfinite(number):
            return number, ""
        rest = Fraction(value) - Fraction(number)  # type: ignore[arg-type]  # or TypeError
    except (TypeError, ValueError, OverflowError):
        return np.nan, repr(value)
    return number, str(rest) if rest else ""


def _vote(
    train: Callable[..., Any],
    teacher: Any,
    X: Any,
    y: NDArray,
    queries: Any,
    classes: NDArray,
    seed: int,
    otherwise: int,
) -> NDArray[np.int64]:
    """Return the index of each query's class, ``otherwise`` if no teacher can be trained."""
    n = num_samples(queries)
    present = np.unique(y)
    if len(present) < 2:
        only = int(np.searchsorted(classes, present[0])) if len(present) else otherwise
        return np.full(n, only, np.int64)
    with _seed_shared_generators(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            answers = np.asarray(train(teacher, X, y, classes, seed).predict(queries))
            found = np.searchsorted(classes, answers)
        except Exception:  # any error may be due to a private record, so none is reported
            return np.full(n, otherwise, np.int64)
    if found.shape != (n,):
        return np.full(n, otherwise, np.int64)
    known = np.minimum(found, len(classes) - 1)
    return np.where(classes[known] == answers, known, otherwise).astype(np.int64)


def _keep_fitted(member: Any, *_: Any) -> Any:
    """Return a teacher that was trained before; raise if its partition trained none."""
    if member is None:
        raise ValueError("This partition trains no teacher.")
    return member


def _device_of_teachers(device: str) -> str | None:
    """Return the torch device on which to train all teachers at once; None for the CPU."""
    return None if device == "cpu" else resolve_device(device)


def _training_function(teacher: Any) -> Callable[..., Any]:
    """Return the function that trains such a teacher: ``train(teacher, X, y, classes, seed)``."""
    last = teacher.steps[-1][1] if isinstance(teacher, Pipeline) else teacher
    return train_alone if isinstance(last, MLPClassifier) and is_mlp(teacher) else _fit_clone


def _fit_clone(teacher: Any, X: Any, y: NDArray, classes: NDArray, seed: int) -> Any:
    return shadow_clone(teacher, seed).fit(X, y)


def _renew_lock() -> None:
    """Make a new lock: a forked process has no thread that would release the old one."""
    global _teacher_lock
    _teacher_lock = threading.RLock()


@contextmanager
def _seed_shared_generators(seed: int) -> Iterator[None]:
    """Seed the global generators for one teacher, and restore them afterwards."""
    # Otherwise a teacher that draws from them would depend on the draws of earlier teachers, hence
    # on their records. The lock does the same for teachers in other threads.
    with _teacher_lock, seed_globally(seed):
        yield


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
