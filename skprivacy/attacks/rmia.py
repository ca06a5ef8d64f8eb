"""Robust membership inference attack, RMIA (Zarifzadeh et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from .._docs import fill_docs
from .._sklearn import StrOptions
from .._validation import Interval
from . import scores
from ._moments import column_means
from ._rehearsal import AttackSetting
from ._shadowed import PoolRecords, ShadowAttack
from .shadow import PoolLogits

__all__ = ["RMIA"]

Float64Array = NDArray[np.float64]
USUAL = 0.3  # offline_a where none can be chosen
SHARES: tuple[float, ...] = (USUAL, 0.0, 0.1, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@fill_docs
class RMIA(ShadowAttack):
    """Robust membership inference attack, RMIA (Zarifzadeh et al. 2024).

    A record is called a member if the target raises its probability, relative to the mean over
    models, more than it raises the probabilities of population records. RMIA is strong even with
    few shadow models.

    Parameters
    ----------
    %(target_classifier)s
    %(n_shadows)s
    online : bool, default=False
        Whether the mean includes models trained on the record. The pool must then have been
        trained on every record, including those given to ``fit``.
    gamma : float, default=1.0
        Factor by which a record's ratio must exceed a population record's.
    offline_a : float or "auto", default="auto"
        Offline, the mean over all models is estimated as ``((1 + a) p_out + 1 - a) / 2``, from the
        mean ``p_out`` over models not trained on the record. The best ``a`` is lower for targets
        that overfit more. "auto" chooses it by self-attack of the shadow models, as in
        :class:`LiRA`; 0.3 if that is not possible.
    %(shadow_pool)s
    %(attack_fpr)s

    Attributes
    ----------
    %(pool_)s
    population_ratio_ : ndarray of shape (n_records,)
        Ratios of the records given to ``fit``.
    offline_a_ : float
        The value in use; without effect if ``online``.
    power_ : float
        Mean share of the shadow models' members found by self-attack; 0 if it was not possible.

    Notes
    -----
    The records given to ``fit`` are the population. The score is the share of them whose ratio a
    record exceeds by ``gamma``; records with equal shares are ordered by their ratio.

    References
    ----------
    S. Zarifzadeh, P. Liu, R. Shokri. Low-cost high-power membership inference attacks.
    ICML 2024.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skprivacy.attacks import RMIA
    >>> X, y = make_classification(400, flip_y=0.3, random_state=0)
    >>> target = RandomForestClassifier(10, random_state=0).fit(X[:200], y[:200])
    >>> attack = RMIA(target, n_shadows=4, random_state=0).fit(X, y)
    >>> attack.evaluate(X[:200], y[:200], X[200:], y[200:]).auc > 0.7
    True
    """

    _parameter_constraints: dict[str, Any] = {
        **ShadowAttack._parameter_constraints,
        "online": ["boolean"],
        "gamma": [Interval(Real, 0, None, closed="neither")],
        "offline_a": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
    }

    _asks_given_records_only = True

    def __init__(
        self,
        target: Any = None,
        *,
        n_shadows: int = 16,
        online: bool = False,
        gamma: float = 1.0,
        offline_a: float | str = "auto",
        pool: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        fpr: float = 0.05,
    ) -> None:
        self.target = target
        self.n_shadows = n_shadows
        self.online = online
        self.gamma = gamma
        self.offline_a = offline_a
        self.pool = pool
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.fpr = fpr

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        super()._learn(X, y, member)
        shadows = self.pool_._ask_models(X, y)
        self._tune(self._select_pool_records(shadows, X, y))
        self._learn_population(shadows, X, y)

    def _tune(self, known: PoolRecords) -> None:
        tried = SHARES if self.offline_a == "auto" else (float(self.offline_a),)
        if self.online:  # offline_a has no effect
            tried = tried[:1]
        # The ratio itself is compared: it orders records as the score does, for any population and
        # any gamma.
        every = AttackSetting(tried, expit, partial(self._compared, tried=tried))
        found = known.self_attack.score_settings([every])
        self.offline_a_ = max(found, key=found.__getitem__)
        self.power_ = found[self.offline_a_]

    def _learn_population(self, shadows: PoolLogits, X: Any, y: NDArray[Any]) -> None:
        self.population_ratio_ = self._ratio(shadows, X, y)

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        ratio = self._ratio(self.pool_._ask_models(X, y), X, y)
        beaten = scores.rmia(ratio, self.population_ratio_, gamma=self.gamma)
        return scores.break_ties(beaten, np.log(ratio), len(self.population_ratio_))

    def _ratio(self, shadows: PoolLogits, X: Any, y: NDArray[Any]) -> Float64Array:
        if self.online:
            self._check_in_models(shadows.trained, shadows.known)
        target, shadow = expit(self._target_logit(X, y)), expit(shadows.logits)
        (ratio,) = self._compared(target, shadow, shadows.out, [self.offline_a_])
        return ratio

    def _compared(
        self,
        target: Float64Array,
        shadow: Float64Array,
        out: NDArray[np.bool_],
        tried: Iterable[float],
    ) -> Iterator[Float64Array]:
        """Yield the ratio of the target's probability to the mean over models, for each a."""
        mean_out = column_means(shadow, out)
        # Zarifzadeh et al. 2024, online: Pr(x) is the mean over IN and OUT models, half of each
        mean = (mean_out + column_means(shadow, ~out)) / 2 if self.online else None
        for a in tried:
            # Zarifzadeh et al. 2024, offline: Pr(x) from OUT models by the linear factor a
            yield target / (((1 + a) * mean_out + 1 - a) / 2 if mean is None else mean)
