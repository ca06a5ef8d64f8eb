"""Log-likelihood ratios of gradient canaries from every noisy sum of a DP-SGD training."""

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


# Logarithms of noise densities at scale 1, up to a constant.
SCORED_NOISE: dict[str, Callable[[Float64Array], Float64Array]] = {
    "gaussian": _gaussian,
    "exact": _gaussian,
    "logistic": _logistic,
}


class NoisySums:
    """Log-likelihood ratio of each canary, accumulated over the noisy sums of all steps.

    A canary in the data adds the clipping norm to its own weight in every step that samples it.
    Two hypotheses are scored: independent coins sample it in every step, as claimed; or a faulty
    sampler takes it in the same step of every epoch. The sums over all canaries decide which one.
    """

    def __init__(self, config: TrainingConfig, n_canaries: int) -> None:
        self._norm = float(config.max_grad_norm)
        self._scale = config.noise_multiplier * self._norm
        self._log_density = SCORED_NOISE[config.noise]
        self._log_taken = math.log(config.sampling_rate)
        with np.errstate(divide="ignore"):  # log 0 at sampling rate 1
            self._log_left_out = np.log1p(-config.sampling_rate)
        self._by_coins = np.zeros(n_canaries)
        self._in_turn = np.zeros((config.steps_per_epoch, n_canaries), np.float32)
        self._step = 0
        self.participation = Participation(config.sampling_rate)

    def drawn(self, indices: NDArray[np.int64], n: int) -> None:
        """Note which of ``n`` records a step samples."""
        self.participation.add(indices, n)

    def released(self, noisy: Float64Array, clean: Float64Array) -> None:
        """Add a step: its noisy sum, and the sum of the other records without noise."""
        seen = _residual(noisy, clean)
        # Nasr et al. 2023, white-box attack: the canary's coordinate of every noisy sum, here as
        # the likelihood ratio that is optimal by Neyman and Pearson.
        there = self._log_density((seen - self._norm) / self._scale)
        ratio = there - self._log_density(seen / self._scale)
        # Likelihood ratio of a canary that a coin of the sampling rate takes or leaves out.
        self._by_coins += np.logaddexp(self._log_left_out, self._log_taken + ratio)
        self._in_turn[self._step % len(self._in_turn)] += ratio
        self._step += 1

    def scores(self) -> Float64Array:
        """Return the scores after all steps, under the likelier hypothesis."""
        in_turn = logsumexp(self._in_turn.astype(float), axis=0) - math.log(len(self._in_turn))
        return max(self._by_coins, in_turn, key=_evidence)


def _evidence(scores: Float64Array) -> float:
    """Return the log-likelihood of all sums under a hypothesis, for fair unknown coins."""
    return float(np.logaddexp(0.0, scores).sum())


def _residual(noisy: Float64Array, clean: Float64Array) -> Float64Array:
    """Return noisy sums minus their projection on the records' contributions.

    The projection removes the records at any scale. An engine that scales sums before it adds noise
    is then detected by its canaries, and not hidden by its records.
    """
    length = float(clean @ clean)
    return noisy - clean * (float(noisy @ clean) / length) if length > 0 else noisy


class Participation:
    """Counts of the records in each step, tested against sampling by independent coins.

    Batches of one size, and records that take turns, are more regular than coins. The noisy sums
    hardly show this if other records hide the canary, but the claim is then accounted for another
    sampling than the one that runs.
    """

    def __init__(self, sampling_rate: float) -> None:
        self._rate = sampling_rate
        self._of_records = np.zeros(0, np.int64)
        self._of_steps: list[int] = []

    def add(self, drawn: NDArray[np.int64], n: int) -> None:
        """Count which of ``n`` records take part in a step."""
        if not self._of_steps:
            self._of_records = np.zeros(n, np.int64)
        np.add.at(self._of_records, drawn, 1)
        self._of_steps.append(len(drawn))

    def surprise(self) -> float:
        """Return a p-value of the claimed coins: for more draws, or for more regular ones."""
        n, steps, rate = len(self._of_records), len(self._of_steps), self._rate
        too_many = binom.sf(sum(self._of_steps) - 1, n * steps, rate)
        if rate == 1:
            return float(too_many)
        of_coin = rate * (1 - rate)
        # Sizes are whole numbers and may equal the mean by chance, hence half a record more.
        off = np.abs(np.array(self._of_steps) - n * rate) + 0.5
        same_size = chi2.cdf(np.sum(off**2) / (n * of_coin), steps)
        turns = (self._of_records - steps * rate) ** 2 / (steps * of_coin) - 1.0
        variance = 2.0 + (1 - 6 * of_coin) / (steps * of_coin)  # of a squared standard binomial
        in_turn = ndtr(turns.sum() / math.sqrt(n * variance))
        # Three tests, hence three times the least p-value (Bonferroni).
        return float(min(1.0, 3 * min(too_many, same_size, in_turn)))
