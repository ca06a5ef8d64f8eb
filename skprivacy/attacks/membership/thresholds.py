"""Thresholds on a signal: for all records, per class, or per record.

:class:`ShadowThreshold` learns them per class on shadow models (Song and Mittal 2021);
:class:`SignalThreshold` and :class:`ReferenceThreshold` follow Ye et al. 2022 (Attack-P, Attack-R).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._docs import fill_docs
from ..._sklearn import StrOptions
from ..model_answers import SIGNALS
from .membership_attack import MEMBERSHIP_DOCS, MembershipAttack, choose_threshold
from .shadow_attack import ShadowAttack, break_ties

Float64Array = NDArray[np.float64]


@fill_docs(MEMBERSHIP_DOCS)
class ShadowThreshold(ShadowAttack):
    """Call a record a member if its signal exceeds the best threshold on shadow models.

    With the defaults this is the modified entropy attack of Song & Mittal 2021. Each class has its
    own threshold. Classes in which the shadow models have no members or no non-members use the
    threshold for all records.

    Parameters
    ----------
    %(target_classifier)s
    signal : str, default="modified_entropy"
        One of ``skprivacy.attacks.model_answers.SIGNALS``, as for :class:`SignalThreshold`.
    %(shadow_pool)s

    Notes
    -----
    The score is the rank of the signal (a share) among the shadow models' signals for records of
    the same class, minus the rank of the threshold: 0 is the threshold in every class.

    References
    ----------
    L. Song, P. Mittal. Systematic evaluation of privacy risks of machine learning models.
    USENIX Security 2021.

    Examples
    --------
    %(forest_target)s
    >>> from skprivacy.attacks import ShadowThreshold
    >>> attack = ShadowThreshold(target, pool=4, random_state=0).fit(records)
    >>> attack.evaluate(records[:200], records[200:]).auc > 0.7
    True
    """

    _needs_classes = True

    _parameter_constraints = ShadowAttack._parameter_constraints | {
        "signal": [StrOptions(set(SIGNALS))]
    }

    def __init__(
        self,
        target: Any = None,
        *,
        signal: str = "modified_entropy",
        pool: Any = 16,
        random_state: Any = None,
    ) -> None:
        super().__init__(target, pool=pool, random_state=random_state)
        self.signal = signal

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        super()._learn(X, y, member)
        view = SIGNALS[self.signal]
        signal, trained, label = self._view_shadows(X, y, self._label_classes, view)
        self._threshold = _Threshold(signal, trained)
        self._class_thresholds = {}
        # Song & Mittal 2021: a class-dependent threshold, learned on shadow models
        for c in np.unique(label):
            here = label == c
            if len(np.unique(trained[here])) == 2:
                self._class_thresholds[c] = _Threshold(signal[here], trained[here])

    def _calibrate(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> float:
        return 0.0 if member is None else choose_threshold(self._score(X, y), member, 0.0)

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        proba, label = self._target_proba(X, y)
        signal = SIGNALS[self.signal](proba, label)
        return _rank_by_class(signal, label, self._class_thresholds, self._threshold)


@fill_docs(MEMBERSHIP_DOCS)
class SignalThreshold(MembershipAttack):
    """Call a record a member if a signal of the target's prediction is high.

    With ``per_class=True`` this is Attack-P of Ye et al. 2022 with a threshold for each class: the
    score is the rank of the signal among population records of the same class.

    Parameters
    ----------
    %(target_classifier)s
    signal : str, default="modified_entropy"
        One of ``skprivacy.attacks.model_answers.SIGNALS``: "loss" (Yeom et al. 2018), "correctness"
        (the gap attack), "confidence", "max_confidence", "entropy", "modified_entropy" (Song &
        Mittal 2021), "logit", "margin".
    per_class : bool, default=False
        Whether to rank the signal among the records of the same class given to ``fit``. Records of
        other classes are ranked among all records given to ``fit``.
    %(attack_fpr)s

    References
    ----------
    J. Ye, A. Maddi, S. K. Murakonda, V. Bindschaedler, R. Shokri. Enhanced membership inference
    attacks against machine learning models. CCS 2022.
    L. Song, P. Mittal. Systematic evaluation of privacy risks of machine learning models.
    USENIX Security 2021.

    Examples
    --------
    %(forest_target)s
    >>> from skprivacy.attacks import SignalThreshold
    >>> attack = SignalThreshold(target, per_class=True).fit(records)
    >>> attack.evaluate(records[:200], records[200:]).auc > 0.7
    True
    """

    _parameter_constraints = MembershipAttack._parameter_constraints | {
        "signal": [StrOptions(set(SIGNALS))],
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
        signal = SIGNALS[self.signal](proba, label)
        self._ranks = {c: _RankAmong(signal[label == c]) for c in np.unique(label)}
        self._rank = _RankAmong(signal)

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        proba, label = self._target_proba(X, y)
        signal = SIGNALS[self.signal](proba, label)
        return _rank_by_class(signal, label, self._ranks, self._rank) if self.per_class else signal


@fill_docs(MEMBERSHIP_DOCS)
class ReferenceThreshold(ShadowAttack):
    """Rank the target's signal among models not trained on the record: Attack-R (Ye et al. 2022).

    Parameters
    ----------
    %(target_classifier)s
    %(shadow_parameters)s

    Notes
    -----
    The score has as many steps as there are shadow models, so low false positive rates need many.

    References
    ----------
    J. Ye, A. Maddi, S. K. Murakonda, V. Bindschaedler, R. Shokri. Enhanced membership inference
    attacks against machine learning models. CCS 2022.

    Examples
    --------
    %(forest_target)s
    >>> from skprivacy.attacks import ReferenceThreshold
    >>> attack = ReferenceThreshold(target, pool=4, random_state=0).fit(records)
    >>> attack.evaluate(records[:200], records[200:]).auc > 0.7
    True
    """

    _asks_given_records_only = True

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        shadows = self.pool_._ask_models(X, y)
        signal, shadow, out = self._target_logit(X, y), shadows.logits, shadows.out
        # Ye et al. 2022, Attack-R: percentile of the target's loss among reference models
        lower = (np.sign(signal - shadow) + 1) / 2
        share = np.mean(lower, axis=0, where=out)
        above_mean = signal - np.mean(shadow, axis=0, where=out)
        return break_ties(share, above_mean, 2 * int(out[:, 0].sum()))


class _RankAmong:
    """Share of known signals below a signal; ties count half.

    The mean share is then 0.5 whether or not the signals are among the known ones, so that being
    among the attacker's records does not distinguish members.
    """

    def __init__(self, signal: Float64Array) -> None:
        self._ordered = np.sort(signal)

    def __call__(self, signal: Float64Array) -> Float64Array:
        below = np.searchsorted(self._ordered, signal, side="left")
        upto = np.searchsorted(self._ordered, signal, side="right")
        return (below + upto) / (2 * len(self._ordered))


class _Threshold(_RankAmong):
    """Ranks relative to the signal at which members and non-members differ most."""

    def __init__(self, signal: Float64Array, trained: NDArray[np.bool_]) -> None:
        super().__init__(signal)
        self._at_best = super().__call__(np.array([choose_threshold(signal, trained, 0.0)]))

    def __call__(self, signal: Float64Array) -> Float64Array:
        return super().__call__(signal) - self._at_best


def _rank_by_class(
    signal: Float64Array,
    label: NDArray[np.intp],
    ranks: Mapping[Any, _RankAmong],
    other: _RankAmong,
) -> Float64Array:
    """Return each signal's rank in its class; classes without a rank use ``other``."""
    found = np.empty(len(signal))
    for c in np.unique(label):
        found[label == c] = ranks.get(c, other)(signal[label == c])
    return found
