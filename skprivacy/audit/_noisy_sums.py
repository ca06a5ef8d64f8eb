"""What an attacker who sees every noisy sum of a private training can tell of its canaries."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr
from scipy.stats import binom, chi2

if TYPE_CHECKING:
    from ..neural_network._training.config import TrainingConfig

__all__ = ["SCORED_NOISE", "NoisySums", "Participation"]

Float64Array = NDArray[np.float64]


def _gaussian(x: Float64Array) -> Float64Array:
    return -0.5 * x**2


def _logistic(x: Float64Array) -> Float64Array:
    return -np.abs(x) - 2.0 * np.log1p(np.exp(-np.abs(x)))


# Logarithms of densities up to a constant, at noise of scale 1.
SCORED_NOISE: dict[str, Callable[[Float64Array], Float64Array]] = {
    "gaussian": _gaussian,
    "exact": _gaussian,
    "logistic": _logistic,
}


class NoisySums:
    """How much the noisy sums speak for each canary: a log-likelihood ratio.

    Parameters
    ----------
    config : TrainingConfig
        What the training claims to do.
    n_canaries : int

    Notes
    -----
    A canary in the data adds the clipping norm to its number in the steps that take it. Every step
    takes it by a coin of its own, as is claimed; or, so that a sampler is caught that draws
    nothing, the same step of every epoch does. Which of the two, the sums over all canaries tell.
    """

    def __init__(self, config: TrainingConfig, n_canaries: int) -> None:
        self._norm = float(config.max_grad_norm)
        self._scale = config.noise_multiplier * self._norm
        self._log_density = SCORED_NOISE[config.noise]
        self._taken = math.log(config.sampling_rate)
        with np.errstate(divide="ignore"):  # everybody is taken, at rate 1
            self._left_out = np.log1p(-config.sampling_rate)
        self._by_coins = np.zeros(n_canaries)
        self._in_turn = np.zeros((config.steps_per_epoch, n_canaries), np.float32)
        self._step = 0
        self.participation = Participation(config.sampling_rate)

    def drawn(self, indices: NDArray[np.int64], n: int) -> None:
        self.participation.add(indices, n)

    def released(self, noisy: Float64Array, clean: Float64Array) -> None:
        seen = _less(noisy, clean)
        there = self._log_density((seen - self._norm) / self._scale)
        ratio = there - self._log_density(seen / self._scale)
        self._by_coins += np.logaddexp(self._left_out, self._taken + ratio)
        self._in_turn[self._step % len(self._in_turn)] += ratio
        self._step += 1

    def scores(self) -> Float64Array:
        """Return the scores after all steps."""
        in_turn = logsumexp(self._in_turn.astype(float), axis=0) - math.log(len(self._in_turn))
        return max(self._by_coins, in_turn, key=_evidence)


def _evidence(scores: Float64Array) -> float:
    """Return how likely a hypothesis makes all sums, whichever canaries are in the data."""
    return float(np.logaddexp(0.0, scores).sum())


def _less(noisy: Float64Array, clean: Float64Array) -> Float64Array:
    """Return noisy sums less what records contributed, whatever both were multiplied by.

    **Edge cases.** An engine that scales sums before it adds noise is to be caught by what canaries
    show then, not hidden by what records do.
    """
    length = float(clean @ clean)
    return noisy - clean * (float(noisy @ clean) / length) if length > 0 else noisy


class Participation:
    """Who took part in the steps of a run, and whether coins decided, as is accounted for.

    Parameters
    ----------
    sampling_rate : float
        Probability with which the coin of a record is said to take it.

    Notes
    -----
    Batches of one size, and records that take turns, are more regular than coins. The sums show
    little of it where others hide it; what is accounted for is not what is done all the same.
    """

    def __init__(self, sampling_rate: float) -> None:
        self._rate = sampling_rate
        self._of_records = np.zeros(0, np.int64)
        self._of_steps: list[int] = []

    def add(self, drawn: NDArray[np.int64], n: int) -> None:
        """Note which of ``n`` records take part in a step."""
        if not self._of_steps:
            self._of_records = np.zeros(n, np.int64)
        np.add.at(self._of_records, drawn, 1)
        self._of_steps.append(len(drawn))

    def surprise(self) -> float:
        """Return about how probable coins make so many draws, or draws as regular as these."""
        n, steps, rate = len(self._of_records), len(self._of_steps), self._rate
        too_many = binom.sf(sum(self._of_steps) - 1, n * steps, rate)
        if rate == 1:
            return float(too_many)
        of_coin = rate * (1 - rate)
        # Half a record more, as sizes are whole numbers: they may be right by chance.
        off = np.abs(np.array(self._of_steps) - n * rate) + 0.5
        same_size = chi2.cdf(np.sum(off**2) / (n * of_coin), steps)
        turns = (self._of_records - steps * rate) ** 2 / (steps * of_coin) - 1.0
        variance = 2.0 + (1 - 6 * of_coin) / (steps * of_coin)  # of the square of a binomial
        in_turn = ndtr(turns.sum() / math.sqrt(n * variance))
        return float(min(1.0, 3 * min(too_many, same_size, in_turn)))
