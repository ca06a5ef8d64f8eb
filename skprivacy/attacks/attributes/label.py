"""Label inference with label canaries: guess which label a record was trained with (Malek 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ..._clones import call_model, train_clone
from ..._docs import fill_docs
from ..._input_data import check_consistent_length, column_or_1d, label_columns, resolve_groups
from ..._sklearn import safe_indexing
from ..._validation import as_array, check_random_state, num_samples, open_unit, whole
from ...metrics.coin_guesses import epsilon_from_guesses
from ..attack_result import RESULT_DOCS, AttackResult
from ..model_answers import TargetAttack, class_list, predict_aligned
from ..record_tables import as_records

Float64Array = NDArray[np.float64]

_MIN_TARGET = 1e-12  # probability of a label, which keeps the log-odds finite
_MIN_PRIOR = 0.01  # larger, so that a certain prior cannot hide the target
# Shares of the canaries, by confidence, whose guesses are counted. They are fixed, so that the
# choice does not depend on the coins.
_SHARES = (1.0, 0.25)


@dataclass(frozen=True)
class LabelCanaries:
    """Label canaries: records trained with their true or another label, by a fair coin.

    Create them with :meth:`draw`.

    Attributes
    ----------
    rows : ndarray of shape (n_canaries,)
        Indices of the canaries' records.
    label, other : ndarray of shape (n_canaries,)
        The true label of each, and the label that it may be flipped to.
    kept : ndarray of bool of shape (n_canaries,)
        The coins: whether the true label is trained on.
    labels : ndarray of shape (n_samples,)
        All labels to train on, with the canaries' labels set by their coins.
    canary : ndarray of shape (n_rows,), default=None
        Canary of each of ``rows``, if canaries are groups with several records. One coin then
        decides whether all labels of a group are true. ``kept`` has shape (n_canaries,), and
        ``label`` and ``other`` have the shape of ``rows``.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.attacks import LabelCanaries
    >>> canaries = LabelCanaries.draw(np.arange(100) % 3, n_canaries=20, random_state=0)
    >>> flipped = (canaries.labels != np.arange(100) % 3).sum()
    >>> bool(flipped == (~canaries.kept).sum())
    True
    """

    rows: NDArray[np.intp]
    label: NDArray[Any]
    other: NDArray[Any]
    kept: NDArray[np.bool_]
    labels: NDArray[Any]
    canary: NDArray[np.intp] | None = None

    @classmethod
    def draw(
        cls,
        y: ArrayLike,
        n_canaries: int,
        *,
        classes: ArrayLike | None = None,
        random_state: Any = None,
        groups: ArrayLike | None = None,
    ) -> LabelCanaries:
        """Draw canaries, the label that each may be flipped to, and their coins.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            True labels.
        n_canaries : int
            Number of canaries, from 1 to n_samples. Many wrong labels make the model worse. A label
            is never flipped to itself.
        classes : array-like of shape (n_classes,), default=None
            Labels to flip to. ``None``: the labels in ``y``.
        random_state : int, RandomState instance or None, default=None
            Seed of the choice and of the coins.
        groups : array-like of shape (n_samples,), default=None
            Group of each record. Canaries are then groups, and ``n_canaries`` counts groups.

        Returns
        -------
        LabelCanaries
            With all labels to train on.
        """
        y = np.asarray(column_or_1d(y))
        known = class_list(y if classes is None else classes)
        if len(known) < 2:
            raise ValueError(
                f"classes must hold at least two labels, found {len(known)}. Pass all labels that "
                "may occur."
            )
        whole("n_canaries", n_canaries)
        units = resolve_groups(groups, y)
        if n_canaries > units.n:
            counted = "records" if groups is None else f"values of {units.unit}"
            raise ValueError(
                f"n_canaries={n_canaries!r} must be from 1 to the number of {counted}, {units.n}."
            )
        random = check_random_state(random_state)
        chosen = np.sort(random.permutation(units.n)[:n_canaries])
        rows = np.flatnonzero(np.isin(units.codes, chosen))
        canary = np.searchsorted(chosen, units.codes[rows])
        column = label_columns(y[rows], known)
        other = known[(column + random.randint(1, len(known), size=len(rows))) % len(known)]
        kept = random.randint(2, size=n_canaries).astype(bool)
        labels = y.copy()
        labels[rows] = np.where(kept[canary], y[rows], other)
        return cls(rows, y[rows], other, kept, labels, None if groups is None else canary)

    def _sum_by_canary(self, evidence: Float64Array) -> Float64Array:
        """Return each canary's evidence: the sum over its rows, shape (n_canaries,)."""
        if self.canary is None:
            return evidence
        return np.bincount(self.canary, evidence, len(self.kept)).astype(float)


