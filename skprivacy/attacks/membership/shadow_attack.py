"""Base of membership attacks that compare the target with shadow models, and their scores.

:func:`standard_score`, :func:`log_ratio` and :func:`rmia` compare the target's signal for a record
with the signals of shadow models, by their :class:`Moments`. :func:`iter_self_attacks` attacks
shadow models with the others, to choose settings without the target. Start reading at
:class:`ShadowAttack`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import clone

from ..._input_data import label_columns
from ..._sklearn import safe_indexing
from ..._validation import Interval
from ...metrics.rates import roc
from ..model_answers import as_classifier, choose_answers, class_list
from ..shadow_answers import PoolLogits
from ..shadow_pool import MODELS_DO_NOT_LEARN, ShadowPool
from .membership_attack import MembershipAttack

Float64Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Setting = Any  # hashable
N_ATTACKED = 8
N_RECORDS = 4000
# False positive rates over which the share of found members is averaged. The logarithmic scale
# gives low rates, which matter most in an audit, as much weight as high ones.
RATES = np.geomspace(0.01, 1, 25)
# Relative. A network's probabilities in single precision differ by up to 1e-7 between batches.
_ROUNDING = 1e-6
View = Callable[[NDArray[np.float64], NDArray[np.intp]], NDArray[np.float64]]


class ShadowAttack(MembershipAttack):
    """Base of attacks with parameters ``target``, ``pool``, ``random_state`` and ``fpr``."""

    _needs_classes = False
    # Whether the attack asks the pool only about records given to ``fit`` or scored.
    _asks_given_records_only: ClassVar[bool] = False

    _parameter_constraints = MembershipAttack._parameter_constraints | {
        "pool": [Interval(Integral, 2, None, closed="left"), ShadowPool],
        "random_state": ["random_state"],
    }

    def __init__(
        self, target: Any = None, *, pool: Any = 16, random_state: Any = None, fpr: float = 0.05
    ) -> None:
        self.target = target
        self.pool = pool
        self.random_state = random_state
        self.fpr = fpr

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        self._fit_pool(X, y)
        if self._label_classes is not None and self.pool_.classes_ is not None:
            self._label_classes = class_list(self._label_classes, self.pool_.classes_)

    @property
    def _needs_models(self) -> bool:
        """Whether the attack needs the models, not only their answers about the pool's records."""
        # Read from the class itself: a subclass may ask about other records than its parent.
        sure = vars(type(self)).get("_asks_given_records_only", False)
        return not sure or getattr(self, "augment", None) is not None

    def _fit_pool(self, X: Any, y: NDArray[Any]) -> None:
        pool = self.pool
        if not isinstance(pool, ShadowPool):
            if pool % 2:
                raise ValueError(
                    f"pool={pool} must be even, because shadow models come in pairs that train on "
                    f"complementary halves. Use {pool + 1}."
                )
            pool = ShadowPool(self.target, n_shadows=pool, random_state=self.random_state)
        self.pool_ = pool if hasattr(pool, "estimators_") else clone(pool).fit(X, y)
        if not self.pool_._answers.vary(X):
            raise ValueError(
                f"{type(self).__name__} cannot measure anything. {MODELS_DO_NOT_LEARN}"
            )

    def _select_pool_records(self, shadows: PoolLogits, X: Any, y: NDArray[Any]) -> PoolRecords:
        rows = shadows.known
        records = X if rows.all() else safe_indexing(X, rows)  # avoids a copy
        logits, trained = shadows.logits[:, rows], shadows.trained[:, rows]
        return PoolRecords(records, y[rows], rows, shadows.prints[rows], logits, trained)

    def _view_shadows(
        self, X: Any, y: NDArray[Any], classes: NDArray[Any], view: View
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.intp]]:
        """Return views of predictions, membership and class, by pair of shadow model and record."""
        trained, known = self.pool_.membership(X)
        if not known.any():
            raise ValueError(
                "X holds no record that the pool was trained on, so no membership in the shadow "
                "models is known. Pass the pool's records to fit."
            )
        label = label_columns(y[known], classes)
        probas = self.pool_.iter_proba(safe_indexing(X, known), classes)
        views = np.concatenate([view(proba, label) for proba in probas])
        return views, trained[:, known].ravel(), np.tile(label, len(trained))

    def _target_logit(self, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the target's signal on the scale of the pool's log-odds."""
        # Carlini et al. 2022, Algorithm 1, line 14: query the target model
        model = as_classifier(self.target, X)
        signal = choose_answers(model, y).signal(model, X, y, self._label_classes)
        return self.pool_._answers.as_log_odds(signal)

    def _check_in_models(self, trained: NDArray[np.bool_], known: NDArray[np.bool_]) -> None:
        """Refuse records without IN models, which online attacks need."""
        if unknown := int(np.sum(~known)):
            raise ValueError(
                f"online=True needs shadow models trained on every scored record, but {unknown} "
                "records are not in the pool. Train the pool on all records to be scored, or use "
                "online=False."
            )
        if unseen := int(np.sum(~trained.any(axis=0))):
            raise ValueError(
                f"online=True needs shadow models trained on every scored record, but no model "
                f"was trained on {unseen} of them. Use online=False."
            )


class TunedAttack(ShadowAttack):
    """Base of attacks that choose their settings by self-attack of the shadow models."""

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        super()._learn(X, y, member)
        shadows = self.pool_._ask_models(X, y)
        self._tune(self._select_pool_records(shadows, X, y))
        self._learn_population(shadows, X, y)

    @abstractmethod
    def _tune(self, known: PoolRecords) -> None:
        """Choose the settings, and set ``power_``, the share of members found by self-attack."""

    @abstractmethod
    def _learn_population(self, shadows: PoolLogits, X: Any, y: NDArray[Any]) -> None:
        """Learn from the attacker's records, once the settings are chosen."""


class AttackSetting(NamedTuple):
    """Settings that share one view of log-odds; ``compare`` yields the scores of each setting."""

    settings: Sequence[Setting]
    view: Callable[[Float64Array], Float64Array]
    compare: Callable[[Float64Array, Float64Array, Mask], Iterable[Float64Array]]


@dataclass(frozen=True)
class SelfAttack:
    """Attack of each shadow model with the others, on records of the pool.

    **Guarantees.** It depends neither on the target nor on the order of the records.
    """

    shadow: Float64Array  # log-odds of the true class, (n_shadows, n_records)
    trained: Mask  # (n_shadows, n_records)
    trials: tuple[tuple[int, list[int]], ...]  # attacked model, and the models that attack it

    @classmethod
    def from_pool(cls, shadow: Float64Array, trained: Mask) -> SelfAttack:
        """Draw a sample of the pool's records."""
        # sorted by content first, so that the sample does not depend on the order of the records
        order = np.lexsort((*trained, *shadow))
        rows = order[np.random.default_rng(0).permutation(len(order))[:N_RECORDS]]
        return cls(shadow[:, rows], trained[:, rows], tuple(iter_self_attacks(trained[:, rows])))

    def score_settings(self, variants: Iterable[AttackSetting]) -> dict[Setting, float]:
        """Return the mean share of members that each setting finds; 0 without a self-attack."""
        found: dict[Setting, float] = {}
        for settings, view, compare in variants:
            values = view(self.shadow)
            found |= dict.fromkeys(settings, 0.0)
            for attacked, others in self.trials:
                scores = compare(values[attacked], values[others], ~self.trained[others])
                for setting, score in zip(settings, scores, strict=True):
                    found[setting] += mean_tpr(score, self.trained[attacked]) / len(self.trials)
        return found


def iter_self_attacks(trained: Mask) -> Iterator[tuple[int, list[int]]]:
    """Yield each model to attack, with the models that attack it.

    The complementary model is left out: its members are exactly the attacked model's non-members.
    """
    for k in range(min(N_ATTACKED, len(trained))):
        others = [j for j in range(len(trained)) if j != k and (trained[j] == trained[k]).any()]
        usable = len(others) > 1 and trained[others].any(axis=0).all()
        if usable and not trained[others].all(axis=0).any() and 0 < trained[k].mean() < 1:
            yield k, others


def mean_tpr(score: Float64Array, member: Mask) -> float:
    """Return the mean true positive rate over the false positive rates ``RATES``."""
    fpr, tpr, _ = roc(score[member], score[~member])
    return float(np.interp(RATES, fpr, tpr).mean())


@dataclass(frozen=True)
class PoolRecords:
    """The attacker's records that are in the pool, with their log-odds and membership."""

    X: Any
    y: NDArray[Any]
    rows: NDArray[np.bool_]  # which of the attacker's records, (n_records_of_attacker,)
    prints: NDArray[np.uint64]  # fingerprints, (n_known,)
    shadow: NDArray[np.float64]  # log-odds of the true class, (n_shadows, n_known)
    trained: NDArray[np.bool_]  # (n_shadows, n_known)

    @cached_property
    def self_attack(self) -> SelfAttack:
        """The self-attack of the shadow models on a sample of these records."""
        return SelfAttack.from_pool(self.shadow, self.trained)


def smooth_logit(log_odds: Float64Array, floor: float) -> Float64Array:
    """Return the log-odds after adding ``floor`` to the probability and to its complement.

    Without it, nearly equal probabilities close to 0 or 1 have very different log-odds: the gap is
    23 between a forest's votes of 1 and .99, but 0.8 between .6 and .4.
    """
    return np.log(expit(log_odds) + floor) - np.log(expit(-log_odds) + floor)


def pooled_variances(values: Float64Array, out: Mask) -> tuple[float, float]:
    """Return the variance within columns over OUT models and over IN models, pooled over columns.

    Each column has its own mean, so differences between records do not count.
    """
    return Moments.from_values(values, out).pooled(), Moments.from_values(values, ~out).pooled()


def rmia(
    ratio: Float64Array, population_ratio: Float64Array, *, gamma: float = 1.0
) -> Float64Array:
    """Return the share of population records that a record's ratio exceeds by ``gamma``: RMIA.

    Ratios that differ only by rounding count as equal: a record of the population is also compared
    with itself, and a model's answers differ in the last bits between batch sizes.
    """
    # Zarifzadeh et al. 2024: the share of z whose pairwise likelihood ratio LR(x, z) >= gamma
    least = np.sort(population_ratio) * (gamma * (1 - _ROUNDING))
    beaten = np.searchsorted(least, ratio, side="right")
    return beaten / len(population_ratio)


def break_ties(share: Float64Array, finer: Float64Array, steps: int) -> Float64Array:
    """Order equal shares by a finer score, without changing the order of unequal shares."""
    return share + expit(finer) / (2 * steps)


class Moments(NamedTuple):
    """Mean, sum of squared deviations and degrees of freedom of each column."""

    mean: Float64Array
    squares: Float64Array
    free: NDArray[np.intp]

    @classmethod
    def from_values(cls, values: Float64Array, used: Mask) -> Moments:
        """Return the moments of the columns of ``values`` over the rows where ``used``."""
        count = used.sum(axis=0)
        mean = _column_sums(values, used) / np.maximum(count, 1)
        squares = _column_sums(((row - mean) ** 2 for row in values), used)
        return cls(mean, squares, np.maximum(count - 1, 0))

    def pooled(self) -> float:
        """Return the variance within columns, pooled over columns; 0 if no column has two rows."""
        return float(self.squares.sum() / max(int(self.free.sum()), 1))

    def deviation(self, prior: float, pooled: float | None) -> Float64Array:
        """Return each column's standard deviation; ``pooled`` has the weight of ``prior`` rows."""
        pooled = self.pooled() if pooled is None else pooled
        if math.isinf(prior):
            variance = np.full(len(self.mean), pooled)
        else:
            variance = (self.squares + prior * pooled) / np.maximum(self.free + prior, 1)
        # models that do not vary must not cause a division by zero
        return np.sqrt(np.maximum(variance, 1e-12))


def column_means(values: Float64Array, used: Mask) -> Float64Array:
    """Return the mean of each column over the rows where ``used``; NaN if there are none."""
    means: Float64Array = _column_sums(values, used) / used.sum(axis=0)
    return means


def standard_score(
    target: Float64Array, out: Moments, prior: float, pooled: float | None = None
) -> Float64Array:
    """Return the standard score of the target's signal among OUT models: offline LiRA.

    ``prior`` is the weight, in models, of the pooled variance in each record's variance: with
    infinity all records share it. Without ``pooled``, a score depends on the other records.
    """
    # Carlini et al. 2022, eq. (4), whose normal distribution function saturates
    return (target - out.mean) / out.deviation(prior, pooled)


def log_ratio(
    target: Float64Array,
    out: Moments,
    inside: Moments,
    prior: float,
    pooled: tuple[float | None, float | None] = (None, None),
) -> Float64Array:
    """Return the log-likelihood ratio of the target's signal, IN against OUT: online LiRA."""
    sd_out, sd_in = out.deviation(prior, pooled[0]), inside.deviation(prior, pooled[1])
    # the logarithm of Carlini et al. 2022, Algorithm 1, line 15
    z_out, z_in = (target - out.mean) / sd_out, (target - inside.mean) / sd_in
    return (z_out**2 - z_in**2) / 2 + np.log(sd_out) - np.log(sd_in)


def _column_sums(rows: Iterable[Float64Array], used: Mask) -> Float64Array:
    """Return the sum of each column over the rows where ``used``.

    **Guarantees.** A sum depends only on its column, to the last bit: rows are added one by one,
    because numpy's rounding depends on the number of columns and the memory layout.
    """
    sums = np.zeros(used.shape[1])
    with np.errstate(invalid="ignore"):  # 0 times infinity
        for row, counts in zip(rows, used, strict=True):
            taken = row * counts  # several times faster than ``where``
            sums += taken if np.isfinite(taken.sum()) else np.where(counts, row, 0.0)
    return sums
