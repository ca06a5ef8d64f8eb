"""Membership learned from the target's predictions for records of known membership."""

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
    """Learn from known members and non-members what the target's predictions for members look like.

    The attacker knows the membership of some records, as the owner of a model does, and asks about
    others. It needs no shadow models. The attack model sees the probabilities, as they are and
    sorted, the class, and all signals of a single prediction: what shadow models teach
    :class:`ShokriAttack`, it is taught by the target itself.

    Parameters
    ----------
    %(target_classifier)s
    attack_model : classifier with ``predict_proba``, default=None
        Learns membership. None: the mean of a logistic regression and a
        forest of extremely randomised trees.
    fpr : float, default=0.05
        Ignored: the threshold is set on the records of known membership.

    Notes
    -----
    ``fit`` needs ``member``. What it was given cannot be used to judge the attack: ``evaluate``
    refuses these records. :func:`~skprivacy.audit.audit` gives it one half of them, drawn by their
    fingerprints, and judges it on the other. The halves are not exchanged to use both: their
    judgements would depend on each other, and the intervals would be too narrow.

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
            Records of the target's training set, as in ``fit``.
        X_out, y_out : array-like
            Records like them that were not in it.

        Returns
        -------
        AttackResult
            With the scores of both.

        Raises
        ------
        ValueError
            If one of them was.
        """
        result = super().evaluate(X_in, y_in, X_out, y_out)
        seen = sum(int(np.isin(fingerprints(X), self._prints).sum()) for X in (X_in, X_out))
        if seen:
            raise ValueError(
                f"{seen} of the records were given to fit, with their membership; expected others "
                "as X_in and X_out. Keep a part of the members and non-members, and all copies of "
                "a record on one side."
            )
        return result

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        if member is None:
            raise ValueError(
                "member=None must be one bool for each record: this attack learns from records of "
                "known membership. Call fit(X, y, member)."
            )
        base = self.attack_model
        if base is None:
            base = _usual_model()
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


def _usual_model() -> Any:
    """Return the attack model that is used if none is given.

    A linear one does best where little can be learned, a forest where there is much.
    """
    linear = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))
    forest = ExtraTreesClassifier(200, min_samples_leaf=5, random_state=0)
    return VotingClassifier([("linear", linear), ("forest", forest)], voting="soft")