@fill_docs(RESULT_DOCS)
@dataclass(frozen=True, eq=False, repr=False)
class LabelInferenceResult(AttackResult):
    """Result of label inference: scores of canaries that kept their label and of flipped ones.

    It is an :class:`AttackResult` whose "members" are the canaries that kept their label. A score
    above 0 is the guess that the label was kept. ``details`` has ``guessed`` and
    ``guessed_by_prior``, the shares of coins guessed correctly with and without the model.

    Parameters
    ----------
    scores_in, scores_out : array-like of shape (n_kept,) and (n_flipped,)
        Scores of canaries that kept their label, and of flipped ones.
    %(result_parameters)s
    """

    def epsilon_lower_bound(self, delta: float = 0.0, alpha: float | None = None) -> float:
        """Return a lower confidence bound on epsilon, at confidence ``1 - alpha``.

        It is the better of two bounds with ``alpha / 2`` each, from the number of correct guesses
        among all coins and among the most confident quarter. Both are exact for one training run.

        %(bound_sections)s
        """
        scores = np.concatenate([self.scores_in, self.scores_out])
        right = np.concatenate([self.scores_in > 0, self.scores_out < 0])  # a tie counts as wrong
        # Among equally confident guesses, wrong ones come first. The order of the scores would
        # reveal the coins, so it must not break ties.
        order = np.lexsort((right, -np.abs(scores)))
        alpha = self.alpha if alpha is None else open_unit("alpha", alpha)
        alpha /= len(_SHARES)  # a union bound
        n = len(scores)
        bounds = []
        for share in _SHARES:
            guessed = order[: max(1, round(share * n))]
            count = int(right[guessed].sum())
            # Steinke et al. 2023: bound from the correct guesses of one run
            bounds.append(epsilon_from_guesses(count, len(guessed), n, delta=delta, alpha=alpha))
        return max(bounds)


