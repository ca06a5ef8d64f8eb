"""Gradient canaries for DP-SGD: a fit with them, and their likelihood ratios.

Nasr et al. 2023 ("Tight auditing"); Steinke, Nasr and Jagielski 2023. The ratios are computed from
every noisy sum of the training. Start reading at :func:`run_with_gradients`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import logsumexp, ndtr
from scipy.stats import binom, chi2
from sklearn.base import clone

from ..._input_data import check_numbers
from ..._validation import num_samples
from ...accounting import PrivacyGuarantee
from ...attacks.record_tables import concat
from ...metrics.coin_guesses import GuessBound, inverse_line_curve, largest_refuted, refutes_curve
from .coins import CanaryRun, inverse_curve
from .noise_test import NEVER, NoiseTest, subtract_records

if TYPE_CHECKING:
    from ...neural_network._training.training_config import TrainingConfig

SEEN = (
    "the claim holds for gradients of any direction and for the sums of all steps together, as it "
    "is accounted for: real records may leak less, and so may the final weights alone"
)
_BUT_FOR_NOISE = "the training is the claimed one, except for the size of its noise"
_FARTHEST = 16.0  # largest tested ratio of claimed noise to actual noise
Float64Array = NDArray[np.float64]


def check_gradient_canaries(network: Any, X: Any) -> None:
    """Raise TypeError or ValueError for networks and records that allow no gradient canaries."""
    name = type(network).__name__
    if not hasattr(network, "_training"):
        raise TypeError(
            f"canaries='gradient' needs a network trained by private gradient descent, such as "
            f"DPSGDClassifier or DPSGDRegressor, outside of a pipeline; got {name}. Leave canaries "
            "out, or pass records."
        )
    network._validate_params()
    wanted: dict[str, tuple[bool, str]] = {
        "epsilon": (
            network.epsilon is None or math.isfinite(network.epsilon),
            "finite: without noise there is nothing to test",
        ),
        "noise": (network.noise in SCORED_NOISE, f"one of {list(SCORED_NOISE)}"),
        "max_grad_norm": (
            network._clipping.method != "per-layer",
            "clipping that is flat, automatic or adaptive: with 'per-layer' a canary, which is in "
            "one weight, shows only part of what a record can",
        ),
        "augment": (network.augment is None, "None: canaries must not be changed"),
        "device": (network._processes is None, "of one process, which must see all sums"),
    }
    for parameter, (fits, expected) in wanted.items():
        if not fits:
            raise ValueError(
                f"canaries='gradient' does not work for {name} with "
                f"{parameter}={getattr(network, parameter)!r}; it must be {expected}. Audit a "
                "clone with that value, or leave canaries out."
            )
    if sparse.issparse(X) or np.ndim(X) != 2 or not num_samples(X):
        raise ValueError(
            f"canaries='gradient' needs X as a dense matrix with a row for each record; got "
            f"{type(X).__name__} of shape {np.shape(X)}. Convert it, for instance by X.toarray()."
        )
    check_numbers(X)


def run_with_gradients(
    network: Any, X: Any, y: NDArray[Any], n_canaries: int, random: np.random.Generator
) -> CanaryRun:
    """Fit a clone once, on all records and on the canaries whose coin says so."""
    from ...neural_network._training.gradient_canaries import CanaryCode, CanaryTraining

    code = CanaryCode.beyond(np.asarray(X.iloc[:, 0] if isinstance(X, pd.DataFrame) else X[:, 0]))
    coin = network.relation
    # Steinke, Nasr and Jagielski 2023, randomised inclusion: a fair coin for each canary.
    trained = random.random(n_canaries) < 0.5
    rows: Any = code.rows(trained, X.shape[1])
    if coin == "add_remove":
        rows = rows[trained]
    if isinstance(X, pd.DataFrame):
        rows = pd.DataFrame(rows, columns=X.columns)
    watched: list[tuple[TrainingConfig, NoisySums]] = []

    def training(config: TrainingConfig, *rest: Any) -> CanaryTraining:
        watcher = NoisySums(config, trained)
        watched.append((config, watcher))
        return CanaryTraining(
            config, *rest, code=code, n_canaries=n_canaries, watcher=watcher, public=random
        )

    fitted = clone(network)
    fitted._training = training
    try:
        fitted.fit(concat(X, rows), np.concatenate([y, np.repeat(y[:1], len(rows), axis=0)]))
    finally:
        del fitted._training
    ((config, sums),) = watched
    return CanaryRun(
        canaries="gradient",
        coin=coin,
        fitted=fitted,
        trained=trained,
        scores=sums.scores(),
        sampled=sums.participation.surprise() > NEVER,
        noise_tests=sums.noise.p_values(),
        event_at=config.event_at,
    )


def bound_on_noise(
    counts: tuple[int, int, int], guarantee: PrivacyGuarantee, run: CanaryRun, alpha: float
) -> GuessBound:
    """Return epsilon with the least noise still refuted, from a sixteenth of the claimed on."""
    claimed, event_at = run.fitted.noise_multiplier_, run.event_at
    assert event_at is not None

    def at(share: float) -> PrivacyGuarantee:
        return replace(guarantee, event=event_at(claimed / share))

    def is_refuted(share: float) -> bool:  # share: ratio of claimed noise to the noise tried
        if share == 0 or share > _FARTHEST:
            return share == 0 and refutes_curve(*counts, inverse_line_curve(0.0, 0.0), alpha)
        return refutes_curve(*counts, inverse_curve(at(share), run.coin), alpha)

    share = largest_refuted(is_refuted, tolerance=0.01)
    epsilon = at(share).epsilon() if share else 0.0
    delta = guarantee.at_delta or 0.0
    return GuessBound(epsilon, delta, float(alpha), "noise", None, (_BUT_FOR_NOISE,))


class NoisySums:
    """Log-likelihood ratio of each canary, accumulated over the noisy sums of all steps.

    A canary in the data adds the clipping norm to its own weight in every step that samples it.
    Two hypotheses are scored: independent coins sample it in every step, as claimed; or a faulty
    sampler takes it in the same step of every epoch. The sums over all canaries decide which one.

    **Guarantees.** Of the coins ``trained``, scores depend only on what the sums show. The coins
    themselves only select the canaries whose weights hold noise alone, for the test of the noise.
    """

    def __init__(self, config: TrainingConfig, trained: NDArray[np.bool_]) -> None:
        n_canaries = len(trained)
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
        self.noise = NoiseTest(config, ~trained)

    def observe_sample(self, indices: NDArray[np.int64], n: int) -> None:
        """Note which of ``n`` records a step samples."""
        self.participation.add(indices, n)

    def observe_release(self, noisy: Float64Array, clean: Float64Array) -> None:
        """Add a step: its noisy sum, and the sum of the other records without noise."""
        self.noise.add(noisy, clean)
        seen = subtract_records(noisy, clean)
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
        # Log-likelihood of all sums under a hypothesis, for fair unknown coins.
        return max(self._by_coins, in_turn, key=lambda s: float(np.logaddexp(0.0, s).sum()))


class Participation:
    """Counts of the records in each step, tested against sampling by independent coins.

    Batches of one size, and records that take turns, are more regular than coins. The noisy sums
    hardly show this if other records hide the canary. But the claim was then computed for a
    different sampling.
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
