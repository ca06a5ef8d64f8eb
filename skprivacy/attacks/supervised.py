"""Supervised membership inference: learn from records of known membership, no shadow models."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from .._docs import fill_docs
from .._sklearn import HasMethods
from . import scores
from ._records import fingerprints
from .membership import MembershipAttack
from .result import AttackResult

__all__ = ["SupervisedAttack"]

Float64Array = NDArray[np.float64]
N_HIGHEST = 10


@fill_docs
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
    fpr : float, default=0.05
        Ignored: the threshold is set on the records of known membership.

    Notes
    -----
    ``fit`` needs ``member``. ``evaluate`` refuses the records given to ``fit``, since the attack
    has learned their membership. :func:`~skprivacy.audit.audit` fits the attack on one half of the
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
    >>> from skprivacy.attacks import SupervisedAttack
    >>> X, y = make_classification(800, flip_y=0.3, random_state=0)
    >>> member = np.arange(800) < 400
    >>> target = RandomForestClassifier(10, random_state=0).fit(X[member], y[member])
    >>> known = np.arange(800) % 2 == 0
    >>> attack = SupervisedAttack(target).fit(X[known], y[known], member[known])
    >>> inside, outside = ~known & member, ~known & ~member
    >>> attack.evaluate(X[inside], y[inside], X[outside], y[outside]).auc > 0.7
    True
    """

    _needs_members = True

    _parameter_constraints: dict[str, Any] = {
        **MembershipAttack._parameter_constraints,
        "attack_model": [HasMethods(["fit", "predict_proba"]), None],
    }

    def __init__(self, target: Any = None, *, attack_model: Any = None, fpr: float = 0.05) -> None:
        self.target = target
        self.attack_model = attack_model
        self.fpr = fpr

    def evaluate(self, X_in: Any, y_in: Any, X_out: Any, y_out: Any) -> AttackResult:
        """Attack records that were not given to ``fit``; see :class:`MembershipAttack`.

        Parameters
        ----------
        X_in, y_in : array-like
            Members: records of the target's training set, as in ``fit``.
        X_out, y_out : array-like
            Non-members from the same population.

        Returns
        -------
        AttackResult
            The scores of both samples.

        Raises
        ------
        ValueError
            If a record was given to ``fit``.
        """
        result = super().evaluate(X_in, y_in, X_out, y_out)
        seen = sum(int(np.isin(fingerprints(X), self._prints).sum()) for X in (X_in, X_out))
        if seen:
            raise ValueError(
                f"X_in and X_out hold {seen} records that were given to fit with their membership. "
                "Evaluate on other members and non-members, and keep all copies of a record on one "
                "side."
            )
        return result

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        if member is None:
            raise ValueError(
                "member=None must be one bool for each record, because this attack learns from "
                "records of known membership. Call fit(X, y, member)."
            )
        base = _default_model() if self.attack_model is None else self.attack_model
        self._prints = np.unique(fingerprints(X))
        self._model = clone(base).fit(self._view(X, y), member)

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        proba = self._model.predict_proba(self._view(X, y))
        return scores.logit(proba, np.ones(len(proba), dtype=np.intp))

    def _view(self, X: Any, y: NDArray[Any]) -> Float64Array:
        proba, label = self._target_proba(X, y)
        signals = [signal(proba, label) for signal in scores.SIGNALS.values()]
        highest = -np.sort(-proba, axis=1)[:, :N_HIGHEST]
        return np.column_stack([*signals, highest, proba, label])


def _default_model() -> Any:
    """Return a linear model, best where members are few, averaged with a forest, best with many."""
    linear = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))
    forest = ExtraTreesClassifier(200, min_samples_leaf=5, random_state=0)
    return VotingClassifier([("linear", linear), ("forest", forest)], voting="soft")
