"""A pool of shadow models, trained once and shared by several attacks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from .._clones import check_weights, group_names
from .._data_validation import check_classification_targets, check_consistent_length
from .._groups import Groups, check_groups
from .._jobs import N_JOBS
from .._sklearn import StrOptions
from .._stacked import is_stackable
from .._validation import VERBOSE, Interval, check_random_state, distinct
from ..base import undone_if_refused
from ._answers import KINDS, PROBABILITIES, answers_of, learns_classes, targets_of
from ._halves import complementary_halves
from ._people import hanging_together
from ._pool_answers import PoolAnswers
from ._pool_folder import files_of, open_folder
from ._predictions import class_list
from ._records import as_records, fingerprints, num_samples
from ._shadow_training import Data, Jobs, train_shadows
from ._shared_steps import split
from ._tables import Listed, PredictionTable, check_table, check_trained

__all__ = ["Said", "ShadowPool"]

Mask = NDArray[np.bool_]
ASK_MODELS = (
    "The shadow models were dropped once they had answered (keep_models=False). Pass records of "
    "the pool, or train it with keep_models=True."
)
NOT_LEARNING = (
    "All shadow models answer exactly alike, so they cannot show what a model learns from a "
    "record. Either fit ignores its records (a table of probabilities, a frozen model), or nothing "
    "in the answers depends on them. For a table, use LossThreshold or SignalThreshold, or pass a "
    "pool of models that are trained like the one that made it."
)


class Said(NamedTuple):
    """What the models of a pool say of records, and which of them were trained on each.

    Attributes
    ----------
    prints : ndarray of shape (n_records,)
        Fingerprints of the records.
    logits : ndarray of shape (n_shadows, n_records)
    trained, out : ndarray of bool of shape (n_shadows, n_records)
        Which models were trained on it, and which count as not trained on it.
    known : ndarray of bool of shape (n_records,)
        Which of them the pool was trained on.
    """

    prints: NDArray[np.uint64]
    logits: NDArray[np.float64]
    trained: Mask
    known: Mask
    out: Mask


class ShadowPool(BaseEstimator):
    """Models like the target, each trained on a random half of the attacker's records.

    Models come in pairs that train on complementary halves, so every record is in the training
    half of exactly ``n_shadows / 2`` models. Rows with equal features stay together: a record
    counts as "out" for a model only if no copy of it was "in".

    Parameters
    ----------
    estimator : estimator
        Model or pipeline to train, usually the target: a classifier, a regressor, or whatever
        gives a score of single records (:class:`LossThreshold` lists what counts). It is cloned,
        never changed.
    n_shadows : int, default=16
        Number of models; even.
    n_jobs : int, default=None
        Number of models trained in parallel, as in joblib, whose backend is honoured. None: as many
        as joblib is configured for, or else one; but as many as the linear algebra library uses
        threads where models are stacked, of which each job trains several, or are such of
        scikit-learn as train in threads, like forests.
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
    device : str, default=None
        Where stacked networks are trained: "cpu", "cuda" or another device of torch of that kind,
        on which as many are trained at once as its memory holds, or "auto" for a GPU if there is
        one. ``None`` means where the estimator trains, by its own ``device``. Results are equal to
        rounding, but for the noise of private ones, which a device makes itself.
    verbose : int, default=0
        Verbosity of joblib; a progress bar if models are stacked.
    keep_models : bool, default=True
        Whether the models stay in memory. False keeps what each answers about the records of
        ``fit``, 8 bytes a record and class, and the pool then serves attacks on these records
        alone: a forest of 20 MiB becomes 160 KB for 10,000 records and two classes.

    Attributes
    ----------
    estimators_ : list of estimators
        The trained shadow models. Stacked ones have ``classes_``, ``predict_proba`` and
        ``predict`` only; with ``keep_models=False`` tables of their answers stand in for them.
    classes_ : ndarray of shape (n_classes,) or None
        All classes, those missing in some halves included; None if one class a record is not what
        the models predict.
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

    @undone_if_refused
    def fit(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, groups: Any = None
    ) -> ShadowPool:
        """Train the shadow models.

        Parameters
        ----------
        X : {array-like, DataFrame, sparse matrix} of shape (n_records, n_features)
            The attacker's records: drawn like the target's training records, and possibly
            among them.
        y : array-like of shape (n_records,) or (n_records, n_outputs)
            What is predicted of them; None for models that are fitted without it.
        sample_weight : array-like of shape (n_records,), default=None
            Weights of the records, passed to ``fit`` of the estimator or of a pipeline's last step.
        groups : array-like of shape (n_records,), default=None
            Whose record each is. Then people are halved: all records of a person are in the same
            half, and so are people who share a row. They are passed on to where ``fit`` of the
            estimator, or of a pipeline's steps, takes groups.

        Returns
        -------
        ShadowPool
            Itself, fitted.

        Raises
        ------
        ValueError
            If ``n_shadows`` is odd, there are fewer than 4 distinct rows (or people without a
            common row) or, for classifiers, fewer than 2 classes, the estimator takes no weights,
            most records hang together by people and equal rows, or ``path`` holds a pool of other
            records, of another estimator or of another size.
        """
        self._validate_params()
        if self.n_shadows % 2:
            raise ValueError(
                f"n_shadows={self.n_shadows} must be even: shadow models come in pairs that "
                f"train on complementary halves. Use {self.n_shadows + 1}."
            )
        if not hasattr(self.estimator, "fit"):
            raise TypeError(f"estimator={self.estimator!r} must be a model to be trained.")
        X = as_records(X)
        y = targets_of(y, num_samples(X))
        check_consistent_length(X, y)
        weights = check_weights(self.estimator, sample_weight, num_samples(X))
        people = None if groups is None else check_groups(groups, X)
        passed_on = people if group_names(self.estimator) else None
        stacked = self._stacks(weights, passed_on)
        classes = y if learns_classes(self.estimator) and y.ndim == 1 else None
        if classes is not None:
            check_classification_targets(y)
        all_prints = fingerprints(X)
        prints, first, rows = np.unique(all_prints, return_index=True, return_inverse=True)
        units = rows if people is None else hanging_together(rows, people)
        if classes is not None and len(distinct(y)) < 2:
            raise ValueError(
                "y has one class alone, of which shadow models learn nothing. Pass records of "
                "every class, or use attacks that need no shadow models, such as LossThreshold."
            )
        if units.max() < 3:
            what = "distinct rows" if people is None else f"values of {people.unit}"
            raise ValueError(
                f"X has {units.max() + 1} {what}, too few for halves; expected at least 4. Pass "
                "more records."
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        folder, content = None if self.path is None else Path(self.path), ""
        if folder is not None:
            known = (clone(self.estimator), stacked, self.n_shadows, all_prints, y)
            further = (weights,) if people is None else (weights, people.codes)
            content = joblib.hash(known if weights is None and people is None else known + further)
            seed = open_folder(folder, content, seed, self.n_shadows)
        masks = complementary_halves(units, classes, self.n_shadows, np.random.default_rng(seed))
        jobs = Jobs(
            [np.flatnonzero(mask[units]) for mask in masks],
            np.random.SeedSequence(seed).generate_state(self.n_shadows) >> 1,
            files_of(folder, self.n_shadows, f"{content} {seed}"),
        )
        alike = weights is None and passed_on is None
        shared, rest, seen = split(self.estimator, X) if alike else (None, self.estimator, X)
        listed = None if self.keep_models else Listed(all_prints, ASK_MODELS)
        data = Data(seen, y, weights, passed_on, None if listed is None else listed.first)
        trained = train_shadows(
            rest,
            data,
            jobs,
            shared,
            stacked=stacked,
            n_jobs=self.n_jobs,
            device=self.device,
            verbose=self.verbose,
        )
        self.estimators_ = trained if listed is None else [table.of(listed) for table in trained]
        self.fingerprints_, self.masks_ = prints, masks[:, units[first]]
        first_model = trained[0]
        asks = answers_of(first_model, y) if listed is None else KINDS[first_model.kind]
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
        """Return the pool of models that were trained elsewhere, from what they said of records.

        Parameters
        ----------
        X : {array-like, DataFrame, sparse matrix} of shape (n_records, n_features)
            The records, all that attacks will be given.
        probas : array-like of shape (n_shadows, n_records, n_classes)
            Probabilities by each shadow model.
        trained : array-like of bool of shape (n_shadows, n_records)
            Which model trained on which record. Who the target's members are must have no part in
            it: take random halves of members and non-members alike.
        classes : array-like of shape (n_classes,)
            The class of each column.

        Returns
        -------
        ShadowPool
            Fitted.

        Raises
        ------
        ValueError
            If a shape is not as described, rows do not sum to one, or a record was in the training
            set of all models.

        Examples
        --------
        >>> import numpy as np
        >>> from skprivacy.attacks import ShadowPool
        >>> said = [[[0.9, 0.1], [0.6, 0.4]], [[0.4, 0.6], [0.2, 0.8]]]
        >>> trained = [[True, False], [False, True]]
        >>> pool = ShadowPool.from_predictions([[1.0], [2.0]], said, trained, ["no", "yes"])
        >>> pool.logits([[2.0], [1.0]], ["yes", "no"]).round(1)
        array([[-0.4,  2.2],
               [ 1.4, -0.4]])
        """
        X, columns = as_records(X), np.asarray(classes)
        tables = check_table("probas", probas, ndim=3)
        inside = check_trained("trained", trained, tables.shape[:2])
        if tables.shape[1:] != (num_samples(X), len(columns)):
            raise ValueError(
                f"probas has shape {tables.shape}; expected (n_shadows, {num_samples(X)}, "
                f"{len(columns)}), for the records of X and the classes."
            )
        all_prints = fingerprints(X)
        prints, groups = np.unique(all_prints, return_inverse=True)
        listed = Listed(all_prints)
        pool = cls(None, n_shadows=len(tables))
        pool.estimators_ = [PredictionTable(listed, table, columns) for table in tables]
        pool.fingerprints_ = prints
        pool.masks_ = np.stack([np.bincount(groups, weights=row) > 0 for row in inside])
        pool.classes_ = np.unique(columns)
        pool._answers = PoolAnswers(pool.estimators_, listed, PROBABILITIES, pool.classes_)
        pool._cached = None
        return pool

    def _stacks(self, weights: NDArray[np.float64] | None, people: Groups | None) -> bool:
        """Return whether models are trained side by side."""
        able = is_stackable(self.estimator) and weights is None and people is None
        if self.stacked is True and not able:
            raise ValueError(
                "stacked=True needs MLPClassifier(solver='adam', early_stopping=False) or a "
                "DPSGDClassifier without a custom module, alone or at the end of a pipeline, and "
                f"neither sample_weight nor groups; got {self.estimator!r}. Use stacked='auto' or "
                "stacked=False."
            )
        return bool(self.stacked) and able

    def membership(self, X: Any) -> tuple[Mask, Mask]:
        """Return which models trained on each row, and which rows the pool knows.

        Parameters
        ----------
        X : {array-like, DataFrame, sparse matrix} of shape (n_records, n_features)
            Records, of the pool or not.

        Returns
        -------
        trained : bool ndarray of shape (n_shadows, n_records)
            Which models were trained on it; False for rows that the pool does not know.
        known : bool ndarray of shape (n_records,)
            Which rows equal a record of the pool.
        """
        check_is_fitted(self)
        columns, known = self._columns(fingerprints(as_records(X)))
        return self.masks_[:, columns] & known, known

    def left_out(self, X: Any) -> Mask:
        """Return the models that count as not trained on each row.

        If the pool knows any of the rows, each row gets exactly half of the models, known or not.
        All rows are then compared with equally many models; otherwise the steadier mean of
        unknown rows would itself distinguish them.

        Parameters
        ----------
        X : {array-like, DataFrame, sparse matrix} of shape (n_records, n_features)
            Records, of the pool or not.

        Returns
        -------
        ndarray of bool of shape (n_shadows, n_records)
            True where the model counts.
        """
        check_is_fitted(self)
        return self._left_out(*self._columns(fingerprints(as_records(X))))

    def _left_out(self, columns: NDArray[np.intp], known: Mask) -> Mask:
        if not known.any():
            return np.ones((self.n_shadows, len(known)), dtype=bool)
        return ~self.masks_[:, columns]

    def _columns(self, prints: NDArray[np.uint64]) -> tuple[NDArray[np.intp], Mask]:
        """Return the column of each row in ``masks_``; for unknown rows, one chosen by hash."""
        columns = np.minimum(np.searchsorted(self.fingerprints_, prints), self.masks_.shape[1] - 1)
        known = self.fingerprints_[columns] == prints
        stand_in = (prints % self.masks_.shape[1]).astype(np.intp)
        return np.where(known, columns, stand_in), known

    def iter_proba(self, X: Any, classes: Any = None) -> Iterator[NDArray[np.float64]]:
        """Return each model's probabilities over ``classes``, one after the other.

        Parameters
        ----------
        X : {array-like, DataFrame, sparse matrix} of shape (n_records, n_features)
            Records to ask the models about.
        classes : array-like of shape (n_classes,), default=None
            The order of the columns. ``None``: ``classes_``.

        Returns
        -------
        iterator of ndarray of shape (n_records, n_classes)
            Probabilities by one model, asked when its turn comes.
        """
        check_is_fitted(self)
        return self._answers.proba(as_records(X), classes)

    def answers_vary(self, X: Any) -> bool:
        """Return whether shadow models answer differently to some of the records.

        True also where every answer is the same for every record: a constant tells nothing, and
        this is measured.

        Parameters
        ----------
        X : {array-like, DataFrame, sparse matrix} of shape (n_records, n_features)
            Records to ask the models about.

        Returns
        -------
        bool
            False if no answer depends on what a model was trained on, though answers differ between
            records.
        """
        check_is_fitted(self)
        return self._answers.vary(as_records(X))

    def logits(self, X: Any, y: Any) -> NDArray[np.float64]:
        """Return the log-odds of the true class.

        Of models that give no probabilities: how well their answers fit, on a like scale. The
        latest result is cached, so that several attacks on the same records query the models only
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
        y = targets_of(y, num_samples(X))
        check_consistent_length(X, as_records(y, "y"))
        key = joblib.hash((prints, fingerprints(y)))
        if self._cached is None or self._cached[0] != key:
            self._cached = key, self.as_log_odds(self._answers.signals(X, y, prints))
        return self._cached[1]

    def _says_of(self, X: Any, y: Any) -> Said:
        """Return all that an attack compares a target with, each record being looked up once."""
        check_is_fitted(self)
        X = as_records(X)
        prints = fingerprints(X)
        columns, known = self._columns(prints)
        return Said(
            prints,
            self._logits(X, y, prints),
            self.masks_[:, columns] & known,
            known,
            self._left_out(columns, known),
        )

    def as_log_odds(self, signal: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a model's signal on the scale of log-odds, by what is usual of shadow models.

        The scale is that of all records of the pool and all of its models, so it depends neither
        on the target nor on who its members are. Log-odds themselves stay as they are.

        Parameters
        ----------
        signal : ndarray of shape (n_records,)
            Of one model, on the scale of :meth:`logits`.

        Returns
        -------
        ndarray of shape (n_records,)
            On the scale of log-odds.
        """
        return self._answers.as_log_odds(signal)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return state | {"_cached": None} if "_cached" in state else state
