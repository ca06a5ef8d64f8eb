"""How many workers train models at a time: as many as asked for, and no more than have work."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from joblib.parallel import get_active_backend

from ._blas import blas_threads
from ._validation import Interval, is_number

__all__ = ["N_JOBS", "check_n_jobs", "several", "workers"]

# The same as a constraint of an estimator's parameter.
N_JOBS = [
    Interval(Integral, None, -1, closed="right"),
    Interval(Integral, 1, None, closed="left"),
    None,
]


def check_n_jobs(n_jobs: Any) -> None:
    """Raise ValueError unless ``n_jobs`` is one of joblib's: an integer other than 0, or None."""
    if n_jobs is None or (isinstance(n_jobs, Integral) and is_number(n_jobs) and n_jobs != 0):
        return
    raise ValueError(
        f"n_jobs={n_jobs!r} must be an integer other than 0, such as -1 for all cores, or None."
    )


def workers(n_jobs: int | None, n_tasks: int) -> int | None:
    """Return ``n_jobs`` for joblib, which would start idle workers if it exceeds the tasks."""
    check_n_jobs(n_jobs)
    if n_jobs is None or n_jobs < 0:
        return n_jobs
    return min(int(n_jobs), max(1, n_tasks))


def several(n_jobs: int | None) -> int | None:
    """Return ``n_jobs``; for None as many as joblib is configured for, or linear algebra uses."""
    _, configured = get_active_backend()
    return blas_threads() if n_jobs is None and configured is None else n_jobs
