"""Base of membership inference attacks (score, threshold, decision), and the loss threshold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_is_fitted

from ... import metrics
from ..._docs import fill_docs
from ..._input_data import (
    ClassifierMixin,
    check_classification_targets,
    column_or_1d,
    label_columns,
    validate_data,
)
from ..._validation import Interval, num_samples
from ...base import roll_back_on_error
from ...metrics.rates import roc
from ..attack_result import AttackResult
from ..model_answers import (
    PROBABILITIES,
    Answers,
    TargetAttack,
    as_classifier,
    check_known,
    choose_answers,
    class_list,
    entropy,
    predict_aligned,
    targets_as_array,
)
from ..record_tables import fingerprints
from .labeled_records import concat_labeled, split_labels

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
    "labeled_records": """\
X : LabeledRecords, or {array-like, DataFrame, sparse matrix} of shape (n_records, n_features)
    Records with their labels; a plain table if the target is fitted without ``y``.""",
    "evaluate_sections": """\
X_in : LabeledRecords, or table
    Members: records of the target's training set, in the form that ``fit`` took.
X_out : LabeledRecords, or table
    Non-members from the same population.

Returns
-------
AttackResult
    The scores of both samples.""",
    "forest_target": """\
>>> from sklearn.datasets import make_classification
>>> from sklearn.ensemble import RandomForestClassifier
>>> from skprivacy.attacks import LabeledRecords
>>> X, y = make_classification(400, flip_y=0.3, random_state=0)
>>> target = RandomForestClassifier(10, random_state=0).fit(X[:200], y[:200])
>>> records = LabeledRecords(X, y)""",
    "attack_fpr": """\
fpr : float, default=0.05
    False positive rate that ``predict`` aims at if ``fit`` is given no ``y``.""",
    "pool_": """\
pool_ : ShadowPool
    The fitted pool.""",
}
MEMBERSHIP_DOCS["shadow_parameters"] = "\n".join(
    MEMBERSHIP_DOCS[name] for name in ("shadow_pool", "attack_fpr")
)

Float64Array = NDArray[np.float64]
_NOT_KNOWN = np.array([False, True])  # classes_ of an attacker who knows no member


@fill_docs(MEMBERSHIP_DOCS)
class MembershipAttack(ClassifierMixin, TargetAttack, ABC):
    """Base of attacks that infer whether a record was in a fitted model's training set.

    An attack is a binary classifier of scikit-learn: the label that it learns and predicts is
    membership. The label that the target predicts is part of a record, in ``X``. A subclass
    implements ``_score(X, y)`` and, if it learns anything in ``fit``, ``_learn``. A clone attacks
    the same fitted target with the same pool of shadow models.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The label of non-members and the label of members; False and True if ``fit`` got no ``y``.
    threshold_ : float
        The lowest score that ``predict`` calls a member; infinity if it calls no record a member.
    n_features_in_ : int
        Number of columns of ``X``, if it is a table.
    feature_names_in_ : ndarray of shape (n_features,)
        Their names, if all are text.
    """

    fpr: float | None = None

    # Whether the attack needs class probabilities (LabelOnlyAttack: labels). Attacks that compare
    # one number per record also accept margins, densities, residuals and distances.
    _needs_classes: ClassVar[bool] = True
    # Whether ``fit`` requires known members.
    _needs_members: ClassVar[bool] = False

    _parameter_constraints: dict[str, Any] = {
        "target": "no_validation",
        "fpr": [Interval(Real, 0, 1, closed="neither")],
    }

    def fit(self, X: Any, y: ArrayLike | None = None) -> MembershipAttack:
        """Fit the attack to the attacker's records and set ``threshold_``.

        Parameters
        ----------
        %(labeled_records)s
        y : array-like of shape (n_records,), default=None
            Whether each record was in the target's training set, as bool or as two numbers, of
            which the higher one marks members. None: the attacker does not know.

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

        With known members, ``threshold_`` maximises TPR minus FPR on these records. Otherwise at
        most a share ``fpr`` of these records is called members, so the false positive rate is even
        lower if some of them are members. Attacks with another rule describe it.
        """
        self._validate_params()
        self._require_target()
        X, labels = self._split_labels(X)
        if not num_samples(X):
            raise ValueError("X holds no records. Pass at least one.")
        self._check_target(X, labels)
        classes, member = _NOT_KNOWN, None
        if y is not None:
            classes, member = _check_membership(y, num_samples(X))
        elif self._needs_members:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: it "
                "learns from records of known membership. Call fit(X, y)."
            )
        with roll_back_on_error(self):
            self._check_features(X, reset=True)
            self.classes_, self._is_labeled = classes, labels is not None
            labels = targets_as_array(labels, num_samples(X))
            self._label_classes = self._all_classes(self._target_classes(X), labels)
            self._learn(X, labels, member)
            self.threshold_ = self._calibrate(X, labels, member)
        return self

    def decision_function(self, X: Any) -> Float64Array:
        """Return a membership score for each record, higher for members.

        Parameters
        ----------
        %(labeled_records)s

        Returns
        -------
        ndarray of shape (n_records,)
            The scores, of which ``predict`` calls those from ``threshold_`` on members.
        """
        return self._score(*self._split_scored(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return for each record whether the attack calls it a member.

        Parameters
        ----------
        %(labeled_records)s

        Returns
        -------
        ndarray of shape (n_records,)
            Values of ``classes_``: True for members if ``fit`` got bools or no ``y``.
        """
        found = self.decision_function(X) >= self.threshold_
        return np.asarray(self.classes_[found.astype(int)])

    def score(self, X: Any, y: ArrayLike) -> float:  # type: ignore[override]  # no weights
        """Return the area under the ROC curve of the attack; 0.5 is chance.

        Unlike the accuracy, it depends neither on the share of members nor on ``threshold_``.

        Parameters
        ----------
        %(labeled_records)s
        y : array-like of shape (n_records,)
            Whether each record was in the target's training set, as in ``fit``.

        Returns
        -------
        float
            The area, in [0, 1].
        """
        found = self.decision_function(X)
        _, member = _check_membership(y, len(found))
        return metrics.auc(found[member], found[~member])

    def evaluate(self, X_in: Any, X_out: Any) -> AttackResult:
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
        members, others = self._split_scored(X_in, "X_in"), self._split_scored(X_out, "X_out")
        n_in = num_samples(members[0])
        values = self._score(*concat_labeled(members, others))
        details = {
            "in_both": int(np.isin(fingerprints(others[0]), fingerprints(members[0])).sum()),
            "threshold": float(self.threshold_),
        }
        return AttackResult(values[:n_in], values[n_in:], self._name, details=details)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.target_tags.required = self._needs_members
        # X is given to the target, which may accept both
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags

    def _split_labels(self, X: Any, name: str = "X") -> tuple[Any, NDArray[Any] | None]:
        return split_labels(X, name)

    def _split_scored(self, X: Any, name: str = "X") -> tuple[Any, NDArray[Any]]:
        """Return records to score and their labels, checked against the records of ``fit``."""
        check_is_fitted(self, "threshold_")
        X, labels = self._split_labels(X, name)
        if (labels is not None) != self._is_labeled:
            expected = "LabeledRecords(X, y)" if self._is_labeled else "a table without labels"
            raise ValueError(f"{name} must be {expected}, as in fit.")
        self._check_features(X, reset=False)
        return X, targets_as_array(labels, num_samples(X))

    def _check_features(self, X: Any, reset: bool) -> None:
        """Note the columns of a table, or compare them with the columns of ``fit``."""
        if np.ndim(X) == 2:
            validate_data(self, X, reset=reset, skip_check_array=True)

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
                f"X must have labels, to compare the {asked.name} of {kind} with them. Pass y to "
                "an audit, and LabeledRecords(X, y) to an attack."
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
        """Return the target's probabilities over all labels and the column of each label."""
        proba = predict_aligned(as_classifier(self.target, X), X, self._label_classes)
        return proba, label_columns(y, self._label_classes)

    def _target_minus_loss(self, X: Any, y: NDArray[Any]) -> Float64Array:
        """Return minus the target's loss on each record, for any kind of answer."""
        model = as_classifier(self.target, X)
        return choose_answers(model, y).minus_losses(model, X, y, self._label_classes)


