"""Per-class thresholds on a signal, learned on shadow models (Song & Mittal 2021)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._docs import fill_docs
from .._sklearn import StrOptions
from . import scores
from ._shadowed import ShadowAttack
from .membership import choose_threshold
from .threshold import rank_among

__all__ = ["ShadowThreshold"]


@fill_docs
class ShadowThreshold(ShadowAttack):
    """Call a record a member if its signal exceeds the best threshold on shadow models.

    With the defaults this is the modified entropy attack of Song & Mittal 2021.

    Parameters
    ----------
    %(target_classifier)s
    signal : str, default="modified_entropy"
        One of ``skprivacy.attacks.scores.SIGNALS``, as for :class:`SignalThreshold`.
    per_class : bool, default=True
        Whether each class has its own threshold. Classes in which the shadow models have no members
        or no non-members use the threshold for all records.
    %(n_shadows)s
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
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skprivacy.attacks import ShadowThreshold
    >>> X, y = make_classification(400, flip_y=0.3, random_state=0)
    >>> target = RandomForestClassifier(10, random_state=0).fit(X[:200], y[:200])
    >>> attack = ShadowThreshold(target, n_shadows=4, random_state=0).fit(X, y)
    >>> attack.evaluate(X[:200], y[:200], X[200:], y[200:]).auc > 0.7
    True
    """

    _needs_classes = True

    _parameter_constraints: dict[str, Any] = {
        **ShadowAttack._parameter_constraints,
        "signal": [StrOptions(set(scores.SIGNALS))],
        "per_class": ["boolean"],
    }

    def __init__(
        self,
        target: Any = None,
        *,
        signal: str = "modified_entropy",
        per_class: bool = True,
        n_shadows: int = 16,
        pool: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.target = target
        self.signal = signal
        self.per_class = per_class
        self.n_shadows = n_shadows
        self.pool = pool
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        super()._learn(X, y, member)
        view = scores.SIGNALS[self.signal]
        signal, trained, label = self._view_shadows(X, y, self.classes_, view)
        self._threshold = _Threshold(signal, trained)
        self._class_thresholds = {}
        if not self.per_class:
            return
        # Song & Mittal 2021: a class-dependent threshold, learned on shadow models
        for c in np.unique(label):
            here = label == c
            if len(np.unique(trained[here])) == 2:
                self._class_thresholds[int(c)] = _Threshold(signal[here], trained[here])

    def _calibrate(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> float:
        return 0.0 if member is None else choose_threshold(self._score(X, y), member, 0.0)

    def _score(self, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
        proba, label = self._target_proba(X, y)
        signal = scores.SIGNALS[self.signal](proba, label)
        score = np.empty(len(signal))
        for c in np.unique(label):
            here = label == c
            score[here] = self._class_thresholds.get(int(c), self._threshold)(signal[here])
        return score


class _Threshold:
    """The signal at which members and non-members differ most, and ranks relative to it."""

    def __init__(self, signal: NDArray[np.float64], trained: NDArray[np.bool_]) -> None:
        self._ordered = np.sort(signal)
        best = choose_threshold(signal, trained, 0.0)
        self._at_best = rank_among(np.array([best]), self._ordered)

    def __call__(self, signal: NDArray[np.float64]) -> NDArray[np.float64]:
        return rank_among(signal, self._ordered) - self._at_best
