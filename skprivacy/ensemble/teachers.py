"""Teachers: one model a part of the private records, and their votes on public ones."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed

from .._clones import shadow_clone
from .._sklearn import num_samples, safe_indexing

__all__ = ["count_votes"]


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
) -> NDArray[np.int64]:
    """Return for how many teachers each query has each class.

    Parameters
    ----------
    teacher : classifier
        Is cloned for each part, seeded, and kept from charging a budget of its own.
    X, y : private records of shape (n_samples, n_features) and labels of shape (n_samples,)
    parts : ndarray of shape (n_samples,)
        The teacher of each record.
    n_teachers : int
    queries : public records of shape (n_queries, n_features)
    classes : ndarray of shape (n_classes,)
        All classes, sorted.
    seeds : ndarray of shape (n_teachers,)
    n_jobs : int, default=None

    Returns
    -------
    ndarray of shape (n_queries, n_classes)
        Each row adds up to ``n_teachers``.

    Notes
    -----
    **Guarantees.** The vote of a teacher depends on its own part and on public facts alone: a part
    that is empty, has one class or breaks the teacher gives votes too, and nothing is said of it.
    So a record moves one vote of each query at the most for each part that it changes.
    """
    order = np.argsort(parts, kind="stable")
    ends = np.searchsorted(parts[order], np.arange(1, n_teachers))
    rows = np.split(order, ends)
    votes = Parallel(n_jobs=n_jobs)(
        delayed(_vote)(
            teacher, safe_indexing(X, own), y[own], queries, classes, int(seeds[i]),
            i % len(classes),
        )
        for i, own in enumerate(rows)
    )  # fmt: skip
    counts = np.zeros((num_samples(queries), len(classes)), np.int64)
    for vote in votes:
        counts[np.arange(len(counts)), vote] += 1
    return counts


def _vote(
    teacher: Any, X: Any, y: NDArray, queries: Any, classes: NDArray, seed: int, otherwise: int
) -> NDArray[np.int64]:
    """Return the class of each query, as an index, by a teacher of these records.

    ``otherwise`` is the class that a teacher which cannot be trained votes for: a public one.
    """
    n = num_samples(queries)
    present = np.unique(y)
    if len(present) < 2:
        only = int(np.searchsorted(classes, present[0])) if len(present) else otherwise
        return np.full(n, only, np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            answers = np.asarray(shadow_clone(teacher, seed).fit(X, y).predict(queries))
            found = np.searchsorted(classes, answers)
        except Exception:  # whatever it is, it may be due to a private record
            return np.full(n, otherwise, np.int64)
    if found.shape != (n,):
        return np.full(n, otherwise, np.int64)
    known = np.minimum(found, len(classes) - 1)
    return np.where(classes[known] == answers, known, otherwise).astype(np.int64)