@fill_docs(MEMBERSHIP_DOCS)
class LossThreshold(MembershipAttack):
    """Call a record a member if the target's loss on it is low (Yeom et al. 2018).

    The loss of a classifier is the log-loss of its probabilities (the mean over labels), or minus
    the margin of ``decision_function``. The loss of a regressor is the size of its residual. Other
    targets: minus the log-density of ``score_samples``, or the distance from the nearest cluster
    centre.

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
    Both rules are for attackers who know no member. If ``fit`` is given ``y``, the threshold is the
    best one for these records.

    References
    ----------
    S. Yeom, I. Giacomelli, M. Fredrikson, S. Jha. Privacy risk in machine learning: analyzing
    the connection to overfitting. CSF 2018.

    Examples
    --------
    %(forest_target)s
    >>> from skprivacy.attacks import LossThreshold
    >>> attack = LossThreshold(target).fit(records)
    >>> attack.evaluate(records[:200], records[200:]).auc > 0.6
    True
    """

    _parameter_constraints = MembershipAttack._parameter_constraints | {
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
        return float(entropy(*self._target_proba(X, y)).mean()) - 1e-12

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        return self._target_minus_loss(X, y)


def _check_membership(y: ArrayLike, n_records: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the labels of non-members and members, and which records are members."""
    y = column_or_1d(y, warn=True)
    if y.dtype.kind not in "biuf":
        raise ValueError(
            f"Unknown label type: y has type {y.dtype}; expected the membership of each "
            "record, as bool or as two numbers, the higher one for members. Classes belong into "
            "LabeledRecords(X, y)."
        )
    assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    if len(y) != n_records:
        raise ValueError(
            f"X and y hold inconsistent numbers of samples: {n_records} and {len(y)}. Pass the "
            "membership of each record, or None if it is not known."
        )
    classes = np.unique(y)
    if len(classes) > 2:
        raise ValueError(
            f"Only binary classification is supported. y holds {len(classes)} values; expected "
            "the membership of each record. Classes of records belong into LabeledRecords(X, y)."
        )
    if len(classes) < 2:
        raise ValueError(
            "y must hold members and non-members; got one class. Leave it None if membership is "
            "not known."
        )
    return classes, y == classes[1]


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
        false, true, cuts = roc(values[member], values[~member])
        return float(cuts[np.argmax(true - false)])
    assert fpr is not None  # attacks with fpr=None override _calibrate
    cuts = np.append(np.unique(values), np.inf)
    share = 1 - np.searchsorted(np.sort(values), cuts) / len(values)
    return float(cuts[share <= fpr][0])
