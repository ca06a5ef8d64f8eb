"""Smallest sufficient epsilon and knee of a sweep, with intervals over splits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EpsilonInterval:
    """A privacy level that was read off a sweep; **no guarantee covers the choice**.

    Attributes
    ----------
    epsilon : float
        The level. Infinity if no swept level is sufficient.
    low, high : float
        The levels between which it lies. Infinity if the results do not bound it.
    meaning : str
        Description of the quantity.
    """

    epsilon: float
    low: float
    high: float
    meaning: str

    def __repr__(self) -> str:
        best = "none of those swept" if math.isinf(self.epsilon) else f"{self.epsilon:g}"
        ends = f"at least {self.low:g}"
        if math.isfinite(self.high):
            ends = f"from {self.low:g} to {self.high:g}"
        return f"{self.meaning}: {best}" + f" ({ends})" * math.isfinite(self.low)


@dataclass(frozen=True)
class Splits:
    """Corrected errors of means over cross-validation splits (Nadeau and Bengio 2003).

    Splits share training records, so the variance of their mean is (1 / n + test_per_train) times
    the variance of a split. It does not vanish with repeated splits: these steady the mean, but
    hold no new information about the population (Bouckaert and Frank 2004).
    """

    n: int
    test_per_train: float  # test records per training record

    def error(self, variance: Any) -> Any:
        """Return the standard error of a mean over splits."""
        return np.sqrt((1 / self.n + self.test_per_train) * variance)

    def quantile(self, probability: float) -> float:
        return float(stats.t.ppf(probability, self.n - 1))

    def interval(self, values: Floats, alpha: float) -> tuple[Floats, Floats, Floats]:
        """Return the mean of each row over splits and the ends of its interval."""
        mean = values.mean(axis=-1)
        width = self.quantile(1 - alpha / 2) * self.error(values.var(axis=-1, ddof=1))
        return mean, mean - width, mean + width

    def p_value(self, mean: Floats, error: Floats) -> Floats:
        """Return the p-values of means of at most 0; 1 where nothing varies, NaN stays."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = stats.t.sf(mean / error, self.n - 1)
        return np.where(error == 0, 1.0, found)


def is_useless(scores: Floats, constant: Floats | float) -> NDArray[np.bool_]:
    """Return whether the constant predictor has at least the mean score of each row.

    The scores are paired by split. A NaN shows nothing, so it is not useless.
    """
    useless: NDArray[np.bool_] = (scores - constant).mean(axis=-1) <= 0
    return useless


def smallest_epsilon(
    epsilons: Floats,
    scores: Floats,
    reference: Floats,
    loss: float,
    splits: Splits,
    alpha: float,
    name: str,
    constant: Floats | float = -math.inf,
) -> EpsilonInterval:
    """Return the smallest epsilon from which on at most ``loss`` of the score is lost.

    ``epsilons`` increases, ``scores`` has a row for each epsilon and a column for each split, and
    ``reference`` a score for each split, like ``constant``. No useless level counts. Losses are
    paired by split. Levels are tested in sequence. ``high`` is the last one, from the largest down,
    at which the loss is shown to be at most ``loss``, and the score to be above the constant. A
    level must pass both tests, so together they err no more often than one. ``low`` is the first
    one, from the smallest up, at which the loss is not shown to be larger. Only the first error of
    a sequence counts, so both ends together err with probability ``alpha``. This assumes that a
    larger epsilon never loses more, and that the variance of :class:`Splits`, which is a heuristic,
    is right.
    """
    lost, least, most = splits.interval(reference - scores, alpha)
    is_better = np.ones(len(epsilons), dtype=bool)
    if np.isfinite(constant).all():
        is_better = splits.interval(scores - constant, alpha)[1] > 0
    return EpsilonInterval(
        _first_lasting_level(epsilons, (lost <= loss) & ~is_useless(scores, constant)),
        float(np.r_[epsilons, math.inf][np.r_[least <= loss, True].argmax()]),
        _first_lasting_level(epsilons, (most <= loss) & is_better),
        f"smallest epsilon that loses at most {loss:g} against {name}",
    )


def knee(epsilons: Floats, scores: Floats, constant: Floats | float = -math.inf) -> EpsilonInterval:
    """Return where the mean score over ln epsilon lies farthest above its chord.

    Parameters
    ----------
    epsilons : ndarray of shape (n_levels,)
        Increasing and finite.
    scores : ndarray of shape (n_levels, n_splits)
    constant : ndarray of shape (n_splits,), default=-infinity
        Scores of the constant predictor. A knee must be above them.

    Returns
    -------
    EpsilonInterval
        From the smallest to the largest knee of a single split.

    Notes
    -----
    The offline Kneedle of Satopaa et al. (2011), without smoothing.
    """
    floors = np.broadcast_to(constant, scores.shape[1])
    of_splits = [
        _knee(epsilons, column, column <= floor)
        for column, floor in zip(scores.T, floors, strict=True)
    ]
    whole = _knee(epsilons, scores.mean(axis=1), is_useless(scores, constant))
    return EpsilonInterval(whole, min(of_splits), max(of_splits), "knee")


def _knee(epsilons: Floats, scores: Floats, useless: NDArray[np.bool_]) -> float:
    if useless.all():
        return math.inf
    x = np.log(epsilons)
    rise = np.interp(x, x[[0, -1]], scores[[0, -1]])
    return float(epsilons[int(np.where(useless, -math.inf, scores - rise).argmax())])


def _first_lasting_level(epsilons: Floats, good: NDArray[np.bool_]) -> float:
    """Return the first level from which on all are good, or infinity."""
    bad = np.flatnonzero(~good)
    first = int(bad[-1]) + 1 if len(bad) else 0
    return float(epsilons[first]) if first < len(epsilons) else math.inf
