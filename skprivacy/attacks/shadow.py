"""A pool of shadow models, trained once and shared by several attacks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from numbers import Integral
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from .._clones import train_clone
from .._sklearn import Interval, StrOptions
from .._stacked import is_stackable, train_stacked
from .._validation import label_columns
from . import scores
from ._predictions import class_list, predict_aligned
from ._records import as_records, fingerprints, num_samples, safe_indexing

__all__ = ["ShadowPool"]

Mask = NDArray[np.bool_]
REDRAWS = 20
N_ASKED_FIRST = 200
NOT_LEARNING = (
    "All shadow models answer exactly alike, so they cannot show what a model learns from a "
    "record. Either fit ignores its records (a table of probabilities, a frozen model), or nothing "
    "in the answers depends on them. For a table, use LossThreshold or SignalThreshold, or pass a "
    "pool of models that are trained like the one that made it."
)


class ShadowPool(BaseEstimator):
    """Models like the target, each trained on a random half of the attacker's records.

    Models come in pairs that train on complementary halves, so every record is in the training
    half of exactly ``n_shadows / 2`` models. Rows with equal features stay together: a record
    counts as "out" for a model only if no copy of it was "in".

    Parameters
    ----------
    estimator : estimator
        Classifier or pipeline with ``predict_proba``; cloned, never changed. Usually the target.
    n_shadows : int, default=16
        Number of models; even.
    n_jobs : int, default=None
        Number of models trained in parallel, as in joblib, whose backend is honoured. If models
        are stacked, each job trains several, in threads if that takes only seconds; None then
        means as many jobs as joblib is configured for, or else as many as the linear algebra
        library uses threads.
    random_state : int, RandomState instance or None, default=None
        Seeds the halves, and the models if they take a ``random_state``.
    path : str or path-like, default=None
        Folder in which every model is saved as soon as it is trained. A later ``fit`` on the same
        records with the same estimator and ``n_shadows`` loads the saved models and trains the
        rest, so that an interrupted run resumes. It keeps the halves of the first run, whatever
        ``random_state`` is by then. The files are pickles: open only folders that you wrote.
    stacked : bool or "auto", default="auto"
        Train several networks side by side on each core, in single precision: much faster. "auto"
        does so if the estimator can be stacked: ``MLPClassifier(solver="adam",
        early_stopping=False)`` or ``DPSGDClassifier`` with its perceptron, alone or at the end of
        a pipeline. True refuses other estimators, False trains every model separately.
    verbose : int, default=0
        Verbosity of joblib; a progress bar if models are stacked.

    Attributes
    ----------
    estimators_ : list of estimators
        The trained shadow models. Stacked ones have ``classes_``, ``predict_proba`` and
        ``predict`` only.
    classes_ : ndarray of shape (n_classes,)
        All classes, those missing in some halves included.
    fingerprints_ : ndarray of shape (n_groups,)
        Sorted fingerprints of the distinct rows.
    masks_ : bool ndarray of shape (n_shadows, n_groups)
        Which model trained on which distinct row.

    Notes
    -----
    If joblib is set to fork and torch is imported, "loky" processes are used instead: a fork of a
    process that has used torch hangs.

    Warnings of shadow models are silenced, since the target raised the same ones. A parameter
    named ``budget`` is set to None in the clones: shadow models belong to the attacker and are
    never charged to a privacy budget.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skprivacy.attacks import ShadowPool
    >>> X, y = make_classification(random_state=0)
    >>> pool = ShadowPool(DecisionTreeClassifier(), n_shadows=4, random_state=0).fit(X, y)
    >>> pool.membership(X)[0].sum(axis=0).tolist() == [2] * 100
    True
    """

    _parameter_constraints: dict[str, Any] = {
        "estimator": "no_validation",
        "n_shadows": [Interval(Integral, 2, None, closed="left")],
        "n_jobs": [None, Integral],
        "random_state": ["random_state"],
        "path": [None, str, os.PathLike],
        "stacked": ["boolean", StrOptions({"auto"})],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        estimator: Any,
        *,
        n_shadows: int = 16,
        n_jobs: int | None = None,
        random_state: Any = None,
        path: Any = None,
        stacked: bool | str = "auto",
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.n_shadows = n_shadows
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.path = path
        self.stacked = stacked
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> ShadowPool:
        """Train the shadow models.

        Parameters
        ----------
        X : {array-like, DataFrame, sparse matrix} of shape (n_records, n_features)
            The attacker's records: drawn like the target's training records, and possibly
            among them.
        y : array-like of shape (n_records,)
            Their classes.

        Raises
        ------
        ValueError
            If ``n_shadows`` is odd, there are fewer than 4 distinct rows or fewer than 2 classes,
            or ``path`` holds a pool of other records, of another estimator or of another size.
        """
        self._validate_params()
        if self.n_shadows % 2:
            raise ValueError(
                f"n_shadows={self.n_shadows} must be even: shadow models come in pairs that "
                f"train on complementary halves. Use {self.n_shadows + 1}."
            )
        X, y = as_records(X), np.asarray(y)
        check_consistent_length(X, y)
        check_classification_targets(y)
        all_prints = fingerprints(X)
        prints, groups = np.unique(all_prints, return_inverse=True)
        if len(prints) < 4 or len(np.unique(y)) < 2:
            raise ValueError(
                f"X has {len(prints)} distinct rows of {len(np.unique(y))} classes, which cannot "
                "be halved; expected at least 4 distinct rows and 2 classes. Pass more records."
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        folder = None if self.path is None else Path(self.path)
        if folder is not None:
            content = joblib.hash(
                (clone(self.estimator), self._stacks(), self.n_shadows, all_prints, y)
            )
            seed = _open_folder(folder, content, seed, self.n_shadows)
        masks = _halves(groups, y, self.n_shadows, np.random.default_rng(seed))
        seeds = np.random.SeedSequence(seed).generate_state(self.n_shadows) >> 1
        rows = [np.flatnonzero(mask[groups]) for mask in masks]
        files = _files(folder, self.n_shadows)
        with _safe_backend():
            if self._stacks():
                self.estimators_ = _train_stacked(
                    self.estimator, X, y, rows, seeds, files, self.n_jobs, self.verbose
                )
            else:
                self.estimators_ = joblib.Parallel(n_jobs=self.n_jobs, verbose=self.verbose)(
                    joblib.delayed(_train)(self.estimator, X, y, *job)
                    for job in zip(rows, seeds, files, strict=True)
                )
        self.fingerprints_, self.masks_ = prints, masks
        self.classes_ = class_list(y, *(model.classes_ for model in self.estimators_))
        self._cached: tuple[str, Any] | None = None
        return self

    def _stacks(self) -> bool:
        """Return whether models are trained side by side."""
        if self.stacked is True and not is_stackable(self.estimator):
            raise ValueError(
                "stacked=True needs MLPClassifier(solver='adam', early_stopping=False) or a "
                "DPSGDClassifier without a custom module, alone or at the end of a pipeline; "
                f"got {self.estimator!r}. Use stacked='auto' or stacked=False."
            )
        return bool(self.stacked) and is_stackable(self.estimator)

    def membership(self, X: Any) -> tuple[Mask, Mask]:
        """Return which models trained on each row, and which rows the pool knows.

        Returns
        -------
        trained : bool ndarray of shape (n_shadows, n_records)
        known : bool ndarray of shape (n_records,)
        """
        check_is_fitted(self)
        columns, known = self._columns(X)
        return self.masks_[:, columns] & known, known

    def left_out(self, X: Any) -> Mask:
        """Return the models that count as not trained on each row: (n_shadows, n_records).

        If the pool knows any of the rows, each row gets exactly half of the models, known or not.
        All rows are then compared with equally many models; otherwise the steadier mean of
        unknown rows would itself distinguish them.
        """
        check_is_fitted(self)
        columns, known = self._columns(X)
        if not known.any():
            return np.ones((self.n_shadows, len(known)), dtype=bool)
        return ~self.masks_[:, columns]

    def _columns(self, X: Any) -> tuple[NDArray[np.intp], Mask]:
        """Return the column of each row in ``masks_``; for unknown rows, one chosen by hash."""
        prints = fingerprints(as_records(X))
        columns = np.minimum(np.searchsorted(self.fingerprints_, prints), self.masks_.shape[1] - 1)
        known = self.fingerprints_[columns] == prints
        stand_in = (prints % self.masks_.shape[1]).astype(np.intp)
        return np.where(known, columns, stand_in), known

    def iter_proba(self, X: Any, classes: Any = None) -> Iterator[NDArray[np.float64]]:
        """Yield each model's probabilities over ``classes`` (None: ``classes_``)."""
        check_is_fitted(self)
        X = as_records(X)
        for model in self.estimators_:
            yield predict_aligned(model, X, self.classes_ if classes is None else classes)

    def answers_vary(self, X: Any) -> bool:
        """Return whether shadow models answer differently to some of the records.

        True also where every answer is the same for every record: a constant tells nothing, and
        this is measured.
        """
        X = as_records(X)
        few = safe_indexing(
            X, np.arange(0, num_samples(X), max(1, num_samples(X) // N_ASKED_FIRST))
        )
        for records in (few, X):
            answers = self._iter_answers(records)
            first = next(answers)
            if any(not np.array_equal(first, other) for other in answers):
                return True
        return bool((first == first[0]).all())

    def _iter_answers(self, X: Any) -> Iterator[NDArray[Any]]:
        """Yield each model's probabilities, or its labels if it gives no probabilities."""
        if all(hasattr(model, "predict_proba") for model in self.estimators_):
            yield from self.iter_proba(X)
        else:
            yield from (np.asarray(model.predict(X)) for model in self.estimators_)

    def logits(self, X: Any, y: Any) -> NDArray[np.float64]:
        """Return the log-odds of the true class, of shape (n_shadows, n_records).

        The latest result is cached, so that several attacks on the same records query the models
        only once.
        """
        check_is_fitted(self)
        X = as_records(X)
        classes = class_list(self.classes_, y)
        label = label_columns(y, classes)
        key = joblib.hash((fingerprints(X), label))
        if self._cached is None or self._cached[0] != key:
            values = np.stack([scores.logit(proba, label) for proba in self.iter_proba(X, classes)])
            self._cached = key, values
        return self._cached[1]

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return state | {"_cached": None} if "_cached" in state else state


def _halves(
    groups: NDArray[np.intp], y: NDArray[Any], n_shadows: int, rng: np.random.Generator
) -> Mask:
    """Draw complementary halves of the groups, each with at least two classes."""
    n_groups = int(groups.max()) + 1
    masks = np.zeros((n_shadows, n_groups), dtype=bool)
    for pair in range(0, n_shadows, 2):
        for _ in range(REDRAWS):
            half = np.zeros(n_groups, dtype=bool)
            half[rng.permutation(n_groups)[: n_groups // 2]] = True
            taken = half[groups]
            if len(np.unique(y[taken])) > 1 and len(np.unique(y[~taken])) > 1:
                break
        else:
            raise ValueError(
                f"y has a class that is too rare: each of {REDRAWS} random halvings left a half "
                "with a single class. Pass more records of that class."
            )
        masks[pair], masks[pair + 1] = half, ~half
    return masks


def _safe_backend() -> AbstractContextManager[Any]:
    """Return a context in which joblib forks no process that may have used torch.

    A fork copies torch's thread pool without its threads; the child then waits for them forever.
    """
    backend, n_jobs = get_active_backend()
    forks = type(backend).__name__ == "MultiprocessingBackend"
    if forks and "torch" in sys.modules:
        return joblib.parallel_config("loky", n_jobs=n_jobs)
    return nullcontext()


def _train(
    estimator: Any, X: Any, y: Any, rows: NDArray[np.intp], seed: int, file: Path | None
) -> Any:
    if file is not None and file.exists():
        return joblib.load(file)
    return _save(train_clone(estimator, X, y, rows, seed), file)


def _train_stacked(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    rows: list[Any],
    seeds: Any,
    files: list[Path | None],
    n_jobs: int | None,
    verbose: int,
) -> list[Any]:
    """Load the models that are saved and train the others."""
    models = [joblib.load(file) if file is not None and file.exists() else None for file in files]
    missing = [i for i, model in enumerate(models) if model is None]
    with tqdm(total=len(missing), desc="shadow models", unit="model", disable=not verbose) as bar:

        def keep(i: int, model: Any) -> None:
            models[missing[i]] = _save(model, files[missing[i]])
            bar.update()

        train_stacked(
            estimator,
            X,
            y,
            [rows[i] for i in missing],
            [seeds[i] for i in missing],
            n_jobs=n_jobs,
            done=keep,
        )
    return models


def _save(model: Any, file: Path | None) -> Any:
    if file is not None:
        unfinished = file.with_suffix(f".{os.getpid()}")
        joblib.dump(model, unfinished)
        os.replace(unfinished, file)  # an interruption leaves a whole file or none
    return model


def _files(folder: Path | None, n_shadows: int) -> list[Path | None]:
    return [folder and folder / f"shadow_{i:04d}.joblib" for i in range(n_shadows)]


def _open_folder(folder: Path, content: str, seed: int, n_shadows: int) -> int:
    """Return the seed of the pool in the folder, after checking that the pool is the same."""
    folder.mkdir(parents=True, exist_ok=True)
    plan = folder / "pool.json"
    if not plan.exists():
        if any(folder.glob("shadow_*.joblib")):
            raise ValueError(
                f"path={str(folder)!r} holds shadow models, but not {plan.name!r}, which says what "
                "each was trained on: they cannot be used again. Restore that file, pass another "
                "folder, or delete this one."
            )
        unfinished = plan.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps({"content": content, "seed": seed}))
        os.replace(unfinished, plan)
        return seed
    try:
        known = json.loads(plan.read_text())
        content_known, seed_known = known["content"], int(known["seed"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{plan} is damaged ({error}), so that it is unknown what the shadow models beside it "
            "were trained on. Restore that file, pass another folder, or delete this one."
        ) from error
    if content_known != content:
        raise ValueError(
            f"path={str(folder)!r} holds shadow models of other records, of another estimator "
            f"or of another number than n_shadows={n_shadows}. Pass another folder, or delete "
            "this one."
        )
    return seed_known
