"""Membership scores as pure functions of predictions: a higher score always means member.

Scores of one model take ``proba`` of shape (n_records, n_classes), whose rows sum to one, and
``label`` of shape (n_records,), the column of each record's true class. Calibrated scores
(:func:`standard_score`, :func:`log_ratio`, :func:`rmia`) compare the target's signal for a record
with the signals of shadow models. :class:`Moments` holds the means and variances of signals over IN
and OUT models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Float64Array = NDArray[np.float64]
Labels = NDArray[np.intp]
# Gives probabilities of exactly 0 (trees, nearest neighbours, saturated softmax) a finite
# logarithm, about -27.6. With a smaller floor, one such prediction would dwarf all others.
FLOOR = 1e-12
# Relative. A network's probabilities in single precision differ by up to 1e-7 between batches.
_ROUNDING = 1e-6
Mask = NDArray[np.bool_]


Signal = Callable[[Float64Array, Labels], Float64Array]
SIGNALS: dict[str, Signal] = {}  # scores of one model, by name


def _signal(formula: Signal) -> Signal:
    """List a score of one model in ``SIGNALS``."""
    SIGNALS[formula.__name__] = formula
    return formula


@_signal
def loss(proba: Float64Array, label: Labels) -> Float64Array:
    """Return minus the cross-entropy loss (Yeom et al. 2018)."""
    return np.log(np.maximum(_label_probability(proba, label), FLOOR))


@_signal
def correctness(proba: Float64Array, label: Labels) -> Float64Array:
    """Return 1 if the model predicts the true class, else 0: gap attack (Yeom et al. 2018)."""
    return (proba.argmax(axis=1) == label).astype(float)


@_signal
def confidence(proba: Float64Array, label: Labels) -> Float64Array:
    """Return the probability of the true class."""
    return _label_probability(proba, label)


@_signal
def max_confidence(proba: Float64Array, label: Labels) -> Float64Array:
    """Return the highest probability, ignoring the label: ML-Leaks adversary 3 (Salem 2019)."""
    return proba.max(axis=1)


@_signal
def entropy(proba: Float64Array, label: Labels) -> Float64Array:
    """Return minus the entropy of the prediction, ignoring the label."""
    return np.sum(proba * np.log(np.maximum(proba, FLOOR)), axis=1)


@_signal
def modified_entropy(proba: Float64Array, label: Labels) -> Float64Array:
    """Return minus the modified entropy, which uses the true class (Song & Mittal 2021).

    The modified entropy is ``-(1 - p_y) ln p_y - sum over i != y of p_i ln(1 - p_i)``. It is small
    for a confident correct prediction and large for a confident wrong one."""
    p = _label_probability(proba, label)
    rest = _without_label(proba, label)
    # Song & Mittal 2021: modified prediction entropy Mentr
    wrong = np.sum(rest * np.log(np.maximum(1 - rest, FLOOR)), axis=1)
    return (1 - p) * np.log(np.maximum(p, FLOOR)) + wrong


@_signal
def logit(proba: Float64Array, label: Labels) -> Float64Array:
    """Return the log-odds of the true class, ``ln p_y - ln(1 - p_y)`` (Carlini et al. 2022).

    ``1 - p_y`` is computed as the sum over the other classes, because the subtraction loses
    precision near ``p_y = 1``."""
    # Carlini et al. 2022, Section IV-C: logit scaling phi
    p = np.maximum(_label_probability(proba, label), FLOOR)
    return np.log(p) - np.log(np.maximum(_without_label(proba, label).sum(axis=1), FLOOR))


@_signal
def margin(proba: Float64Array, label: Labels) -> Float64Array:
    """Return the probability of the true class minus the highest other probability, in [-1, 1]."""
    return _label_probability(proba, label) - _without_label(proba, label).max(axis=1)


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


def _label_probability(proba: Float64Array, label: Labels) -> Float64Array:
    return np.take_along_axis(proba, label[:, None], axis=1)[:, 0]


def _without_label(proba: Float64Array, label: Labels) -> Float64Array:
    rest = proba.copy()
    np.put_along_axis(rest, label[:, None], 0.0, axis=1)
    return rest


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
