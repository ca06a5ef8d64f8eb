"""Base of membership inference attacks (score, threshold, decision), and the loss threshold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ... import metrics
from ..._docs import fill_docs
from ..._input_data import check_consistent_length, label_columns
from ..._validation import Interval, as_array, num_samples
from ...base import roll_back_on_error
from .. import scores
from ..attack_result import AttackResult
from ..model_answers import (
    PROBABILITIES,
    Answers,
    TargetAttack,
    as_classifier,
    check_known,
    choose_answers,
    class_list,
    predict_aligned,
    targets_as_array,
)
from ..record_tables import as_records, concat, fingerprints

MEMBERSHIP_DOCS = {
    "target_classifier": """\
target : fitted classifier with ``predict_proba``, default=None
    The target model. None makes a template for ``clone`` and ``set_params``.""",
    "shadow_pool": """\
pool : int or ShadowPool, default=16
    Shadow models: an even number of clones of the target to train, or a pool. A fitted pool is used
    as it is. An unfitted one is cloned and trained on the records given to ``fit``.
random_state : int, RandomState instance or None, default=None
    Seed of the shadow models, if ``pool`` is a number.""",
    "scored_records": """\
X : {array-like, DataFrame, sparse matrix} of shape (n_records, n_features)
    Records to score.
y : array-like of shape (n_records,) or (n_records, n_outputs)
    True classes or target values, as in ``fit``.""",
    "evaluate_sections": """\
X_in, y_in : array-like
    Members: records of the target's training set, as in ``fit``.
X_out, y_out : array-like
    Non-members from the same population.

Returns
-------
AttackResult
    The scores of both samples.""",
    "network_target": """\
target : fitted network, default=None
    ``MLPClassifier``, or a classifier whose ``module_`` is a torch module made of linear layers and
    returns logits; alone or at the end of a pipeline.""",
    "forest_target": """\
>>> from sklearn.datasets import make_classification
>>> from sklearn.ensemble import RandomForestClassifier
>>> X, y = make_classification(400, flip_y=0.3, random_state=0)
>>> target = RandomForestClassifier(10, random_state=0).fit(X[:200], y[:200])""",
    "attack_fpr": """\
fpr : float, default=0.05
    False positive rate that ``predict`` aims at if ``fit`` is given no ``member``.""",
    "pool_": """\
