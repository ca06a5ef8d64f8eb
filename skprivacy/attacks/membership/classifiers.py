"""Membership inference with an attack model trained on predictions.

:class:`ShokriAttack` and :class:`MLLeaksAttack` train it on shadow models' predictions (Shokri et
al. 2017; Salem et al. 2019). :class:`SupervisedAttack` learns from records of known membership.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..._docs import fill_docs
from ..._environment import one_blas_thread
from ..._sklearn import HasMethods, StrOptions
from ..._validation import Interval
from ..attack_result import AttackResult
from ..model_answers import FLOOR, SIGNALS, logit, modified_entropy, predict_aligned
from ..record_tables import fingerprints
from ..shadow_pool import ShadowPool
from .membership_attack import MEMBERSHIP_DOCS, MembershipAttack, choose_threshold
from .shadow_attack import ShadowAttack

Float64Array = NDArray[np.float64]
N_FOLDS = 5
N_HIGHEST = 10
ALL_CLASSES = -1


@fill_docs(MEMBERSHIP_DOCS)
class SupervisedAttack(MembershipAttack):
    """Train an attack model on the target's predictions for known members and non-members.

    The attacker knows the membership of some records, as the owner of a model does, and attacks
    others. The inputs of the attack model are the probabilities, unsorted and sorted, the class,
    and all signals of a single prediction. :class:`ShokriAttack` learns the same from shadow
    models; this attack learns it from the target itself.

    Parameters
    ----------
    %(target_classifier)s
    attack_model : classifier with ``predict_proba``, default=None
        Learns membership. None: the mean of a logistic regression and a forest of extremely
        randomised trees.

    Notes
    -----
    ``fit`` needs ``y``. ``evaluate`` refuses the records given to ``fit``, since the attack has
    learned their membership. :func:`~skprivacy.audit.audit` fits the attack on one half of the
    records, drawn by fingerprint, and evaluates it on the other. It does not exchange the halves to
    use both: the two evaluations would depend on each other, and the intervals would be too narrow.

    References
    ----------
    R. Shokri, M. Stronati, C. Song, V. Shmatikov. Membership inference attacks against machine
    learning models. IEEE S&P 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skprivacy.attacks import LabeledRecords, SupervisedAttack
    >>> X, y = make_classification(800, flip_y=0.3, random_state=0)
    >>> records, member = LabeledRecords(X, y), np.arange(800) < 400
    >>> target = RandomForestClassifier(10, random_state=0).fit(X[member], y[member])
    >>> known = np.arange(800) % 2 == 0
    >>> attack = SupervisedAttack(target).fit(records[known], member[known])
    >>> attack.evaluate(records[~known & member], records[~known & ~member]).auc > 0.7
    True
    """

    _needs_members = True

    _parameter_constraints = MembershipAttack._parameter_constraints | {
        "attack_model": [HasMethods(["fit", "predict_proba"]), None]
    }

    def __init__(self, target: Any = None, *, attack_model: Any = None) -> None:
        self.target = target
        self.attack_model = attack_model

    def evaluate(self, X_in: Any, X_out: Any) -> AttackResult:
        """Attack records that were not given to ``fit``; see :class:`MembershipAttack`.

        Parameters
        ----------
        %(evaluate_sections)s

        Raises
        ------
        ValueError
            If a record was given to ``fit``.
        """
        result = super().evaluate(X_in, X_out)
        given = [fingerprints(self._split_labels(X)[0]) for X in (X_in, X_out)]
        seen = sum(int(np.isin(prints, self._prints).sum()) for prints in given)
        if seen:
            raise ValueError(
                f"X_in and X_out hold {seen} records that were given to fit with their membership. "
                "Evaluate on other members and non-members, and keep all copies of a record on one "
                "side."
            )
        return result

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        base = _default_model() if self.attack_model is None else self.attack_model
        self._prints = np.unique(fingerprints(X))
        self._model = clone(base).fit(self._view(X, y), member)

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        proba = self._model.predict_proba(self._view(X, y))
        return logit(proba, np.ones(len(proba), dtype=np.intp))

    def _view(self, X: Any, y: NDArray[Any]) -> Float64Array:
        proba, label = self._target_proba(X, y)
        signals = [signal(proba, label) for signal in SIGNALS.values()]
        highest = -np.sort(-proba, axis=1)[:, :N_HIGHEST]
        return np.column_stack([*signals, highest, proba, label])


@fill_docs(MEMBERSHIP_DOCS)
class ShokriAttack(ShadowAttack):
    """Train an attack model per class on shadow models' predictions (Shokri et al. 2017).

    Parameters
    ----------
    %(target_classifier)s
    attack_model : classifier with ``predict_proba``, default=None
        Cloned for each class. None: logistic regression on scaled inputs. The paper uses a small
        network, ``MLPClassifier((64,))``.
    features : {"confidence", "signals"}, default="confidence"
        Input of the attack model for each prediction. "confidence" is the vector of probabilities,
        as published. "signals" is its logarithm, with the log-odds and the modified entropy of the
        true class, and is stronger.
    per_class : bool, default=True
        Whether to train one attack model for each class. A class without members or without
        non-members among the training vectors uses an attack model for all classes, whose inputs
        also include an indicator of the true class and its probability.
    %(shadow_parameters)s

    Attributes
    ----------
    %(pool_)s

    Notes
    -----
    The records given to ``fit`` must include records of the pool, since the attack model learns
    from every shadow model's predictions for them. Attackers without data can synthesise records:
    see :meth:`LabeledRecords.from_model`.

    References
    ----------
    R. Shokri, M. Stronati, C. Song, V. Shmatikov. Membership inference attacks against machine
    learning models. IEEE S&P 2017.

    Examples
    --------
    %(forest_target)s
    >>> from skprivacy.attacks import ShokriAttack
    >>> attack = ShokriAttack(target, pool=4, random_state=0).fit(records)
    >>> attack.evaluate(records[:200], records[200:]).auc > 0.7
    True
    """

    _needs_classes = True

    _parameter_constraints = ShadowAttack._parameter_constraints | {
        "attack_model": [HasMethods(["fit", "predict_proba"]), None],
        "features": [StrOptions({"confidence", "signals"})],
        "per_class": ["boolean"],
    }

    def __init__(
        self,
        target: Any = None,
        *,
        attack_model: Any = None,
        features: str = "confidence",
        per_class: bool = True,
        pool: Any = 16,
        random_state: Any = None,
        fpr: float = 0.05,
    ) -> None:
        super().__init__(target, pool=pool, random_state=random_state, fpr=fpr)
        self.attack_model = attack_model
        self.features = features
        self.per_class = per_class

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        super()._learn(X, y, member)
        # Shokri et al. 2017: the attack training set, of shadow models' predictions labelled "in"
        # and "out"
        features, trained, label = self._view_shadows(X, y, self._label_classes, self._view)
        # The model for all classes serves the classes without a model.
        self._models: dict[int, Any] = {
            ALL_CLASSES: self._train(self._append_class(features, label), trained)
        }
        if not self.per_class:
            return
        # Shokri et al. 2017: partition the attack training set by class, one attack model for each
        for c in np.unique(label):
            here = label == c
            if len(np.unique(trained[here])) > 1:
                self._models[int(c)] = self._train(features[here], trained[here])

    def _train(self, features: Float64Array, trained: NDArray[np.bool_]) -> Any:
        base = linear_model() if self.attack_model is None else self.attack_model
        return clone(base).fit(features, trained)

    def _view(self, proba: Float64Array, label: NDArray[np.intp]) -> Float64Array:
        """Return the attack model's input for each prediction."""
        if self.features == "confidence":
            return proba
        signals = [logit(proba, label), modified_entropy(proba, label)]
        return np.column_stack([np.log(np.maximum(proba, FLOOR)), *signals])

    def _append_class(self, features: Float64Array, label: NDArray[np.intp]) -> Float64Array:
        """Append the true class and its feature, which a linear model cannot select by itself."""
        indicator = np.eye(len(self._label_classes))[label]
        own = np.take_along_axis(features, label[:, None], axis=1)
        return np.column_stack([features, indicator, own])

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        proba, label = self._target_proba(X, y)
        features = self._view(proba, label)
        values = np.empty(len(label))
        for c in np.unique(label):
            here = np.flatnonzero(label == c)
            taken = features[here]
            if (model := self._models.get(int(c))) is None:
                model, taken = self._models[ALL_CLASSES], self._append_class(taken, label[here])
            values[here] = model.predict_proba(taken)[:, -1]
        return values


