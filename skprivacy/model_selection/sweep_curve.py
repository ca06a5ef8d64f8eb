"""Smallest sufficient epsilon and knee of a sweep, with intervals over splits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = ["EpsilonInterval", "Splits", "knee", "smallest_epsilon"]

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
    that of a split. It does not vanish with repeated splits: these steady the mean, but hold no new
    information about the population (Bouckaert and Frank 2004).
    """

    n: int
    test_per_train: float  # test records per training record

    def error(self, variance: Any) -> Any:
        """Return the standard error of a mean over splits."""
        return np.sqrt((1 / self.n + self.test_per_train) * variance)

    def quantile(self, probability: float) -> float:
        return float(stats.t.ppf(probability, self.n - 1))

    def p_value(self, mean: Floats, error: Floats) -> Floats:
        """Return the p-values of means of at most 0; 1 where nothing varies, NaN stays."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = stats.t.sf(mean / error, self.n - 1)
        return np.where(error == 0, 1.0, found)


def smallest_epsilon(
    epsilons: Floats,
    scores: Floats,
    reference: Floats,
    loss: float,
    splits: Splits,
    alpha: float,
    name: str,
) -> EpsilonInterval:
    """Return the smallest epsilon from which on at most ``loss`` of the score is lost.

    ``epsilons`` increases, ``scores`` has a row for each epsilon and a column for each split, and
    ``reference`` a score for each split. Losses are paired by split. Levels are tested in sequence.
    ``high`` is the last one, from the largest down, at which the loss is shown to be at most
    ``loss``. ``low`` is the first one, from the smallest up, at which it is not shown to be larger.
    Only the first error of a sequence counts, so both ends together err with probability ``alpha``.
    This assumes that a larger epsilon never loses more, and that the variance of :class:`Splits`,
    which is a heuristic, is right.
    """
    lost = reference - scores
    mean, variance = lost.mean(axis=1), lost.var(axis=1, ddof=1)
    width = splits.quantile(1 - alpha / 2) * splits.error(variance)
    too_much = mean - width > loss
    return EpsilonInterval(
        _from_there_on(epsilons, mean <= loss),
        float(np.r_[epsilons, math.inf][np.r_[~too_much, True].argmax()]),
        _from_there_on(epsilons, mean + width <= loss),
        f"smallest epsilon that loses at most {loss:g} against {name}",
    )


def knee(epsilons: Floats, scores: Floats) -> EpsilonInterval:
    """Return where the mean score over ln epsilon lies farthest above its chord.

    Parameters
    ----------
    epsilons : ndarray of shape (n_levels,)
        Increasing and finite.
    scores : ndarray of shape (n_levels, n_splits)

    Returns
    -------
    EpsilonInterval
        From the smallest to the largest knee of a single split.

    Notes
    -----
    The offline Kneedle of Satopaa et al. (2011), without smoothing.
    """
    of_splits = [_knee(epsilons, column) for column in scores.T]
    return EpsilonInterval(
        _knee(epsilons, scores.mean(axis=1)), min(of_splits), max(of_splits), "knee"
    )


def _knee(epsilons: Floats, scores: Floats) -> float:
    x = np.log(epsilons)
    rise = np.interp(x, x[[0, -1]], scores[[0, -1]])
    return float(epsilons[int((scores - rise).argmax())])


def _from_there_on(epsilons: Floats, good: NDArray[np.bool_]) -> float:
    """Return the first level from which on all are good, or infinity."""
    bad = np.flatnonzero(~good)
    first = int(bad[-1]) + 1 if len(bad) else 0
    return float(epsilons[first]) if first < len(epsilons) else math.inf
