"""Shadow models: a pool trained once on random halves and shared by attacks (Shokri et al. 2017).

The halves are complementary: each record is in half of the models. Start reading at
:meth:`ShadowPool.fit`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from numbers import Integral
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from .._clones import check_weights, group_names
from .._environment import N_JOBS
from .._groups import check_groups
from .._input_data import check_classification_targets, check_consistent_length, distinct_labels
from .._sklearn import StrOptions
from .._validation import VERBOSE, Interval, check_random_state, num_samples
from ..base import rolls_back_on_error
from .group_scores import complementary_halves, connected_units
from .model_answers import (
    KINDS,
    PROBABILITIES,
    choose_answers,
    class_list,
    learns_classes,
    targets_as_array,
)
from .record_tables import as_records, fingerprints
from .shadow_answers import (
    Mask,
    PoolAnswers,
    PoolLogits,
    PredictionTable,
    RecordIndex,
    check_table,
    check_trained,
    split_stateless_steps,
)
from .shadow_training import (
    TrainingData,
    TrainingJobs,
    chooses_stacking,
    list_model_files,
    open_folder,
    train_shadows,
)

ASK_MODELS = "Pass records of the pool, or train it with keep_models=True."
MODELS_DO_NOT_LEARN = (
    "All shadow models return the same answers, so they do not depend on the training records (a "
    "table of probabilities or a frozen model, for example). For a table, use LossThreshold or "
    "SignalThreshold, or pass a pool of models trained like the one that made the table."
)


class ShadowPool(BaseEstimator):
    """Train shadow models like the target, each on a random half of the attacker's records.

    Models come in pairs that train on complementary halves, so every record is in the training
    half of exactly ``n_shadows / 2`` models. Rows with equal features stay in the same half: a
    record counts as "out" for a model only if no copy of it was "in".

    Parameters
    ----------
    estimator : estimator
        Model or pipeline to train, usually the target: a classifier, a regressor, or another model
        that scores single records (:class:`LossThreshold` lists them). It is cloned, never changed.
    n_shadows : int, default=16
        Number of models; even.
    n_jobs : int, default=None
        Number of models trained in parallel, as in joblib, whose backend is honoured. None uses
        the number that joblib is configured for, or else one. Stacked models, and scikit-learn's
        models that train in threads (such as forests), use the number of threads of the linear
        algebra library instead.
    random_state : int, RandomState instance or None, default=None
        Seeds the halves, and the models if they take a ``random_state``.
    path : str or path-like, default=None
        Folder in which every model is saved as soon as it is trained. A later ``fit`` on the same
        records with the same estimator and ``n_shadows`` loads the saved models and trains the
        rest, so an interrupted run resumes. It reuses the halves of the first run, even if
        ``random_state`` has changed. The files are pickles: open only folders that you wrote.
    stacked : bool or "auto", default="auto"
        Whether to train several networks side by side on each core, in single precision, which is
        much faster. "auto" does so if the estimator can be stacked:
        ``MLPClassifier(solver="adam", early_stopping=False)`` or ``DPSGDClassifier`` with its
        perceptron, alone or at the end of a pipeline. True refuses other estimators, False trains
        every model separately.
    device : str, default=None
        Device that trains stacked networks: "cpu", "cuda" or another torch device of that kind, or
        "auto" for a GPU if there is one. A GPU trains as many networks at once as its memory holds.
        ``None`` uses the estimator's own ``device``. Results agree up to rounding, except for the
        noise of private models. Each device generates that noise.
    verbose : int, default=0
        Verbosity of joblib; with stacked models, a progress bar.
    keep_models : bool, default=True
        Whether the models stay in memory. False stores only their answers about the records of
        ``fit``, 8 bytes per record and class. A forest of 20 MiB becomes 160 KB for 10,000 records
        and two classes. The pool then serves only attacks on these records.

    Attributes
    ----------
    estimators_ : list of estimators
        The trained shadow models. Stacked models have only ``classes_``, ``predict_proba`` and
        ``predict``; with ``keep_models=False`` tables of their answers replace them.
    classes_ : ndarray of shape (n_classes,) or None
        All classes, including those missing in some halves; None if the models do not predict one
        class per record.
    fingerprints_ : ndarray of shape (n_groups,)
        Sorted fingerprints of the distinct rows.
    masks_ : bool ndarray of shape (n_shadows, n_groups)
        Which model trained on which distinct row.

    Notes
    -----
    If joblib is set to fork and torch is imported, "loky" processes are used instead, because a
    forked process hangs if its parent has used torch.

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

    classes_: Any

    _parameter_constraints: dict[str, Any] = {
        "estimator": "no_validation",
        "n_shadows": [Interval(Integral, 2, None, closed="left")],
        "n_jobs": N_JOBS,
        "random_state": ["random_state"],
        "path": [None, str, os.PathLike],
        "stacked": ["boolean", StrOptions({"auto"})],
        "device": [None, str],
        "verbose": VERBOSE,
        "keep_models": ["boolean"],
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
        device: str | None = None,
        verbose: int = 0,
        keep_models: bool = True,
    ) -> None:
        self.estimator = estimator
        self.n_shadows = n_shadows
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.path = path
        self.stacked = stacked
        self.device = device
        self.verbose = verbose
        self.keep_models = keep_models

    @rolls_back_on_error
    def fit(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, *, groups: Any = None
    ) -> ShadowPool:
        """Train the shadow models.

        Parameters
        ----------
        X : {array-like, DataFrame, sparse matrix} of shape (n_records, n_features)
            The attacker's records: drawn like the target's training records, and possibly
            among them.
        y : array-like of shape (n_records,) or (n_records, n_outputs)
            Their classes or target values; None for models that are fitted without ``y``.
        sample_weight : array-like of shape (n_records,), default=None
            Weights of the records, passed to ``fit`` of the estimator or of a pipeline's last step.
        groups : array-like of shape (n_records,), default=None
            Group of each record. All records of a group are then in the same half, and so are
            groups that share a row. The groups are also passed to ``fit`` of the estimator, or of a
            pipeline's steps, where it takes them.

        Returns
        -------
        ShadowPool
            Itself, fitted.

        Raises
        ------
        ValueError
            If ``n_shadows`` is odd, the estimator takes no weights, or ``path`` holds a pool of
            other records, of another estimator or of another size. Also if there are fewer than 4
            distinct rows (or groups without a common row), if groups and equal rows connect most
            records, or if a classifier gets fewer than 2 classes.
        """
        self._validate_params()
        if self.n_shadows % 2:
            raise ValueError(
                f"n_shadows={self.n_shadows} must be even, because shadow models come in pairs "
                f"that train on complementary halves. Use {self.n_shadows + 1}."
            )
        if not hasattr(self.estimator, "fit"):
            raise TypeError(f"estimator={self.estimator!r} must be a model with a fit method.")
        X = as_records(X)
        y = targets_as_array(y, num_samples(X))
        check_consistent_length(X, y)
        weights = check_weights(self.estimator, sample_weight, num_samples(X))
        record_groups = None if groups is None else check_groups(groups, X)
        passed_on = record_groups if group_names(self.estimator) else None
        is_plain = weights is None and passed_on is None
        stacked = chooses_stacking(self.stacked, self.estimator, num_samples(X), is_plain)
        classes = y if learns_classes(self.estimator) and y.ndim == 1 else None
        if classes is not None:
            check_classification_targets(y)
        all_prints = fingerprints(X)
        prints, first, rows = np.unique(all_prints, return_index=True, return_inverse=True)
        units = rows if record_groups is None else connected_units(rows, record_groups)
        if classes is not None and len(distinct_labels(y)) < 2:
            raise ValueError(
                "y has only one class, so shadow models cannot be trained. Pass records of every "
                "class, or use attacks without shadow models, such as LossThreshold."
            )
        if units.max() < 3:
            what = "distinct rows" if record_groups is None else f"values of {record_groups.unit}"
            raise ValueError(
                f"X has {units.max() + 1} {what}; expected at least 4, to draw halves. Pass more "
                "records."
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        folder, content = None if self.path is None else Path(self.path), ""
        if folder is not None:
            known = (clone(self.estimator), stacked, self.n_shadows, all_prints, y)
            further = (weights,) if record_groups is None else (weights, record_groups.codes)
            content = joblib.hash(
                known if weights is None and record_groups is None else known + further
            )
            seed = open_folder(folder, content, seed, self.n_shadows)
        # Carlini et al. 2022, Algorithm 1, line 4: sample the shadow datasets; each record is in
        # half of them (Section IV-C)
        masks = complementary_halves(units, classes, self.n_shadows, np.random.default_rng(seed))
        jobs = TrainingJobs(
            [np.flatnonzero(mask[units]) for mask in masks],
            np.random.SeedSequence(seed).generate_state(self.n_shadows) >> 1,
            list_model_files(folder, self.n_shadows, f"{content} {seed}"),
        )
        shared, rest, seen = None, self.estimator, X
        if is_plain:
            shared, rest, seen = split_stateless_steps(self.estimator, X)
        listed = None if self.keep_models else RecordIndex(all_prints, ASK_MODELS)
        data = TrainingData(seen, y, weights, passed_on, None if listed is None else listed.first)
        # Carlini et al. 2022, Algorithm 1, lines 5 and 7: train the IN and the OUT models
        trained = train_shadows(
            rest, data, jobs, shared,
            stacked=stacked, n_jobs=self.n_jobs, device=self.device, verbose=self.verbose,
        )  # fmt: skip
        self.estimators_ = (
            trained if listed is None else [table.with_index(listed) for table in trained]
        )
        self.fingerprints_, self.masks_ = prints, masks[:, units[first]]
        first_model = trained[0]
        asks = choose_answers(first_model, y) if listed is None else KINDS[first_model.kind]
        self.classes_ = None
        if asks.by_class:
            self.classes_ = class_list(y, *(model.classes_ for model in self.estimators_))
        behind = shared if listed is None else listed
        self._answers = PoolAnswers(self.estimators_, behind, asks, self.classes_)
        self._answers.set_scale(X, y, all_prints)
        self._cached: tuple[str, Any] | None = None
        return self

    @classmethod
    def from_predictions(
        cls, X: Any, probas: ArrayLike, trained: ArrayLike, classes: ArrayLike
    ) -> ShadowPool:
        """Build a pool from the predictions of shadow models that were trained elsewhere.

        Parameters
        ----------
        X : {array-like, DataFrame, sparse matrix} of shape (n_records, n_features)
            All records that attacks will be given.
        probas : array-like of shape (n_shadows, n_records, n_classes)
            Probabilities by each shadow model.
        trained : array-like of bool of shape (n_shadows, n_records)
            Which model trained on which record. It must not depend on the target's members: draw
            random halves of members and non-members together.
        classes : array-like of shape (n_classes,)
            The class of each column.

        Returns
        -------
        ShadowPool
            Fitted.

        Raises
        ------
        ValueError
            If a shape is not as described, rows do not sum to one, or all models trained on a
            record.

        Examples
        --------
        >>> import numpy as np
        >>> from skprivacy.attacks import ShadowPool
        >>> probas = [[[0.9, 0.1], [0.6, 0.4]], [[0.4, 0.6], [0.2, 0.8]]]
        >>> trained = [[True, False], [False, True]]
        >>> pool = ShadowPool.from_predictions([[1.0], [2.0]], probas, trained, ["no", "yes"])
        >>> pool.logits([[2.0], [1.0]], ["yes", "no"]).round(1)
        array([[-0.4,  2.2],
               [ 1.4, -0.4]])
        """
        X, columns = as_records(X), np.asarray(classes)
        if columns.ndim != 1:
            raise ValueError(f"classes={classes!r} must be a list of the classes.")
        tables = check_table("probas", probas, ndim=3)
        inside = check_trained("trained", trained, tables.shape[:2])
        if tables.shape[1:] != (num_samples(X), len(columns)):
            raise ValueError(
                f"probas has shape {tables.shape}; expected (n_shadows, {num_samples(X)}, "
                f"{len(columns)}), from the records of X and the classes."
            )
        all_prints = fingerprints(X)
        prints, groups = np.unique(all_prints, return_inverse=True)
        listed = RecordIndex(all_prints)
        pool = cls(None, n_shadows=len(tables))
        pool.estimators_ = [PredictionTable(listed, table, columns) for table in tables]
        pool.fingerprints_ = prints
        pool.masks_ = np.stack([np.bincount(groups, weights=row) > 0 for row in inside])
        pool.classes_ = np.unique(columns)
        pool._answers = PoolAnswers(pool.estimators_, listed, PROBABILITIES, pool.classes_)
        pool._cached = None
        return pool

    def membership(self, X: Any) -> tuple[Mask, Mask]:
        """Return which models trained on each record, and which records the pool contains.

        Parameters
        ----------
        X : {array-like, DataFrame, sparse matrix} of shape (n_records, n_features)
            Records, in the pool or not.

        Returns
        -------
        trained : bool ndarray of shape (n_shadows, n_records)
            Which models trained on the record; False for records outside the pool.
        known : bool ndarray of shape (n_records,)
            Which records equal a record of the pool.
        """
        check_is_fitted(self)
        columns, known = self._columns(fingerprints(as_records(X)))
        return self.masks_[:, columns] & known, known

    def _columns(self, prints: NDArray[np.uint64]) -> tuple[NDArray[np.intp], Mask]:
        """Return the column of each record in ``masks_``; outside the pool, one chosen by hash."""
        columns = np.minimum(np.searchsorted(self.fingerprints_, prints), self.masks_.shape[1] - 1)
        known = self.fingerprints_[columns] == prints
        stand_in = (prints % self.masks_.shape[1]).astype(np.intp)
        return np.where(known, columns, stand_in), known

    def iter_proba(self, X: Any, classes: Any = None) -> Iterator[NDArray[np.float64]]:
        """Iterate over the models' probabilities of ``classes``.

        Parameters
        ----------
        X : {array-like, DataFrame, sparse matrix} of shape (n_records, n_features)
            Records to ask the models about.
        classes : array-like of shape (n_classes,), default=None
            The order of the columns. ``None``: ``classes_``.

        Returns
        -------
        iterator of ndarray of shape (n_records, n_classes)
            Probabilities by one model, computed when the iterator reaches it.
        """
        check_is_fitted(self)
        return self._answers.proba(as_records(X), classes)

    def logits(self, X: Any, y: Any) -> NDArray[np.float64]:
        """Return the log-odds of the true class under each shadow model.

        For models without probabilities, the values measure how well the answers fit, on a similar
        scale. The latest result is cached, so several attacks on the same records query the models
        once.

        Parameters
        ----------
        X : {array-like, DataFrame, sparse matrix} of shape (n_records, n_features)
            Records to ask the models about.
        y : array-like of shape (n_records,) or (n_records, n_outputs)
            Their classes, or numbers.

        Returns
        -------
        ndarray of shape (n_shadows, n_records)
            Higher where the answer fits better.
        """
        check_is_fitted(self)
        X = as_records(X)
        return self._logits(X, y, fingerprints(X))

    def _logits(self, X: Any, y: Any, prints: NDArray[np.uint64]) -> NDArray[np.float64]:
        y = targets_as_array(y, num_samples(X))
        check_consistent_length(X, y)
        key = joblib.hash((prints, fingerprints(y)))
        if self._cached is None or self._cached[0] != key:
            # Carlini et al. 2022, Algorithm 1, lines 6 and 8: phi of the shadow models' confidences
            self._cached = key, self._answers.as_log_odds(self._answers.signals(X, y, prints))
        return self._cached[1]

    def _ask_models(self, X: Any, y: Any) -> PoolLogits:
        """Return log-odds and membership of converted records, with one look-up of each."""
        check_is_fitted(self)
        prints = fingerprints(X)
        columns, known = self._columns(prints)
        # If any record is in the pool, all have half of the models as OUT models: the steadier
        # mean of records outside the pool would itself distinguish them.
        inside = self.masks_[:, columns]
        out = ~inside if known.any() else np.ones_like(inside)
        return PoolLogits(prints, self._logits(X, y, prints), inside & known, known, out)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return state | {"_cached": None} if "_cached" in state else state
