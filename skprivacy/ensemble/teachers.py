"""Teachers of PATE: one model for each partition of private records, and their votes."""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.parallel import Parallel, delayed

from .._blas import one_thread, single_thread
from .._clones import shadow_clone, without_values
from .._global_chance import seeded_globally
from .._jobs import workers
from .._sklearn import num_samples, safe_indexing
from .._stacked import is_mlp, resolve_device, train_alone, train_isolated_networks
from .._validation import raise_alone

__all__ = ["check_teacher", "collect_votes", "count_votes"]

_N_TRIAL_RECORDS = 200  # public records on which a teacher is tried before anything is charged


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
    """Return the number of teachers that vote for each class of each query.

    **Guarantees.** A record moves at most one vote of each query for each partition that it
    changes, see :func:`collect_votes`.
    """
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

    **Guarantees.** A teacher's votes depend on its own partition and on public facts alone, to the
    last bit: no records of another partition, nor their number, reach the teacher. A partition that
    is empty, has one class or makes the teacher fail votes too, and this is not reported.

    **Edge cases.** The types of columns, and the categories of a categorical column, must be
    public. Not covered are a teacher that kills its process or keeps state outside of itself, and a
    linear algebra library whose rounding depends on memory addresses.
    """
    train = _training_function(teacher)
    order = np.argsort(parts, kind="stable")
    ends = np.searchsorted(parts[order], np.arange(1, n_teachers))
    rows = np.split(order, ends)
    if (there := resolve_device(device)) is not None:
        own_parts = [(safe_indexing(X, own), y[own]) for own in rows]
        members = train_isolated_networks(
            teacher, own_parts, np.shape(queries)[1], classes, seeds, there
        )
        return [
            _vote(partial(_keep_fitted, member), teacher, *part, queries, classes, int(seed),
                  i % len(classes))
            for i, (member, part, seed) in enumerate(zip(members, own_parts, seeds, strict=True))
        ]  # fmt: skip
    # The number of threads decides how sums round, so it must not depend on the records.
    with single_thread():
        votes: list[NDArray[np.int64]] = Parallel(n_jobs=workers(n_jobs, len(rows)))(
            delayed(_vote)(
                train, teacher, safe_indexing(X, own), y[own], queries, classes, int(seeds[i]),
                i % len(classes),
            )
            for i, own in enumerate(rows)
        )  # fmt: skip
    return votes


def check_teacher(teacher: Any, public: Any, classes: NDArray[Any], device: str = "cpu") -> None:
    """Fit a teacher to public records with made-up labels, and raise if it fails.

    Later errors may be due to a private record and are not reported: all teachers would vote by a
    public rule, and nobody would know.
    """
    there = resolve_device(device)
    if there is not None and (isinstance(teacher, Pipeline) or not is_mlp(teacher)):
        raise ValueError(
            f"device={device!r} needs teacher=MLPClassifier(solver='adam', early_stopping=False), "
            f"got {teacher!r}; nothing was charged. Use device='cpu', or transform the records "
            "beforehand by public facts."
        )
    some = safe_indexing(public, np.arange(_N_TRIAL_RECORDS) % num_samples(public))
    made_up = classes[np.arange(_N_TRIAL_RECORDS) % 2]
    with (
        _seed_shared_generators(0),
        warnings.catch_warnings(),
        one_thread(math.prod(np.shape(some))),
    ):
        warnings.simplefilter("ignore")
        try:
            train = _training_function(teacher)
            if there is not None:
                part, width = [(some, made_up)], np.shape(some)[1]
                train = partial(
                    _keep_fitted,
                    *train_isolated_networks(teacher, part, width, classes, [0], there),
                )
            answers = train(teacher, some, made_up, classes, 0).predict(some)
        except Exception as error:
            raise_alone(
                ValueError(
                    f"teacher={teacher!r} cannot be fitted to public records with made-up labels "
                    f"({without_values(error)}). Nothing was charged. Pass one that takes these "
                    "records, for instance a pipeline that begins with SchemaTransformer."
                )
            )
    if np.shape(answers) != (_N_TRIAL_RECORDS,) or not np.isin(answers, classes).all():
        raise ValueError(
            f"teacher={teacher!r} does not predict one of classes={classes.tolist()!r} for each "
            "record. Nothing was charged. Pass a classifier."
        )


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
    """Return the class of each query, as an index, by a teacher of these records.

    ``otherwise`` is the public vote of a teacher that cannot be trained.
    """
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


def _training_function(teacher: Any) -> Callable[..., Any]:
    """Return the function that trains such a teacher: ``train(teacher, X, y, classes, seed)``."""
    return train_alone if is_mlp(teacher) else _fit_clone


def _fit_clone(teacher: Any, X: Any, y: NDArray, classes: NDArray, seed: int) -> Any:
    return shadow_clone(teacher, seed).fit(X, y)


_teacher_lock = threading.RLock()  # is trained at a time in a process


def _renew_lock() -> None:
    """Make a new lock: a forked process has no thread that would release the old one."""
    global _teacher_lock
    _teacher_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@contextmanager
def _seed_shared_generators(seed: int) -> Iterator[None]:
    """Seed the global generators for one teacher, and restore them afterwards.

    Otherwise a teacher that draws from them would depend on the draws of earlier teachers, hence on
    their records. The lock does the same for teachers in other threads.
    """
    with _teacher_lock, seeded_globally(seed):
        yield
