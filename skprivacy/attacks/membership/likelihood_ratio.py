"""Likelihood ratio attacks: LiRA (Carlini et al. 2022) and RMIA (Zarifzadeh et al. 2024)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..._clones import describe_error
from ..._docs import fill_docs
from ..._sklearn import StrOptions
from ..._validation import Interval, raise_alone
from ..record_tables import split_rows
from ..shadow_answers import PoolLogits
from .membership_attack import MEMBERSHIP_DOCS
from .shadow_attack import (
    AttackSetting,
    Moments,
    PoolRecords,
    TunedAttack,
    break_ties,
    column_means,
    log_ratio,
    pooled_variances,
    rmia,
    smooth_logit,
    standard_score,
)

FLOORS = (1e-12, 1e-6, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3)
PRIORS = (0.0, 4.0, 16.0, math.inf)
PRIOR_OF = {"global": PRIORS[-1], "per_example": PRIORS[0]}
DEFAULT_FLOOR_AND_PRIOR = (0.01, 16.0)  # floor and prior where none can be chosen
Float64Array = NDArray[np.float64]
DEFAULT_SHARE = 0.3  # offline_a where none can be chosen
SHARES: tuple[float, ...] = (DEFAULT_SHARE, 0.0, 0.1, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@fill_docs(MEMBERSHIP_DOCS)
class LiRA(TunedAttack):
    """Compare a loss with and without the record: likelihood ratio attack (Carlini et al. 2022).

    The offline attack compares the target's log-odds for a record with the log-odds from shadow
    models that were not trained on the record. The online attack also compares them with shadow
    models that were.

    Parameters
    ----------
    %(target_classifier)s
    online : bool, default=False
        Whether to compare also with models trained on the record. The pool must then have been
        trained on every scored record.
    floor : float or "auto", default="auto"
        Added to the probability of the true class and to its complement before taking logarithms.
        Without it, one probability of exactly 0 or 1 dwarfs all others. "auto" chooses it by
        self-attack of the shadow models.
    variance : {"auto", "global", "per_example"}, default="auto"
        "global" uses one standard deviation for all records, "per_example" one for each. "auto"
        chooses between these and a mean of both variances by self-attack of the shadow models.
    augment : callable, default=None
        ``augment(X)`` returns a list of variants of the records, row by row, such as shifted images
        or records with a little (seeded) noise. Scores are summed over the records and their
        variants, since members also stand out on variants.
    %(shadow_parameters)s

    Attributes
    ----------
    %(pool_)s
    floor_ : float
        The floor in use.
    prior_ : float
        Weight, in models, of the pooled variance in each record's variance: 0 uses the record's own
        variance, infinity the pooled variance.
    power_ : float
        Mean share of the shadow models' members found by self-attack; 0 if it was not possible.

    Notes
    -----
    **Guarantees.** The score of a record that the pool was trained on depends on the shadow models
    and the records given to ``fit``, but not on the other records of the call.

    "auto" attacks each shadow model with the others, on the records given to ``fit``. It takes the
    setting with the highest true positive rate, averaged over false positive rates from 1% to 100%
    on a logarithmic scale. The target and its members play no part, so the choice does not bias the
    attack. If no self-attack is possible (a pool of two models, or records outside the pool), the
    floor is 0.01 and the prior 16 models.

    References
    ----------
    N. Carlini, S. Chien, M. Nasr, S. Song, A. Terzis, F. Tramer. Membership inference attacks
    from first principles. IEEE S&P 2022.

    Examples
    --------
    %(forest_target)s
    >>> from skprivacy.attacks import LiRA
    >>> attack = LiRA(target, pool=4, random_state=0).fit(records)
    >>> attack.evaluate(records[:200], records[200:]).auc > 0.7
    True
    """

    _parameter_constraints = TunedAttack._parameter_constraints | {
        "online": ["boolean"],
        "augment": [callable, None],
        "floor": [Interval(Real, 0, 1, closed="left"), StrOptions({"auto"})],
        "variance": [StrOptions({"auto", "global", "per_example"})],
    }

    _asks_given_records_only = True

    def __init__(
        self,
        target: Any = None,
        *,
        online: bool = False,
        floor: float | str = "auto",
        variance: str = "auto",
        augment: Callable[[Any], list[Any]] | None = None,
        pool: Any = 16,
        random_state: Any = None,
        fpr: float = 0.05,
    ) -> None:
        super().__init__(target, pool=pool, random_state=random_state, fpr=fpr)
        self.online = online
        self.floor = floor
        self.variance = variance
        self.augment = augment

    def _tune(self, known: PoolRecords) -> None:
        floors = FLOORS if self.floor == "auto" else (float(self.floor),)
        priors = PRIORS if self.variance == "auto" else (PRIOR_OF[self.variance],)
        variants = [
            AttackSetting(
                [(floor, prior) for prior in priors],
                partial(smooth_logit, floor=floor),
                partial(self._compare_all, priors=priors),
            )
            for floor in floors
        ]
        found = known.self_attack.score_settings(variants)
        # among equal powers, the setting nearest to the default
        best = max(sorted(found, key=_distance_from_default), key=found.__getitem__)
        (self.floor_, self.prior_), self.power_ = best, found[best]

    def _compare_all(
        self,
        target: Float64Array,
        shadow: Float64Array,
        out: NDArray[np.bool_],
        priors: Iterable[float],
        pooled: tuple[float | None, float | None] = (None, None),
    ) -> Iterator[Float64Array]:
        """Yield the scores for each prior, from the same moments."""
        # Carlini et al. 2022, Algorithm 1, lines 10 to 13: means and variances; the offline attack
        # omits lines 10 and 12
        without = Moments.from_values(shadow, out)
        within = Moments.from_values(shadow, ~out) if self.online else None
        for prior in priors:
            if within is None:
                yield standard_score(target, without, prior, pooled[0])
            else:
                yield log_ratio(target, without, within, prior, pooled)

    def _learn_population(self, shadows: PoolLogits, X: Any, y: NDArray[Any]) -> None:
        """Fix the pooled variances, so that no score depends on the other records of a call."""
        smooth = smooth_logit(shadows.logits, self.floor_)
        self._pooled = pooled_variances(smooth, shadows.out)

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        shadows = self.pool_._ask_models(X, y)
        if self.online:
            self._check_in_models(shadows.trained, shadows.known)
        total = np.zeros(len(y))
        # Section IV-C of the paper: spherical Gaussians over augmentations, so that scores add up
        for query, known in [(X, shadows.logits), *((q, None) for q in self._variants(X))]:
            target = self._target_logit(query, y)
            shadow = self.pool_.logits(query, y) if known is None else known
            for rows in split_rows(len(y)):  # bounds the memory: a step copies all models' logits
                own = smooth_logit(target[rows], self.floor_)
                others = smooth_logit(shadow[:, rows], self.floor_)
                out = shadows.out[:, rows]
                total[rows] += next(
                    self._compare_all(own, others, out, [self.prior_], self._pooled)
                )
        return total

    def _variants(self, X: Any) -> list[Any]:
        if self.augment is None:
            return []
        try:
            return list(self.augment(X))
        except TypeError as error:
            raise_alone(
                TypeError(
                    f"augment={self.augment!r} must return a list of variants of the records that "
                    f"it is given. It failed: {describe_error(error)}"
                )
            )


@fill_docs(MEMBERSHIP_DOCS)
class RMIA(TunedAttack):
    """Compare a record's likelihood ratio with other records' (RMIA, Zarifzadeh et al. 2024).

    A record is called a member if the target raises its probability, relative to the mean over
    models, more than it raises the probabilities of population records. RMIA is strong even with
    few shadow models.

    Parameters
    ----------
    %(target_classifier)s
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
    %(shadow_parameters)s

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
    %(forest_target)s
    >>> from skprivacy.attacks import RMIA
    >>> attack = RMIA(target, pool=4, random_state=0).fit(records)
    >>> attack.evaluate(records[:200], records[200:]).auc > 0.7
    True
    """

    _parameter_constraints = TunedAttack._parameter_constraints | {
        "online": ["boolean"],
        "gamma": [Interval(Real, 0, None, closed="neither")],
        "offline_a": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
    }

    _asks_given_records_only = True

    def __init__(
        self,
        target: Any = None,
        *,
        online: bool = False,
        gamma: float = 1.0,
        offline_a: float | str = "auto",
        pool: Any = 16,
        random_state: Any = None,
        fpr: float = 0.05,
    ) -> None:
        super().__init__(target, pool=pool, random_state=random_state, fpr=fpr)
        self.online = online
        self.gamma = gamma
        self.offline_a = offline_a

    def _tune(self, known: PoolRecords) -> None:
        tried = SHARES if self.offline_a == "auto" else (float(self.offline_a),)
        if self.online:  # offline_a has no effect
            tried = tried[:1]
        # The ratio itself is compared: it orders records as the score does, for any population and
        # any gamma.
        every = AttackSetting(tried, expit, partial(self._compare_all, tried=tried))
        found = known.self_attack.score_settings([every])
        self.offline_a_ = max(found, key=found.__getitem__)
        self.power_ = found[self.offline_a_]

    def _learn_population(self, shadows: PoolLogits, X: Any, y: NDArray[Any]) -> None:
        self.population_ratio_ = self._ratio(shadows, X, y)

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        ratio = self._ratio(self.pool_._ask_models(X, y), X, y)
        beaten = rmia(ratio, self.population_ratio_, gamma=self.gamma)
        return break_ties(beaten, np.log(ratio), len(self.population_ratio_))

    def _ratio(self, shadows: PoolLogits, X: Any, y: NDArray[Any]) -> Float64Array:
        if self.online:
            self._check_in_models(shadows.trained, shadows.known)
        target, shadow = expit(self._target_logit(X, y)), expit(shadows.logits)
        (ratio,) = self._compare_all(target, shadow, shadows.out, [self.offline_a_])
        return ratio

    def _compare_all(
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


def _distance_from_default(setting: tuple[float, float]) -> float:
    floor, prior = setting
    return abs(math.log(max(floor, 1e-12) / DEFAULT_FLOOR_AND_PRIOR[0])) + abs(
        math.atan(prior / DEFAULT_FLOOR_AND_PRIOR[1]) - math.pi / 4
    )