class LabelInferenceAttack(TargetAttack):
    """Infer which label a record was trained with, from a model and the record's features.

    Good predictions do not leak labels by themselves, because features predict labels. The attack
    therefore compares the target with a prior: a model that was not trained on the record.

    Parameters
    ----------
    target : fitted classifier, default=None
        The target model. If it has no ``predict_proba``, its predicted label is used. None makes a
        template for ``clone`` and ``set_params``.
    prior : classifier, default=None
        Cloned and fitted to the attacker's own records. ``None`` clones the target.
    n_canaries : int, default=1000
        Number of canaries that :func:`~skprivacy.audit.audit` draws, at most a quarter of the
        records.
    random_state : int, RandomState instance or None, default=None
        Seed of the canaries and of the trained models.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the target and of the attacker's records.
    prior_ : classifier
        The fitted prior.

    Notes
    -----
    **Guarantees.** :meth:`evaluate` measures a lower bound on the label epsilon if the target was
    trained on the labels of :class:`LabelCanaries`. It does not measure membership.

    References
    ----------
    M. Malek, I. Mironov, K. Prasad, I. Shilov and F. Tramer, "Antipodes of label differential
    privacy: PATE and ALIBI", NeurIPS 2021.
    T. Steinke, M. Nasr and M. Jagielski, "Privacy auditing with one (1) training run", NeurIPS
    2023.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skprivacy.attacks import LabelCanaries, LabelInferenceAttack
    >>> X, y = make_classification(2000, random_state=0)
    >>> canaries = LabelCanaries.draw(y[:1000], n_canaries=200, random_state=0)
    >>> target = DecisionTreeClassifier(random_state=0).fit(X[:1000], canaries.labels)
    >>> attack = LabelInferenceAttack(target, random_state=0).fit(X[1000:], y[1000:])
    >>> result = attack.evaluate(X[:1000], canaries)
    >>> result.epsilon_lower_bound() > 3
    True
    """

    def __init__(
        self,
        target: Any = None,
        *,
        prior: Any = None,
        n_canaries: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.target = target
        self.prior = prior
        self.n_canaries = n_canaries
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike) -> LabelInferenceAttack:
        """Fit the prior, which predicts labels from features without the target.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_records, n_features)
            Records of the attacker, none of which the target was trained on.
        y : array-like of shape (n_records,)
            Their labels.

        Returns
        -------
        LabelInferenceAttack
            Itself, fitted.
        """
        self._require_target()
        if not hasattr(self.target, "fit"):
            raise TypeError(f"target={self.target!r} must be a fitted classifier.")
        check_is_fitted(self.target)
        X, y = as_records(X), as_array("y", y)
        check_consistent_length(X, y)
        classes = class_list(self.target.classes_, y)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        learner = self.target if self.prior is None else self.prior
        if not hasattr(learner, "fit"):
            raise TypeError(f"prior={self.prior!r} must be a classifier, or None.")
        self.prior_ = train_clone(learner, X, y, np.arange(num_samples(X)), seed)
        self.classes_ = classes
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label that each record was most probably trained with.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_records, n_features)
            Records of the training set.

        Returns
        -------
        ndarray of shape (n_records,)
            Labels.
        """
        check_is_fitted(self, "prior_")
        return self.classes_[self._probabilities(self.target, as_records(X)).argmax(axis=1)]

    def _score_labels(self, X: Any, label: NDArray[Any], other: NDArray[Any]) -> Float64Array:
        """Return the evidence for ``label`` over ``other``: target minus prior, in log-odds."""
        # Malek et al. 2021: the model's advantage over a prior that did not see the label
        by_target = self._log_odds(self.target, X, label, other, _MIN_TARGET)
        return by_target - self._log_odds(self.prior_, X, label, other, _MIN_PRIOR)

    def evaluate(self, X: Any, canaries: LabelCanaries) -> LabelInferenceResult:
        """Guess the coins of the canaries that the target was trained on.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            The records that the canaries were drawn from.
        canaries : LabelCanaries
            Canaries whose ``labels`` the target was trained on.

        Returns
        -------
        LabelInferenceResult
            Scores of the canaries, and the share of coins that were guessed.

        Raises
        ------
        TypeError
            If ``canaries`` is not a :class:`LabelCanaries`.
        ValueError
            If all coins agree, or ``X`` has fewer records than the canaries were drawn from.
        """
        if not isinstance(canaries, LabelCanaries):
            raise TypeError(
                f"canaries must be LabelCanaries, got {type(canaries).__name__}. Draw them by "
                "LabelCanaries.draw(y, n_canaries=...), fit the target to their labels, and pass "
                "them here with the same X."
            )
        check_is_fitted(self, "prior_")
        X = as_records(X)
        if canaries.rows.max(initial=0) >= num_samples(X):
            raise ValueError(
                "X has fewer records than the data of the canaries. Pass the X that the target was "
                "fitted to."
            )
        own = safe_indexing(X, canaries.rows)
        two = canaries.label, canaries.other
        scores = canaries._sum_by_canary(self._score_labels(own, *two))
        by_prior = canaries._sum_by_canary(self._log_odds(self.prior_, own, *two, _MIN_PRIOR))
        details = {
            "n_canaries": len(scores),
            "guessed": float(np.mean((scores > 0) == canaries.kept)),
            "guessed_by_prior": float(np.mean((by_prior > 0) == canaries.kept)),
        }
        kept = canaries.kept
        if kept.all() or not kept.any():
            raise ValueError(
                f"canaries must hold kept and flipped labels, but all {len(kept)} coins agree. "
                "Draw more canaries."
            )
        return LabelInferenceResult(scores[kept], scores[~kept], type(self).__name__, 0.05, details)

    def _probabilities(self, model: Any, X: Any) -> Float64Array:
        if hasattr(model, "predict_proba"):
            return predict_aligned(model, X, self.classes_)
        columns = label_columns(call_model(model, "predict", X), self.classes_)
        return np.eye(len(self.classes_))[columns]

    def _log_odds(
        self, model: Any, X: Any, label: NDArray[Any], other: NDArray[Any], least: float
    ) -> Float64Array:
        probabilities = np.maximum(self._probabilities(model, X), least)
        rows = np.arange(len(probabilities))
        first, second = (label_columns(of, self.classes_) for of in (label, other))
        return np.log(probabilities[rows, first]) - np.log(probabilities[rows, second])
