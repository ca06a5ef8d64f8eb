"""Training of shadow models: single, in threads or processes, or stacked.

Models can be stored in a folder, with a check of each model's training records. Start reading at
:func:`train_shadows`.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils.parallel import Parallel, delayed

from .._clones import train_clone
from .._environment import default_n_jobs, limit_workers, one_blas_thread, progress_bar
from .._files import create_file, parse_json, read_file, write_file
from .._groups import Groups
from .._stacked import is_stackable, train_stacked
from .shadow_answers import AnswerTable, add_shared_steps, remove_shared_steps

_PLAN = "pool.json"
_SIZE = 32  # of a digest, in bytes
_RESTORE = "Restore that file, pass another folder, or delete this one."
_BAR: dict[str, Any] = {"desc": "shadow models", "unit": "model"}

# Parts of scikit-learn whose fits release Python's lock most of the time and share no state.
# Support vector machines share state: libsvm and liblinear draw from one global generator.
_PARTS = (
    "calibration",
    "compose",
    "ensemble",
    "impute",
    "linear_model",
    "multiclass",
    "multioutput",
    "pipeline",
    "preprocessing",
    "tree",
)
_USES_ALL_CORES = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)


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
    """Train a clone for each job, or load it if its file exists; return models or their tables."""
    with _safe_backend():
        if stacked:
            return _train_stacked(estimator, data, jobs, shared, n_jobs, device, verbose)
        threads = trains_in_threads(estimator)
        n_jobs = default_n_jobs(n_jobs) if threads else n_jobs
        with one_blas_thread(), warnings.catch_warnings():  # joblib limits other processes itself
            # outside of the threads, since each thread's filter would reset the others'
            warnings.simplefilter("ignore")
            parallel = Parallel(
                n_jobs=limit_workers(n_jobs, len(jobs.rows)),
                prefer="threads" if threads else None,
                return_as="generator" if verbose else "list",
            )
            trained = parallel(
                delayed(_train)(estimator, data, shared, *job) for job in zip(*jobs, strict=True)
            )
            return list(progress_bar(trained, shown=verbose, total=len(jobs.rows), **_BAR))


class ModelFile(NamedTuple):
    """File of one shadow model: complete or absent, and readable only by its owner.

    **Guarantees.** ``load`` checks a digest of model, pool and file name: a damaged model, or one
    of other halves, would make attacks report that nothing leaks.
    """

    path: Path
    pool: str  # identifies the pool, including the halves that its models are trained on

    def exists(self) -> bool:
        return self.path.exists()

    def save(self, model: Any) -> None:
        content = io.BytesIO()
        joblib.dump(model, content)
        with content.getbuffer() as whole:
            digest = self._digest(whole)
        content.write(digest)
        write_file(self.path, content.getbuffer(), 0o600)

    def load(self) -> Any:
        content = memoryview(self.path.read_bytes())
        model, digest = content[:-_SIZE], content[-_SIZE:]
        if digest != self._digest(model):
            raise ValueError(
                f"path={str(self.path.parent)!r} holds {self.path.name!r}, which is damaged or not "
                "a model of this pool. Restore it, or delete it to train it again."
            )
        try:
            return joblib.load(io.BytesIO(model))
        except Exception as error:  # other versions of its classes may raise any exception
            raise ValueError(
                f"path={str(self.path.parent)!r} holds {self.path.name!r}, which cannot be loaded "
                f"({error!r}). Use the package versions that saved it, or another folder."
            ) from error

    def _digest(self, model: memoryview) -> bytes:
        found = hashlib.blake2b(f"{self.pool} {self.path.name} ".encode(), digest_size=_SIZE)
        found.update(model)
        return found.digest()


def list_model_files(folder: Path | None, n_shadows: int, pool: str) -> list[ModelFile | None]:
    """Return the file of each model; None without a folder."""
    if folder is None:
        return [None] * n_shadows
    return [ModelFile(folder / f"shadow_{i:04d}.joblib", pool) for i in range(n_shadows)]


def open_folder(folder: Path, content: str, seed: int, n_shadows: int) -> int:
    """Return the seed of the pool in a folder; concurrent creators get the same one."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    plan = folder / _PLAN
    if not plan.exists():
        if any(folder.glob("shadow_*.joblib")):
            raise ValueError(
                f"path={str(folder)!r} holds shadow models, but not {_PLAN!r}, which records what "
                f"each was trained on. {_RESTORE}"
            )
        with suppress(FileExistsError):
            create_file(plan, json.dumps({"content": content, "seed": seed}), 0o600)
    try:
        known = parse_json(read_file(plan))
        content_known, seed_known = known["content"], int(known["seed"])
        if seed_known < 0:
            raise ValueError("its seed is negative")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{plan} is damaged ({error}), so it is unknown what the shadow models in its folder "
            f"were trained on. {_RESTORE}"
        ) from error
    if content_known != content:
        raise ValueError(
            f"path={str(folder)!r} holds shadow models of other records, of another estimator, or "
            f"of a pool with other n_shadows than {n_shadows}. Pass another folder, or delete this "
            "one."
        )
    return seed_known


def chooses_stacking(stacked: bool | str, estimator: Any, n_records: int, is_plain: bool) -> bool:
    """Return whether models are trained stacked; ``is_plain``: without weights and groups."""
    able = is_plain and is_stackable(estimator, n_records)
    if stacked is True and not able:
        raise ValueError(
            "stacked=True needs MLPClassifier(solver='adam', early_stopping=False) or a "
            "DPSGDClassifier without a custom module (with epochs, at epsilon=inf), alone or "
            "at the end of a pipeline, and "
            f"neither sample_weight nor groups; got {estimator!r}. Use stacked='auto' or "
            "stacked=False."
        )
    return bool(stacked) and able


def trains_in_threads(estimator: Any) -> bool:
    """Return whether training clones of an estimator in threads is safe and worthwhile.

    **Guarantees.** True only for scikit-learn's own estimators, nested ones included, whose
    parameters are plain values and which do not use several cores by themselves.
    """
    if not _is_of_sklearn(estimator):
        return False
    params = estimator.get_params(deep=False)
    if params.get("n_jobs") not in (None, 1) or params.get("solver") == "liblinear":
        return False
    return all(map(_is_safe, params.values()))


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
    with progress_bar(shown=verbose, total=len(missing), **_BAR) as bar:

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


def _is_of_sklearn(estimator: Any) -> bool:
    home = type(estimator).__module__.split(".")
    known = home[0] == "sklearn" and len(home) > 1 and home[1] in _PARTS
    return known and not isinstance(estimator, _USES_ALL_CORES)


def _is_safe(value: Any) -> bool:
    if isinstance(value, BaseEstimator):
        return trains_in_threads(value)
    if isinstance(value, (list, tuple)):
        return all(map(_is_safe, value))
    if isinstance(value, Mapping):
        return all(map(_is_safe, value.values()))
    plain = (type(None), bool, int, float, str, np.generic, np.ndarray, np.random.RandomState, type)
    return isinstance(value, (*plain, slice))
