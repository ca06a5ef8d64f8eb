"""How many threads linear algebra uses in this process.

How many workers train models at a time: as many as asked for, and no more than have work.

torch is optional: what needs it says how to install it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from numbers import Integral
from typing import Any

from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController

from ._validation import Interval, is_number

__all__ = [
    "MANY_NUMBERS",
    "MUCH_WORK",
    "N_JOBS",
    "PREDICT_WORK",
    "blas_threads",
    "check_n_jobs",
    "one_blas_thread",
    "one_thread",
    "one_torch_thread",
    "several",
    "single_thread",
    "threads_for",
    "torch_is_named",
    "workers",
]

# Multiplications of an operation that are worth several threads.
MUCH_WORK = 1 << 25
# Of a prediction, which is asked for once and not step after step.
PREDICT_WORK = 1 << 28
# Numbers of the records that are worth several threads to an estimator of scikit-learn's.
MANY_NUMBERS = 1 << 23


def blas_threads() -> int:
    """Return how many threads linear algebra uses."""
    return _threads(_controller())


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which linear algebra uses one thread.

    On many small products, several threads mostly wait for each other: one is faster, and leaves
    the other cores to other models.

    **Edge cases.** It does nothing if that is already so: if several threads each restored the
    number they found, the last one would restore one.
    """
    controller = _controller()
    if _threads(controller) == 1:
        return nullcontext()
    return controller.limit(limits=1, user_api="blas")


@contextmanager
def single_thread() -> Iterator[None]:
    """Let linear algebra and compiled loops (OpenMP) take this thread alone."""
    with one_blas_thread(), _controller().limit(limits=1, user_api="openmp"):
        yield


def one_thread(numbers: float, worth: float = MANY_NUMBERS) -> AbstractContextManager[Any]:
    """Let linear algebra and compiled loops take this thread alone if ``numbers`` are few.

    They are few below ``worth``. Threads that wait for one another take ten times the processor
    time where other processes want the cores, too. The number of threads decides how sums round,
    so ``numbers`` must be public.
    """
    return single_thread() if numbers < worth else nullcontext()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch compute on this thread alone.

    At the end of every operation its threads wait for the last of them: on small operations that is
    most of the time, and many times that where other processes want the cores, too.

    **Edge cases.** Other threads keep the number that they have; one that begins to use torch
    meanwhile has one.
    """
    import torch

    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for(
    module: Any, n_rows: float, worth: float = MUCH_WORK
) -> AbstractContextManager[Any]:
    """Return a context with as many threads of torch as passes of so many rows are worth.

    That is one below ``worth`` multiplications by weights.

    **Edge cases.** What a convolution works is not known from its weights: it gets all threads.
    """
    shapes = [p.shape for p in module.parameters()]
    if any(len(shape) > 2 for shape in shapes):
        return nullcontext()
    work = n_rows * sum(shape.numel() for shape in shapes)
    return one_torch_thread() if work < worth else nullcontext()


def _controller() -> ThreadpoolController:
    return _of_modules(len(sys.modules))


@lru_cache(maxsize=1)
def _of_modules(count: int) -> ThreadpoolController:
    """Return the libraries that are loaded: looked for again when more has been imported."""
    return ThreadpoolController()


def _threads(controller: ThreadpoolController) -> int:
    pools = [pool["num_threads"] for pool in controller.info() if pool["user_api"] == "blas"]
    return max(pools, default=effective_n_jobs(-1))


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


_EXTRA = {"torch", "skorch"}


@contextmanager
def torch_is_named() -> Iterator[None]:
    """Name the extra to install where an import within the block finds torch missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        raise ImportError(
            f"Neural networks need {error.name}, which is not installed: "
            "pip install 'skprivacy[torch]'. For a CPU, install torch itself first, from "
            "https://download.pytorch.org/whl/cpu; the default build brings gigabytes for GPUs.",
            name=error.name,
        ) from error
