"""Training of shadow models: single, in threads or processes, or stacked."""

from __future__ import annotations

import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import joblib
import numpy as np
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.parallel import Parallel, delayed
from tqdm import tqdm

from .._blas import one_blas_thread
from .._clones import train_clone
from .._groups import Groups
from .._jobs import several, workers
from .._stacked import train_stacked
from ._pool_folder import ModelFile
from ._shared_steps import add_shared_steps, remove_shared_steps
from ._tables import AnswerTable
from ._threads import trains_in_threads

__all__ = ["TrainingData", "TrainingJobs", "train_shadows"]


class TrainingJobs(NamedTuple):
    """The rows, the seed and the file (or None) of each model."""

    rows: list[NDArray[np.intp]]
    seeds: NDArray[Any]
    files: list[ModelFile | None]


class TrainingData(NamedTuple):
    """Training data of the shadow models."""

    X: Any  # output of the first steps that all models share
    y: NDArray[Any]
    weights: NDArray[np.float64] | None
    groups: Groups | None
    asked: NDArray[np.intp] | None  # rows whose answers replace the models; None keeps the models

    def reduce_model(self, model: Any, shared: Pipeline | None) -> Any:
        """Return the trained model, or the table of its answers that replaces it."""
        if self.asked is None:
            return model
        behind_steps = model if shared is None else remove_shared_steps(shared, model)
        return AnswerTable.from_fitted_model(behind_steps, self.X, self.y, self.asked)


_BAR: dict[str, Any] = {"desc": "shadow models", "unit": "model"}


def train_shadows(
    estimator: Any,
    data: TrainingData,
    jobs: TrainingJobs,
    shared: Pipeline | None,
    *,
    stacked: bool,
    n_jobs: int | None,
    device: str | None,
    verbose: int,
) -> list[Any]:
    """Train a clone for each job, or load it if its file exists; return models or their tables.

    ``estimator`` is the rest of a pipeline after the ``shared`` first steps.
    """
    with _safe_backend():
        if stacked:
            return _train_stacked(estimator, data, jobs, shared, n_jobs, device, verbose)
        threads = trains_in_threads(estimator)
        n_jobs = several(n_jobs) if threads else n_jobs
        with one_blas_thread(), warnings.catch_warnings():  # joblib limits other processes itself
            # outside of the threads, since each thread's filter would reset the others'
            warnings.simplefilter("ignore")
            parallel = Parallel(
                n_jobs=workers(n_jobs, len(jobs.rows)),
                prefer="threads" if threads else None,
                return_as="generator" if verbose else "list",
            )
            trained = parallel(
                delayed(_train)(estimator, data, shared, *job) for job in zip(*jobs, strict=True)
            )
            return list(tqdm(trained, total=len(jobs.rows), disable=not verbose, **_BAR))


def _safe_backend() -> AbstractContextManager[Any]:
    """Return a context in which joblib does not fork a process that may have used torch.

    A fork copies torch's thread pool without its threads, for which the child then waits forever.
    """
    backend, n_jobs = get_active_backend()
    forks = type(backend).__name__ == "MultiprocessingBackend"
    if forks and "torch" in sys.modules:
        return joblib.parallel_config("loky", n_jobs=n_jobs)
    return nullcontext()


def _train(
    estimator: Any,
    data: TrainingData,
    shared: Pipeline | None,
    rows: NDArray[np.intp],
    seed: int,
    file: ModelFile | None,
) -> Any:
    if file is not None and file.exists():
        return data.reduce_model(file.load(), shared)
    trained = train_clone(estimator, data.X, data.y, rows, seed, data.weights, data.groups)
    return data.reduce_model(_save_model(add_shared_steps(shared, trained), file), shared)


def _train_stacked(
    estimator: Any,
    data: TrainingData,
    jobs: TrainingJobs,
    shared: Pipeline | None,
    n_jobs: int | None,
    device: str | None,
    verbose: int,
) -> list[Any]:
    """Load the saved models and train the others stacked."""
    rows, seeds, files = jobs
    kept = [
        data.reduce_model(file.load(), shared) if file is not None and file.exists() else None
        for file in files
    ]
    missing = [i for i, model in enumerate(kept) if model is None]
    with tqdm(total=len(missing), disable=not verbose, **_BAR) as bar:

        def keep(i: int, model: Any) -> None:
            whole = _save_model(add_shared_steps(shared, model), files[missing[i]])
            kept[missing[i]] = data.reduce_model(whole, shared)
            bar.update()

        train_stacked(
            estimator,
            data.X,
            data.y,
            [rows[i] for i in missing],
            [seeds[i] for i in missing],
            n_jobs=n_jobs,
            device=device,
            done=keep,
        )
    return kept


def _save_model(model: Any, file: ModelFile | None) -> Any:
    if file is not None:
        file.save(model)
    return model
