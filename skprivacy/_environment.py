"""Threads of linear algebra and of torch, joblib workers, and progress bars."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from numbers import Integral
from typing import Any

from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController

from ._extras import explain_missing
from ._validation import Interval, is_number

# Multiplications of an operation that are worth several threads.
MUCH_WORK = 1 << 25
# The same for a prediction, which runs once and not in every step.
PREDICT_WORK = 1 << 28
# Cells of X above which an estimator of scikit-learn gains from several threads.
MANY_NUMBERS = 1 << 23


def blas_threads() -> int:
    """Return the number of threads that linear algebra uses."""
    return _count_threads(_controller())


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which linear algebra uses one thread: faster on small products."""
    controller = _controller()
    if _count_threads(controller) == 1:  # or concurrent contexts would restore this 1
        return nullcontext()
    return controller.limit(limits=1, user_api="blas")


@contextmanager
def single_thread() -> Iterator[None]:
    """Restrict linear algebra and compiled loops (OpenMP) to one thread."""
    with one_blas_thread(), _controller().limit(limits=1, user_api="openmp"):
        yield


def one_thread(numbers: float, worth: float = MANY_NUMBERS) -> AbstractContextManager[Any]:
    """Restrict linear algebra and compiled loops to one thread if ``numbers`` is below ``worth``.

    The number of threads decides how sums round, so ``numbers`` must be public.
    """
    return single_thread() if numbers < worth else nullcontext()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Restrict torch to one thread, also in a Python thread that first uses torch in this block."""
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
    """Return a context with one torch thread if a pass has fewer multiplications than ``worth``."""
    shapes = [p.shape for p in module.parameters()]
    if any(len(shape) > 2 for shape in shapes):  # the work of a convolution is not known by these
        return nullcontext()
    work = n_rows * sum(shape.numel() for shape in shapes)
    return one_torch_thread() if work < worth else nullcontext()


def _controller() -> ThreadpoolController:
    return _find_thread_pools(len(sys.modules))


@lru_cache(maxsize=1)
def _find_thread_pools(count: int) -> ThreadpoolController:
    """Return the loaded thread pools; ``count``, of imported modules, is the key of the cache."""
    return ThreadpoolController()


def _count_threads(controller: ThreadpoolController) -> int:
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


def limit_workers(n_jobs: int | None, n_tasks: int) -> int | None:
    """Return ``n_jobs``, at most the number of tasks: joblib would start idle workers."""
    check_n_jobs(n_jobs)
    if n_jobs is None or n_jobs < 0:
        return n_jobs
    return min(int(n_jobs), max(1, n_tasks))


def default_n_jobs(n_jobs: int | None) -> int | None:
    """Return ``n_jobs``; None means joblib's setting, or the threads of linear algebra."""
    _, configured = get_active_backend()
    return blas_threads() if n_jobs is None and configured is None else n_jobs


def progress_bar(items: Iterable[Any] | None = None, *, shown: object, **options: Any) -> Any:
    """Return tqdm's bar over ``items`` if ``shown``, and a silent one otherwise.

    Without tqdm the bar is silent and a warning names the extra: the work may have been charged.
    """
    if shown:
        try:
            from tqdm.auto import tqdm

            return tqdm(items, **options)
        except ModuleNotFoundError:
            warnings.warn(f"No progress is shown: {explain_missing('tqdm')}", stacklevel=3)
    return _SilentBar(() if items is None else items)


class _SilentBar:
    """The part of tqdm's interface that the package uses, without output."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __enter__(self) -> _SilentBar:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self) -> None:
        """Count one step."""
