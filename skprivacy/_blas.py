"""How many threads linear algebra uses in this process."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from joblib import effective_n_jobs
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # it has no types

__all__ = ["blas_threads", "one_blas_thread"]


def blas_threads() -> int:
    """Return how many threads linear algebra uses."""
    return _threads(ThreadpoolController())


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which linear algebra uses one thread.

    On many small products, several threads mostly wait for each other: one is faster, and leaves
    the other cores to other models.

    **Edge cases.** It does nothing if that is already so: if several threads each restored the
    number they found, the last one would restore one.
    """
    controller = ThreadpoolController()
    if _threads(controller) == 1:
        return nullcontext()
    return controller.limit(limits=1, user_api="blas")


def _threads(controller: ThreadpoolController) -> int:
    pools = [pool["num_threads"] for pool in controller.info() if pool["user_api"] == "blas"]
    return max(pools, default=effective_n_jobs(-1))