pool_ : ShadowPool
    The fitted pool.""",
}

__all__ = ["LossThreshold", "MembershipAttack", "choose_threshold"]

Float64Array = NDArray[np.float64]


@fill_docs(MEMBERSHIP_DOCS)
class MembershipAttack(ABC, TargetAttack):
    """Base of attacks that infer whether a record was in a fitted model's training set.

    A subclass implements ``_score(X, y)`` and, if it learns anything in ``fit``, ``_learn``.
    A clone attacks the same fitted target with the same pool of shadow models.
    """

    fpr: float | None

    # Whether the attack needs class probabilities (LabelOnlyAttack: labels). Attacks that compare
    # one number per record also accept margins, densities, residuals and distances.
    _needs_classes: ClassVar[bool] = True
    # Whether ``fit`` requires ``member``.
    _needs_members: ClassVar[bool] = False

    _parameter_constraints: dict[str, Any] = {
        "target": "no_validation",
        "fpr": [Interval(Real, 0, 1, closed="neither")],
    }

    def fit(self, X: Any, y: Any, member: ArrayLike | None = None) -> MembershipAttack:
        """Fit the attack to the attacker's records and set ``threshold_``.

        Parameters
        ----------
        X : {array-like, DataFrame, sparse matrix} of shape (n_records, n_features)
            Records like the target's training records.
        y : array-like of shape (n_records,) or (n_records, n_outputs)
            Their true classes, of the type the target was fitted with, or target values. None for
            models that are fitted without ``y``.
        member : array-like of bool of shape (n_records,), default=None
            Whether each record was in the target's training set. None: the attacker does not know.

        Returns
        -------
        MembershipAttack
            Itself, fitted.

        Raises
        ------
        ValueError
            If a parameter or a shape is not as described, or the target knows none of the labels.

        Notes
        -----
        A label that the target does not know has probability 0, so its records score like
        non-members; a warning gives their number.

        ``threshold_`` is the lowest score that ``predict`` calls a member. With ``member``, it
        maximises TPR minus FPR on these records. Otherwise at most a share ``fpr`` of these records
        is called members, so the false positive rate is even lower if some of them are members.
        Attacks with another rule describe it.
        """
        self._validate_params()
        self._require_target()
        X = as_records(X)
        self._check_target(X, y)
        y = targets_as_array(y, num_samples(X))
        check_consistent_length(X, y)
        known = None if member is None else _check_member(member, num_samples(X))
        with roll_back_on_error(self):
            self.classes_ = self._all_classes(self._target_classes(X), y)
            self._learn(X, y, known)
            self.threshold_ = self._calibrate(X, y, known)
        return self

    def score_samples(self, X: Any, y: Any) -> Float64Array:
        """Return a membership score for each record, higher for members.

        Parameters
        ----------
        %(scored_records)s

        Returns
        -------
        ndarray of shape (n_records,)
            The scores.
        """
        check_is_fitted(self, "threshold_")
        X = as_records(X)
        y = targets_as_array(y, num_samples(X))
        check_consistent_length(X, y)
        return self._score(X, y)

    def predict(self, X: Any, y: Any) -> NDArray[np.bool_]:
        """Return True for each record that the attack calls a member.

        Parameters
        ----------
        %(scored_records)s

        Returns
        -------
        ndarray of bool of shape (n_records,)
            Whether the score is at least ``threshold_``.
        """
        return self.score_samples(X, y) >= self.threshold_

    def evaluate(self, X_in: Any, y_in: Any, X_out: Any, y_out: Any) -> AttackResult:
        """Attack records of known membership and return the result.

        Parameters
        ----------
        %(evaluate_sections)s

        Notes
        -----
        Both samples are scored in one call. ``details["in_both"]`` counts the non-members that
        equal a member. They stay in the sample, since dropping them from one sample only would make
        the samples distinguishable without any leakage.
        """
        check_is_fitted(self, "threshold_")
        X_in, X_out = as_records(X_in, "X_in"), as_records(X_out, "X_out")
        n_in = num_samples(X_in)
        parts = targets_as_array(y_in, n_in), targets_as_array(y_out, num_samples(X_out))
        if parts[0].shape[1:] != parts[1].shape[1:] or not (parts[0].ndim and parts[1].ndim):
            raise ValueError(
                f"y_in and y_out have shapes {parts[0].shape} and {parts[1].shape}; expected the "
                "same shape except for the number of records."
            )
        try:
            y = np.concatenate(parts)
        except TypeError:
            raise TypeError("y_in and y_out must have labels of the same type.") from None
        values = self._score(concat(X_in, X_out), y)
        details = {
            "in_both": int(np.isin(fingerprints(X_out), fingerprints(X_in)).sum()),
            "threshold": float(self.threshold_),
        }
        return AttackResult(values[:n_in], values[n_in:], self._name, details=details)

    @property
    def _name(self) -> str:
        """Name of the attack in results."""
        return type(self).__name__

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        """Learn from the attacker's records what ``_score`` needs; nothing by default."""

    def _check_target(self, X: Any, y: Any) -> None:
        """Refuse a target that is not fitted, or whose answers this attack cannot use."""
        classes = self._target_classes(X)
        if classes is not None and np.ndim(y) == 1:
            return
        asked = self._target_answers(X, targets_as_array(y, num_samples(X)))
        kind = type(self.target).__name__
        if y is None and asked.needs_y:
            raise ValueError(
                f"y=None must be what {kind} predicts, to compare its {asked.name} with it. Pass "
                "y in the form the target was fitted with."
            )
        if self._needs_classes:
            raise TypeError(
                f"{type(self).__name__} needs the class of each record, but {kind} returns "
                f"{asked.name}, or y does not hold one class per record. Use LossThreshold, LiRA, "
                "RMIA or StrongestAttack."
            )
        if classes is None:
            check_is_fitted(self.target)

    def _target_classes(self, X: Any) -> Any:
        """Return the target's classes, or None if it has none or several lists."""
        classes = getattr(as_classifier(self.target, X), "classes_", None)
        return None if isinstance(classes, list) else classes

    def _all_classes(self, classes: Any, y: NDArray[Any]) -> Any:
        if classes is None or y.ndim > 1:
            return None
        union = class_list(classes, y)
        check_known(y, classes)
        return union

    def _target_answers(self, X: Any, y: NDArray[Any]) -> Answers:
        return choose_answers(as_classifier(self.target, X), y)

    def _calibrate(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> float:
        return choose_threshold(self._score(X, y), member, self.fpr)

    @abstractmethod
    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        """Return the scores of checked records."""

    def _target_proba(self, X: Any, y: NDArray[Any]) -> tuple[Float64Array, NDArray[np.intp]]:
        """Return the target's probabilities over ``classes_`` and the column of each label."""
        proba = predict_aligned(as_classifier(self.target, X), X, self.classes_)
        return proba, label_columns(y, self.classes_)

    def _target_minus_loss(self, X: Any, y: NDArray[Any]) -> Float64Array:
        """Return minus the target's loss on each record, for any kind of answer."""
        model = as_classifier(self.target, X)
        return choose_answers(model, y).minus_losses(model, X, y, self.classes_)


class LossThreshold(MembershipAttack):
    """Call a record a member if the target's loss on it is low (Yeom et al. 2018).

    The loss depends on the target: the log-loss of class probabilities, its mean over the labels
    of a multi-label classifier, minus the margin of ``decision_function``, the size of a
    regressor's residual, minus the log-density of ``score_samples``, or the distance from the
    nearest cluster centre.

    Parameters
    ----------
    target : fitted model, default=None
        The target model. None makes a template for ``clone`` and ``set_params``.
    training_loss : float, default=None
        Mean loss of the target on its training records, as its owner may publish it. ``predict``
        calls a record a member if its loss is at most this value: the rule of the paper. None
        replaces it by the loss that the target expects on the records given to ``fit``: the mean
        entropy of its predictions, which is usually larger, so more records are called members. For
        models without class probabilities, None uses the mean loss on these records.
    fpr : float, default=None
        False positive rate that ``predict`` aims at instead. No record is called a member if a
        larger share of records ties for the lowest loss, as often happens with trees.

    Notes
    -----
    Both rules are for attackers who know no member. If ``fit`` is given ``member``, the threshold
    is the best one for these records.

    References
    ----------
    S. Yeom, I. Giacomelli, M. Fredrikson, S. Jha. Privacy risk in machine learning: analyzing
    the connection to overfitting. CSF 2018.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skprivacy.attacks import LossThreshold
    >>> X, y = make_classification(400, flip_y=0.3, random_state=0)
    >>> target = DecisionTreeClassifier(random_state=0).fit(X[:200], y[:200])
    >>> attack = LossThreshold(target).fit(X, y)
    >>> attack.evaluate(X[:200], y[:200], X[200:], y[200:]).auc > 0.6
    True
    """

    _parameter_constraints: dict[str, Any] = {
        **MembershipAttack._parameter_constraints,
        "training_loss": [Interval(Real, 0, None, closed="left"), None],
        "fpr": [Interval(Real, 0, 1, closed="neither"), None],
    }

    _needs_classes = False

    def __init__(
        self, target: Any = None, *, training_loss: float | None = None, fpr: float | None = None
    ) -> None:
        self.target = target
        self.training_loss = training_loss
        self.fpr = fpr

    def _calibrate(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> float:
        if member is not None or self.fpr is not None:
            return super()._calibrate(X, y, member)
        if self.training_loss is not None:
            # Yeom et al. 2018, threshold adversary: member if the loss is at most the training
            # loss. 1e-12 keeps records whose loss equals the mean despite rounding.
            return -self.training_loss - 1e-12
        if self._target_answers(X, y) is not PROBABILITIES:
            return float(self._score(X, y).mean()) - 1e-12
        return float(scores.entropy(*self._target_proba(X, y)).mean()) - 1e-12

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        return self._target_minus_loss(X, y)


def _check_member(member: ArrayLike, n_records: int) -> NDArray[np.bool_]:
    known = as_array("member", member)
    if known.shape != (n_records,) or known.dtype != bool:
        raise ValueError(
            f"member has shape {known.shape} and type {known.dtype}; expected one bool for each "
            f"of the {n_records} records. Leave it None if membership is not known."
        )
    if known.all() or not known.any():
        raise ValueError(
            f"member must hold both True and False; got only {bool(known.all())}. Leave it None if "
            "membership is not known."
        )
    return known


def choose_threshold(
    values: Float64Array, member: NDArray[np.bool_] | None, fpr: float | None
) -> float:
    """Return the best threshold for known members, else one that calls a share ``fpr`` members."""
    if unknown := int(np.isnan(values).sum()):
        raise ValueError(
            f"X holds {unknown} records whose scores are NaN, because their values are too large "
            "for the target. Scale them as its training records were scaled, or leave them out."
        )
    if member is not None:
        false, true, cuts = metrics.roc(values[member], values[~member])
        return float(cuts[np.argmax(true - false)])
    assert fpr is not None  # attacks with fpr=None override _calibrate
    cuts = np.append(np.unique(values), np.inf)
    share = 1 - np.searchsorted(np.sort(values), cuts) / len(values)
    return float(cuts[share <= fpr][0])
