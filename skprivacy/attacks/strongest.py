"""Choice of the strongest membership attack by self-attack of the shadow models."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._docs import fill_docs
from ._shadowed import ShadowAttack
from .learned import LearnedRatio
from .lira import LiRA
from .rmia import RMIA

__all__ = ["StrongestAttack"]


@fill_docs
class StrongestAttack(ShadowAttack):
    """Choose the attack that finds most members of shadow models; the default of ``audit``.

    No attack is the strongest on every model, but the choice needs no access to the target. Every
    shadow model, whose members are known, is attacked with the others. The attack that finds most
    of their members is used: :class:`LiRA` or :class:`RMIA`, offline or online, or
    :class:`LearnedRatio`.

    Parameters
    ----------
    %(target_classifier)s
    %(n_shadows)s
    online : bool, default=False
        Whether online attacks and :class:`LearnedRatio` take part, which compare with models
        trained on the record, too. The pool must then have been trained on every record, including
        those given to ``fit``.
    %(shadow_pool)s
    %(attack_fpr)s

    Attributes
    ----------
    %(pool_)s
    attack_ : LearnedRatio, LiRA or RMIA
        The fitted winner; its ``power_`` is the share of the shadow models' members that it found.
    powers_ : dict of str to float
        This share for every attack that took part. If no self-attack is possible (a pool of two
        models, or records outside the pool), all are 0 and RMIA is used.

    Notes
    -----
    **Guarantees.** The choice is a function of the shadow models and of the set of records given
    to ``fit``. The halves that shadow models are trained on are drawn without regard to the
    target's members, and neither its members nor its answers are used. Suppose that this set does
    not depend on which records are members (members and non-members together, as in an audit).
    Then, given the shadow models, the winner is one test fixed in advance. Every bound for such a
    test holds for it, without a correction for having tried several. Training may depend on the
    order of records, so use an order that is independent of membership, as
    :func:`~skprivacy.audit.audit` does.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skprivacy.attacks import StrongestAttack
    >>> X, y = make_classification(400, flip_y=0.3, random_state=0)
    >>> target = RandomForestClassifier(10, random_state=0).fit(X[:200], y[:200])
    >>> attack = StrongestAttack(target, n_shadows=4, online=True, random_state=0).fit(X, y)
    >>> sorted(attack.powers_)
    ['LearnedRatio', 'offline LiRA', 'offline RMIA', 'online LiRA', 'online RMIA']
    >>> attack.evaluate(X[:200], y[:200], X[200:], y[200:]).auc > 0.7
    True
    """

    _parameter_constraints: dict[str, Any] = {
        **ShadowAttack._parameter_constraints,
        "online": ["boolean"],
    }

    fpr: float
    _asks_given_records_only = True

    def __init__(
        self,
        target: Any = None,
        *,
        n_shadows: int = 16,
        online: bool = False,
        pool: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        fpr: float = 0.05,
    ) -> None:
        self.target = target
        self.n_shadows = n_shadows
        self.online = online
        self.pool = pool
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.fpr = fpr

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        super()._learn(X, y, member)
        shadows = self.pool_._ask_models(X, y)
        if self.online:
            self._check_in_models(shadows.trained, shadows.known)
        tried, known = self._candidates(), self._select_pool_records(shadows, X, y)
        for attack in tried:
            attack.pool_, attack.classes_ = self.pool_, self.classes_
            attack._tune(known)
        self.powers_ = {_name(attack): attack.power_ for attack in tried}
        self.attack_ = max(tried, key=lambda attack: attack.power_)
        self.attack_._learn_population(shadows, X, y)

    def _candidates(self) -> list[Any]:
        """Return the attacks to choose from; among equally strong attacks, the first is taken."""
        given: dict[str, Any] = {"pool": self.pool_, "fpr": self.fpr}
        modes = (True, False) if self.online else (False,)
        formulas = [
            kind(self.target, online=online, **given) for kind in (RMIA, LiRA) for online in modes
        ]
        return [*formulas, LearnedRatio(self.target, **given)] if self.online else formulas

    def _score(self, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
        # the accepted records must not depend on which attack was chosen
        if self.online and not self.attack_.online:
            self._check_in_models(*self.pool_.membership(X))
        return self.attack_._score(X, y)

    @property
    def _name(self) -> str:
        return _name(self.attack_)


def _name(attack: Any) -> str:
    if isinstance(attack, LearnedRatio):
        return LearnedRatio.__name__
    return f"{'online' if attack.online else 'offline'} {type(attack).__name__}"
