"""Thresholds on a signal: one for all records, one for each class, or one for each record."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._docs import fill_docs
from .._sklearn import StrOptions
from . import scores
from ._shadowed import ShadowedAttack
from .membership import MembershipAttack

__all__ = ["ReferenceThreshold", "SignalThreshold"]


@fill_docs
class SignalThreshold(MembershipAttack):
    """Call a record a member if a signal of the target's prediction is high.

    With ``per_class=True`` this is Attack-P of Ye et al. 2022 with a threshold for each class: a
    signal counts by its rank among population records of the same class.

    Parameters
    ----------
    %(target_classifier)s
    signal : str, default="modified_entropy"
        One of ``skprivacy.attacks.scores.SIGNALS``: "loss" (Yeom et al. 2018), "correctness"
        (the gap attack), "confidence", "max_confidence", "entropy", "modified_entropy" (Song &
        Mittal 2021), "logit", "margin".
    per_class : bool, default=False
        Rank the signal among the records of the same class that were given to ``fit``. Records of
        classes without such records are ranked among all of them.
    %(attack_fpr)s

    References
    ----------
    J. Ye, A. Maddi, S. K. Murakonda, V. Bindschaedler, R. Shokri. Enhanced membership inference
    attacks against machine learning models. CCS 2022.
    L. Song, P. Mittal. Systematic evaluation of privacy risks of machine learning models.
    USENIX Security 2021.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skprivacy.attacks import SignalThreshold
    >>> X, y = make_classification(400, flip_y=0.3, random_state=0)
    >>> target = RandomForestClassifier(10, random_state=0).fit(X[:200], y[:200])
    >>> attack = SignalThreshold(target, per_class=True).fit(X, y)
    >>> attack.evaluate(X[:200], y[:200], X[200:], y[200:]).auc > 0.7
    True
    """

    _parameter_constraints: dict[str, Any] = {
        **MembershipAttack._parameter_constraints,
        "signal": [StrOptions(set(scores.SIGNALS))],
        "per_class": ["boolean"],
    }

    def __init__(
        self,
        target: Any = None,
        *,
        signal: str = "modified_entropy",
        per_class: bool = False,
        fpr: float = 0.05,
    ) -> None:
        self.target = target
        self.signal = signal
        self.per_class = per_class
        self.fpr = fpr

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        if not self.per_class:
            return
        proba, label = self._target_proba(X, y)
        signal = scores.SIGNALS[self.signal](proba, label)
        self._class_signals = {c: np.sort(signal[label == c]) for c in np.unique(label)}
        self._all_signals = np.sort(signal)

    def _score(self, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
        proba, label = self._target_proba(X, y)
        signal = scores.SIGNALS[self.signal](proba, label)
        if not self.per_class:
            return signal
        rank = np.empty(len(signal))
        for c in np.unique(label):
            here = label == c
            rank[here] = rank_among(signal[here], self._class_signals.get(c, self._all_signals))
        return rank


@fill_docs
class ReferenceThreshold(ShadowedAttack):
    """Attack-R of Ye et al. 2022: rank the target among models not trained on the record.

    Parameters
    ----------
    %(target_classifier)s
    n_shadows : int, default=16
        Number of shadow models to train if ``pool`` is None; even. The score has this many steps,
        so low false positive rates need many.
    %(shadow_pool)s
    %(attack_fpr)s

    References
    ----------
    J. Ye, A. Maddi, S. K. Murakonda, V. Bindschaedler, R. Shokri. Enhanced membership inference
    attacks against machine learning models. CCS 2022.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skprivacy.attacks import ReferenceThreshold
    >>> X, y = make_classification(400, flip_y=0.3, random_state=0)
    >>> target = RandomForestClassifier(10, random_state=0).fit(X[:200], y[:200])
    >>> attack = ReferenceThreshold(target, n_shadows=4, random_state=0).fit(X, y)
    >>> attack.evaluate(X[:200], y[:200], X[200:], y[200:]).auc > 0.7
    True
    """

    _asks_of_given_records = True

    def __init__(
        self,
        target: Any = None,
        *,
        n_shadows: int = 16,
        pool: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        fpr: float = 0.05,
    ) -> None:
        self.target = target
        self.n_shadows = n_shadows
        self.pool = pool
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.fpr = fpr

    def _score(self, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
        said = self.pool_._says_of(X, y)
        signal, shadow, out = self._target_logit(X, y), said.logits, said.out
        lower = (np.sign(signal - shadow) + 1) / 2
        share = np.mean(lower, axis=0, where=out)
        above_mean = signal - np.mean(shadow, axis=0, where=out)
        return scores.break_ties(share, above_mean, 2 * int(out[:, 0].sum()))


def rank_among(values: NDArray[np.float64], ordered: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of ``ordered`` below each value, counting ties half.

    The mean is then 0.5 whether or not a value is itself in ``ordered``: being known to the
    attacker must not distinguish members from non-members.
    """
    below = np.searchsorted(ordered, values, side="left")
    upto = np.searchsorted(ordered, values, side="right")
    return (below + upto) / (2 * len(ordered))
