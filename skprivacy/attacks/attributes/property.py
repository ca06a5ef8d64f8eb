"""Property inference: infer the share of a group in a training set (Ateniese et al. 2015).

The attacker sees a model, or the updates of federated training (Melis et al. 2019, passive).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import StratifiedKFold
from sklearn.utils.validation import check_is_fitted

from ..._clones import call_model, describe_error, train_clone
from ..._environment import N_JOBS, limit_workers
from ..._input_data import check_consistent_length, check_one_type
from ..._sklearn import HasMethods, safe_indexing
from ..._validation import (
    Interval,
    as_array,
    check_random_state,
    num_samples,
    open_unit,
    raise_alone,
    sequence,
)
from ...accounting.event import numbers
from ...base import roll_back_on_error
from ...metrics.rates import as_numbers, clopper_pearson
from ..attack_result import AttackResult
from ..membership.classifiers import linear_model
from ..model_answers import logit, predict_aligned, predicts_numbers
from ..record_tables import as_records
from ..updates import Updates, call_train, labels_as_columns

Float64Array = NDArray[np.float64]
_N_FOLDS = 5


@dataclass(frozen=True, repr=False)
class PropertyPrediction:
    """Answer about one target, and how often this answer is right on held-out shadow sets.

    Its truth value is ``has_property``.

    Attributes
    ----------
    has_property : bool
        Whether the target's records probably have the property.
    log_odds : float
        Log-odds that they have it.
    right : float
        Share of right answers among the ``n`` held-out shadow sets with the same answer; NaN if
        there are none.
    interval : (float, float)
        Confidence interval of ``right``.
    baseline : float
        Share of right answers if this answer were given about every shadow set, without a model.
    n : int
        Number of held-out shadow sets with the same answer.
    """

    has_property: bool
    log_odds: float
    right: float
    interval: tuple[float, float]
    baseline: float
    n: int

    @property
    def is_shown(self) -> bool:
        """Whether the whole interval lies above the baseline."""
        return self.interval[0] > self.baseline

    def __bool__(self) -> bool:
        return self.has_property

    def __repr__(self) -> str:
        low, high = self.interval
        answer = "with the property" if self.has_property else "without the property"
        shown = "" if self.is_shown else ", not shown to be better"
        return (
            f"{answer}: right for {self.right:.3f} [{low:.3f}, {high:.3f}] of {self.n} held-out "
            f"shadow sets with this answer; {self.baseline:.3f} without a model{shown}"
        )


class PropertyInference(BaseEstimator):
    """Infer a property of the training data, such as a share of women, from a model or updates.

    Shadow sets with and without the property are drawn from the attacker's records (Ateniese et al.
    2015). An attack model learns to distinguish shadow models by their predictions on fixed
    queries, so the attack is black-box (after Zhang, Tople & Ohrimenko 2021). For a party's updates
    it learns to distinguish the updates of the shadow sets, computed at the weights before each
    round. The log-odds of the rounds are added (Melis et al. 2019).

    Parameters
    ----------
    target : classifier with ``predict_proba``, regressor or pipeline, or Updates
        A model is cloned for the shadow models. Of Updates only the weights before each round are
        used, so the attacker may be any party.
    n_shadows : int, default=40
        Number of shadow sets, at least 2; every second one has the property.
    n_train : int, default=None
        Number of records in each shadow set. None: a quarter of the records of ``fit``, or as many
        as in the Updates.
    attack_model : classifier with ``predict_proba``, default=None
        None: logistic regression on scaled log-probabilities or updates.
    n_queries : int, default=100
        Number of records on which models are queried. Ignored for Updates.
    train : callable, default=None
        One round of a party, for Updates. It takes weights, records, classes and a seed. It returns
        the weights that the party sends back, including its clipping, noise and compression. None:
        one step on the mean of (clipped) gradients, with the noise of the target.
    n_jobs : int, default=None
        Number of shadow sets processed in parallel, as in scikit-learn; it does not change the
        result.
    random_state : int, RandomState instance or None, default=None
        Seed of the shadow sets, the shadow models, the queries and the noise.

    Attributes
    ----------
    attack_models_ : list of classifiers
        The attack model; one for each round of Updates.
    answers_ : ndarray of bool of shape (n_shadows,)
        Answer about each shadow set, by attack models that were trained without it (5 folds). Empty
        for fewer than 4 shadow sets.

    Notes
    -----
    **Edge cases.** Shadow sets share records if the attacker has few. Their answers then depend on
    each other, and the interval of a prediction is too narrow.

    References
    ----------
    G. Ateniese et al. Hacking smart machines with smarter ones. IJSN 10(3), 2015.
    W. Zhang, S. Tople, O. Ohrimenko. Leakage of dataset properties in multi-party machine
    learning. USENIX Security 2021.
    L. Melis, C. Song, E. De Cristofaro, V. Shmatikov. Exploiting unintended feature leakage in
    collaborative learning. IEEE S&P 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skprivacy.attacks import PropertyInference
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(800, 2))
    >>> y = rng.integers(0, 2, 800)
    >>> old = X[:, 0] > 0
    >>> attack = PropertyInference(GaussianNB(), n_shadows=20, random_state=0)
    >>> attack = attack.fit(X, y, old, shares=(0.2, 0.8))
    >>> target = GaussianNB().fit(X[old], y[old])
    >>> found = attack.predict(target)
    >>> found.has_property, found.baseline, found.is_shown
    (True, 0.5, True)
    """

    _parameter_constraints: dict[str, Any] = {
        "target": "no_validation",
        "n_shadows": [Interval(Integral, 2, None, closed="left")],  # one with the property, one not
        "n_train": [Interval(Integral, 1, None, closed="left"), None],
        "attack_model": [HasMethods(["fit", "predict_proba"]), None],
        "n_queries": [Interval(Integral, 1, None, closed="left")],
        "train": [callable, None],
        "n_jobs": N_JOBS,
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        target: Any,
        *,
        n_shadows: int = 40,
        n_train: int | None = None,
        attack_model: Any = None,
        n_queries: int = 100,
        train: Callable[[Float64Array, Any, NDArray[Any], int], Any] | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.target = target
        self.n_shadows = n_shadows
        self.n_train = n_train
        self.attack_model = attack_model
        self.n_queries = n_queries
        self.train = train
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, group: Any, shares: tuple[float, float] = (0.5, 0.8)
    ) -> PropertyInference:
        """Draw shadow sets with and without the property, and train the attack model on them.

        Parameters
        ----------
        X : {array-like, DataFrame, sparse matrix} of shape (n_records, n_features)
            Records of the attacker.
        y : array-like of shape (n_records,)
            Their classes, or the targets of a regressor.
        group : array-like of bool of shape (n_records,)
            Whether each record belongs to the group whose share is inferred.
        shares : (float, float), default=(0.5, 0.8)
            Share of the group in sets without and with the property.

        Returns
        -------
        PropertyInference
            Itself, fitted.

        Raises
        ------
        ValueError
            If ``group`` does not consist of both True and False (or 1 and 0), or there are too few
            records for a share.
        """
        self._validate_params()
        rng = check_random_state(self.random_state)
        if not isinstance(self.target, Updates) and not hasattr(self.target, "fit"):
            raise TypeError(f"target={self.target!r} must be a model with fit, or Updates.")
        given = numbers("shares", shares)
        if len(given) != 2 or not all(0 <= share <= 1 for share in given):
            raise ValueError(f"shares={shares!r} must be two numbers in [0, 1].")
        X, y, group = as_records(X), as_array("y", y), as_array("group", group)
        check_consistent_length(X, y, group)
        check_one_type("y", y)
        if group.ndim != 1 or group.dtype.kind not in "biuf" or set(group.tolist()) != {0, 1}:
            raise ValueError(
                f"group has shape {group.shape} and type {group.dtype}; expected True for some "
                'records and False for others, for example X["sex"] == "female".'
            )
        group = group.astype(bool)
        for share in given:  # refuses a share before any random draw
            self._counts(group, share)
        with roll_back_on_error(self):
            if not predicts_numbers(self.target):
                self.classes_ = np.unique(y)
            if not isinstance(self.target, Updates):
                queries = rng.permutation(num_samples(X))[: self.n_queries]
                self._queries = safe_indexing(X, queries)
            has_property = np.arange(self.n_shadows) % 2 == 1
            shadow_sets = [
                self._draw_shadow_set(group, given[int(has_it)], rng) for has_it in has_property
            ]
            views = np.array(
                Parallel(n_jobs=limit_workers(self.n_jobs, len(shadow_sets)))(
                    delayed(self._shadow_view)(safe_indexing(X, rows), y[rows], seed)
                    for rows, seed in shadow_sets
                )
            )
            # Ateniese et al. 2015: meta-classifier on shadow sets with and without the property
            self.attack_models_ = self._fit_attack_models(views, has_property)
            self.answers_ = self._answer_held_out(views, has_property)
            self._right = self.answers_ == has_property[: len(self.answers_)]
        return self

    def decision_function(self, target: Any) -> float:
        """Return the log-odds that the target's records have the property.

        Parameters
        ----------
        target : fitted classifier with ``predict_proba``, or Updates
            A model, or the updates of one party, from the same rounds as in ``fit`` and in the same
            order.

        Returns
        -------
        float
            Above 0 if they probably have it.

        Raises
        ------
        ValueError
            If the rounds began with other weights than in ``fit``.
        """
        check_is_fitted(self, "attack_models_")
        return self._sum_log_odds(self.attack_models_, self._view(target))

    def predict(self, target: Any, *, alpha: float = 0.05) -> PropertyPrediction:
        """Return whether the target's records probably have the property, and how sure that is.

        Parameters
        ----------
        target : fitted classifier or Updates
            The target, as in ``decision_function``.
        alpha : float, default=0.05
            Error probability of the interval.

        Returns
        -------
        PropertyPrediction
            True if ``log_odds`` is above 0. ``right`` is the share of right answers among the ``n``
            held-out shadow sets with this answer, with its Clopper-Pearson ``interval`` and the
            ``baseline`` of an attacker without a model.
        """
        open_unit("alpha", alpha)
        log_odds = self.decision_function(target)
        answer = log_odds > 0
        alike = self.answers_ == answer
        n, hits = int(alike.sum()), int(self._right[alike].sum())
        n_with = self.n_shadows // 2
        return PropertyPrediction(
            has_property=answer,
            log_odds=log_odds,
            right=hits / n if n else float("nan"),
            interval=clopper_pearson(hits, n, alpha) if n else (0.0, 1.0),
            baseline=(n_with if answer else self.n_shadows - n_with) / self.n_shadows,
            n=n,
        )

    def evaluate(self, models_with: list[Any], models_without: list[Any]) -> AttackResult:
        """Attack targets with and without the property; each target is one trial.

        Parameters
        ----------
        models_with, models_without : list of fitted classifiers, or of Updates
            Targets whose records have, or do not have, the property.

        Returns
        -------
        AttackResult
            With one score per target.
        """
        return AttackResult(
            self._score_targets("models_with", models_with),
            self._score_targets("models_without", models_without),
            type(self).__name__,
        )

    def _score_targets(self, name: str, models: Any) -> Float64Array:
        targets = sequence(name, models)
        if not targets:
            raise ValueError(f"{name}={models!r} must hold at least one model.")
        return np.array([self._score_target(f"{name}[{i}]", t) for i, t in enumerate(targets)])

    def _score_target(self, name: str, target: Any) -> float:
        try:
            return self.decision_function(target)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise_alone(kind(f"{name}: {describe_error(error)}"))

    def _choose_set_size(self, n_records: int) -> int:
        """Return the size of a shadow set that is drawn from ``n_records`` records."""
        known = self.target.n_records if isinstance(self.target, Updates) else n_records // 4
        return self.n_train or known

    def _draw_shadow_set(
        self, group: NDArray[np.bool_], share: float, rng: Any
    ) -> tuple[NDArray[np.intp], int]:
        """Draw the records of one shadow set, and the seed of its model."""
        n_group, n_others = self._counts(group, share)
        rows = np.r_[
            rng.permutation(np.flatnonzero(group))[:n_group],
            rng.permutation(np.flatnonzero(~group))[:n_others],
        ]
        return rows, int(rng.randint(2**31 - 1))

    def _counts(self, group: NDArray[np.bool_], share: float) -> tuple[int, int]:
        """Return the numbers of records of the group and of others in a shadow set."""
        n_train = self._choose_set_size(len(group))
        n_group = round(share * n_train)
        if n_group > group.sum() or n_train - n_group > (~group).sum():
            raise ValueError(
                f"share={share:g} of n_train={n_train} needs {n_group} records of the group and "
                f"{n_train - n_group} others; X has {group.sum()} and {(~group).sum()}. Lower "
                "n_train or pass more records."
            )
        return n_group, n_train - n_group

    def _fit_attack_models(self, views: Float64Array, has_property: NDArray[np.bool_]) -> list[Any]:
        """Fit an attack model for each round."""
        base = linear_model() if self.attack_model is None else self.attack_model
        return [clone(base).fit(views[:, t], has_property) for t in range(views.shape[1])]

    def _answer_held_out(
        self, views: Float64Array, has_property: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Return the answer about each shadow set, by attack models trained without it."""
        n_folds = min(_N_FOLDS, len(views) // 2)
        if n_folds < 2:
            return np.zeros(0, dtype=bool)
        answers = np.zeros(len(views), dtype=bool)
        for used, held in StratifiedKFold(n_folds).split(has_property, has_property):
            models = self._fit_attack_models(views[used], has_property[used])
            answers[held] = [self._sum_log_odds(models, views[i]) > 0 for i in held]
        return answers

    def _sum_log_odds(self, attack_models: list[Any], view: Float64Array) -> float:
        """Return the log-odds of all rounds together (Melis et al. 2019)."""
        return sum(map(self._log_odds, attack_models, view))

    def _log_odds(self, attack_model: Any, view: Float64Array) -> float:
        proba = attack_model.predict_proba(view[None])[:, 1]
        return float(logit(np.c_[1 - proba, proba], np.array([1]))[0])

    def _view(self, target: Any) -> Float64Array:
        """Return the features of a target, (n_rounds, n_features); a model has one round."""
        if predicts_numbers(self.target):
            if not predicts_numbers(target):
                raise TypeError(f"target={target!r} must be a fitted regressor.")
            answers = as_numbers(
                "predict(X)",
                call_model(target, "predict", self._queries),
                "one prediction for each record",
            )
            return answers.reshape(1, -1)
        if not isinstance(self.target, Updates):
            if not hasattr(target, "predict_proba"):
                raise TypeError(f"target={target!r} must be a classifier with predict_proba.")
            proba = predict_aligned(target, self._queries, self.classes_)
            return np.log(np.maximum(proba, 1e-6)).reshape(1, -1)
        if not isinstance(target, Updates):
            raise TypeError(f"target={target!r} must be Updates, of one party.")
        before = self.target.before
        if target.before.shape != before.shape or (target.before != before).any():
            raise ValueError(
                "target has other weights before its rounds than in fit; expected the same rounds "
                "in the same order. Fit an attack on these rounds."
            )
        return np.asarray(target.after - target.before)

    def _shadow_view(self, X: Any, y: NDArray[Any], seed: int) -> Float64Array:
        """Return the features of a model trained on these records, or of their updates."""
        seen = self.target
        if not isinstance(seen, Updates):
            return self._view(train_clone(seen, X, y, np.arange(len(y)), seed))
        if self.train is not None:
            return np.array([call_train(self.train, w, X, y, seed) - w for w in seen.before])
        label, n_weights = labels_as_columns(seen.model, y), seen.before.shape[1]
        random = np.random.default_rng(seed)
        return np.array(
            [
                -seen.step[t] * seen._gradients(t, X, label).mean(n_weights)
                + seen.noise_std * random.normal(size=n_weights)
                for t in range(seen.n_rounds)
            ]
        )