@fill_docs(MEMBERSHIP_DOCS)
class MLLeaksAttack(ShokriAttack):
    """Train one attack model on the highest probabilities: ML-Leaks (Salem et al. 2019).

    One logistic regression on scaled log-probabilities serves all classes. It takes the highest
    probabilities in order, so it needs neither labels nor many shadow models. Adversary 1, the
    default, trains shadow models like the target on data like the target's. Adversary 2 has data
    with other features and classes: pass a ``pool`` of models for these data, and pass these data
    to ``fit``. Adversary 3 trains nothing: use
    ``SignalThreshold(target, signal="max_confidence")``.

    Parameters
    ----------
    %(target_classifier)s
    n_highest : int, default=3
        Number of the highest probabilities that the attack model takes, limited to the number of
        classes of the target and of the shadow models.
    pool : int or ShadowPool, default=2
        Shadow models: an even number of clones of the target to train, or a pool. A fitted pool is
        used as it is. An unfitted one is cloned and trained on the records given to ``fit``, whose
        features and classes may differ from the target's.
    random_state : int, RandomState instance or None, default=None
        Seed of the shadow models, if ``pool`` is a number.
    %(attack_fpr)s

    Notes
    -----
    The labels of scored records are ignored. If the records given to ``fit`` have other features or
    classes than the target's, and no member is known, ``threshold_`` is set on the shadow models'
    predictions for records that they were not trained on. The ranking of the scores then carries
    over, but the threshold does not if the target is more or less confident than the shadow models.

    References
    ----------
    A. Salem, Y. Zhang, M. Humbert, P. Berrang, M. Fritz, M. Backes. ML-Leaks: model and data
    independent membership inference attacks and defenses. NDSS 2019.

    Examples
    --------
    %(forest_target)s
    >>> from skprivacy.attacks import MLLeaksAttack
    >>> attack = MLLeaksAttack(target, random_state=0).fit(records)
    >>> attack.evaluate(records[:200], records[200:]).auc > 0.6
    True
    """

    _parameter_constraints = ShadowAttack._parameter_constraints | {
        "n_highest": [Interval(Integral, 1, None, closed="left")]
    }

    def __init__(
        self,
        target: Any = None,
        *,
        n_highest: int = 3,
        pool: Any = 2,
        random_state: Any = None,
        fpr: float = 0.05,
    ) -> None:
        ShadowAttack.__init__(self, target, pool=pool, random_state=random_state, fpr=fpr)
        self.n_highest = n_highest

    def _all_classes(self, classes: Any, y: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(classes)

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        self._fit_pool(X, y)
        self._n_seen = min(self.n_highest, len(self._label_classes), len(self.pool_.classes_))
        features, trained, _ = self._view_shadows(X, y, self.pool_.classes_, self._view)
        self._model = linear_model().fit(features, trained)
        self._non_member_scores = self._model.predict_proba(features[~trained])[:, -1]

    def _check_features(self, X: Any, reset: bool) -> None:
        if not isinstance(self.pool, ShadowPool):  # whose records may have other features
            super()._check_features(X, reset)

    def _calibrate(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> float:
        if member is not None or self._target_takes(X, y):
            return super()._calibrate(X, y, member)
        return choose_threshold(self._non_member_scores, None, self.fpr)

    def _target_takes(self, X: Any, y: NDArray[Any]) -> bool:
        """Return whether records have the target's features and classes."""
        if not isinstance(self.pool, ShadowPool):
            return True
        names = getattr(self.target, "feature_names_in_", None)
        columns = getattr(X, "columns", None)
        renamed = names is not None and columns is not None and list(names) != list(columns)
        if renamed or X.shape[1] != getattr(self.target, "n_features_in_", None):
            return False
        labels, known = np.unique(y).astype(str), np.asarray(self._label_classes).astype(str)
        return bool(np.isin(labels, known).all())

    def _view(self, proba: Float64Array, label: NDArray[np.intp]) -> Float64Array:
        # Salem et al. 2019: the highest posteriors in descending order
        highest = -np.sort(-proba, axis=1)[:, : self._n_seen]
        return np.log(np.maximum(highest, FLOOR))

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        proba = predict_aligned(self.target, X, self._label_classes)
        features = self._view(proba, np.zeros(len(proba), dtype=np.intp))
        return self._model.predict_proba(features)[:, -1]


def linear_model(class_weight: str | None = None) -> Any:
    """Return the default attack model: logistic regression on scaled inputs."""
    regression = LogisticRegression(C=0.1, class_weight=class_weight, max_iter=1000)
    return make_pipeline(StandardScaler(), regression)


def fit_folds(
    X: Any,
    member: NDArray[np.bool_],
    fit: Callable[[NDArray[np.intp], int], Any],
    n_folds: int = N_FOLDS,
    names: tuple[str, str] = ("members", "non-members"),
) -> list[Any]:
    """Return ``fit(rows, k)`` for each fold k, where ``rows`` lie outside the fold.

    On records that an attack model was fitted on, its overfitting would look like leakage.
    """
    fold, models = fingerprints(X) % n_folds, []
    for k in range(n_folds):
        rows = np.flatnonzero(fold != k)
        if len(np.unique(member[rows])) < 2:
            raise ValueError(
                f"There are {int(member.sum())} {names[0]} and {int((~member).sum())} {names[1]}, "
                f"too few to hold out one fold of {n_folds}; expected dozens. Pass more records."
            )
        with one_blas_thread():
            models.append(fit(rows, k))
    return models


def fit_attack_models(X: Any, features: Float64Array, member: Any) -> list[Any]:
    """Return a linear model for each fold of the records, fitted on the features of the others."""
    return fit_folds(
        X, member, lambda rows, _: linear_model("balanced").fit(features[rows], member[rows])
    )


def member_probabilities(models: list[Any], X: Any, features: Float64Array) -> Float64Array:
    """Return the probability of membership by the attack model that was not fitted on a record."""
    return score_folds(models, X, lambda m, rows: m.predict_proba(features[rows])[:, -1])


def score_folds(
    models: list[Any], X: Any, score: Callable[[Any, NDArray[np.intp]], Float64Array]
) -> Float64Array:
    """Return ``score(model, rows)`` of each record, by the model that was not fitted on it."""
    fold = fingerprints(X) % len(models)
    values = np.empty(len(fold))
    for k, model in enumerate(models):
        rows = np.flatnonzero(fold == k)
        if len(rows):
            values[rows] = score(model, rows)
    return values


def _default_model() -> Any:
    """Return a linear model, best where members are few, averaged with a forest, best with many."""
    forest = ExtraTreesClassifier(200, min_samples_leaf=5, random_state=0)
    return VotingClassifier([("linear", linear_model()), ("forest", forest)], voting="soft")
