"""Canaries in gradient space: records with a long gradient, each in one weight of its own.

The training is the one that estimators run: canaries are rows of its data, drawn by its sampler,
clipped, summed and released with all others. Only what their gradients are is said here, and every
noisy sum is looked at.

Nasr et al., "Tight auditing of differentially private machine learning", USENIX Security 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp
from torch import Tensor, nn

from ...mechanisms import Mechanism, SecureRandom
from .._gradients.contributions import Contribution
from .._gradients.trial import PerExampleGradients
from .config import TrainingConfig
from .engine import Alone, Peers, Training
from .rows import MappedRows

__all__ = ["CanaryCode", "CanaryScores", "CanaryTraining", "scored_noise"]

Float64Array = NDArray[np.float64]

_LENGTH = 10.0  # of a canary's gradient, in clipping norms: what is not clipped shows
_NUMBERS = 1 << 23  # that single precision tells apart between two powers of two
_LARGEST = 2.0**48  # of a first feature: beyond 1e15 training takes numbers for infinite


@dataclass(frozen=True)
class CanaryCode:
    """The rows that stand for canaries, told from records by their first feature.

    Parameters
    ----------
    start : float
        A power of two beyond the first feature of every record. Canary i has ``start`` times
        ``1 + i / 2**23`` there, which is exact in single precision, and zeros elsewhere.

    Notes
    -----
    **Edge cases.** A canary that is not in the data is a row of NaN, which has no finite gradient:
    under zero-out, a record that contributes nothing.
    """

    start: float

    @classmethod
    def beyond(cls, first: NDArray[Any]) -> CanaryCode:
        """Return a code that no record with such a first feature is taken for."""
        finite = np.abs(first[np.isfinite(first)].astype(float))
        largest = float(finite.max(initial=1.0))
        if largest > _LARGEST:
            raise ValueError(
                f"X holds {largest:g} in its first feature, where canaries are numbered above all "
                f"records, up to {_LARGEST:g}. Scale the features."
            )
        return cls(2.0 ** (math.frexp(largest)[1] + 1))

    def rows(self, there: NDArray[np.bool_], n_features: int) -> Float64Array:
        """Return a row for each canary."""
        rows = np.zeros((len(there), n_features))
        rows[:, 0] = self.start * (1.0 + np.arange(len(there)) / _NUMBERS)
        rows[~there] = np.nan
        return rows

    def found(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return which rows are canaries, and the numbers of these canaries."""
        first = inputs[:, 0]
        is_canary = (first >= self.start) & (first < 2 * self.start)
        numbers = (first[is_canary] / self.start - 1.0) * _NUMBERS
        return is_canary, numbers.round().long()


class CanaryGradients:
    """Per-example gradients with those of canaries in the place of what their rows would have.

    Parameters
    ----------
    others : PerExampleGradients
        Of records.
    code : CanaryCode
    grad : torch.Tensor
        The vector that gradients are added to.
    weights : torch.Tensor
        Where in it each canary has its number.
    length : float
        That number.

    Attributes
    ----------
    clean : torch.Tensor
        What records without canaries added to ``grad`` at ``weights``, since it was last cleared.
    """

    def __init__(
        self,
        others: PerExampleGradients,
        code: CanaryCode,
        grad: Tensor,
        weights: Tensor,
        length: float,
    ) -> None:
        self.name = others.name
        self.grad = grad
        self.weights = weights
        self.length = length
        self.clean = torch.zeros(len(weights), dtype=torch.float64, device=grad.device)
        self._others = others
        self._code = code

    def __call__(self, inputs: Tensor, targets: Tensor) -> list[Contribution]:
        is_canary, numbers = self._code.found(inputs)
        blank = inputs.masked_fill(is_canary[:, None], 0.0)
        *rest, last = [c.without(is_canary) for c in self._others(blank, targets)]
        before = self.grad[self.weights]
        return [*rest, _WithCanaries(last, self, is_canary, numbers, before)]


@dataclass
class _WithCanaries:
    """The last layer's share of records, and canaries."""

    records: Contribution
    to: CanaryGradients
    is_canary: Tensor
    numbers_of_canaries: Tensor
    before: Tensor  # what ``to.grad`` held before any layer added to it

    def squared_norms(self) -> Tensor:
        return self.records.squared_norms().masked_fill(self.is_canary, self.to.length**2)

    def add_sum(self, factors: Tensor) -> None:
        self.records.add_sum(factors)
        to = self.to
        to.clean += to.grad[to.weights].double() - self.before
        theirs = to.length * factors[self.is_canary]
        to.grad.index_add_(0, to.weights[self.numbers_of_canaries], theirs)

    def without(self, bad: Tensor) -> _WithCanaries:
        kept = ~bad[self.is_canary]
        return _WithCanaries(
            self.records.without(bad),
            self.to,
            self.is_canary & ~bad,
            self.numbers_of_canaries[kept],
            self.before,
        )

    def numbers(self) -> int:
        return self.records.numbers()


class CanaryScores:
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
        self._log_density = _LOG_DENSITIES[config.noise]
        with np.errstate(divide="ignore"):
            self._left_out, self._taken = (
                np.log1p(-config.sampling_rate),
                np.log(config.sampling_rate),
            )
        self._by_coins = np.zeros(n_canaries)
        self._in_turn = np.zeros((config.steps_per_epoch, n_canaries), np.float32)
        self._step = 0

    def add(self, seen: Float64Array) -> None:
        """Take one step in: noisy numbers of the canaries, less what records contributed."""
        there = self._log_density((seen - self._norm) / self._scale)
        ratio = there - self._log_density(seen / self._scale)
        self._by_coins += np.logaddexp(self._left_out, self._taken + ratio)
        self._in_turn[self._step % len(self._in_turn)] += ratio
        self._step += 1

    def __call__(self) -> Float64Array:
        """Return the scores after all steps."""
        in_turn = logsumexp(self._in_turn.astype(float), axis=0) - math.log(len(self._in_turn))
        return max(self._by_coins, in_turn, key=_evidence)


def _evidence(scores: Float64Array) -> float:
    """Return how likely a hypothesis makes all sums, whichever canaries are in the data."""
    return float(np.logaddexp(0.0, scores).sum())


def scored_noise() -> list[str]:
    """Return the kinds of noise whose sums can be scored."""
    return list(_LOG_DENSITIES)


def _gaussian(x: Float64Array) -> Float64Array:
    return -0.5 * x**2


def _logistic(x: Float64Array) -> Float64Array:
    return -np.abs(x) - 2.0 * np.log1p(np.exp(-np.abs(x)))


# Up to a constant, at noise of scale 1.
_LOG_DENSITIES: dict[str, Callable[[Float64Array], Float64Array]] = {
    "gaussian": _gaussian,
    "logistic": _logistic,
}


class CanaryTraining(Training):
    """A run of the engine with canaries among its rows, watched by an attacker.

    Parameters
    ----------
    config, module, loss, probe, random
        As of :class:`~.engine.Training`.
    code : CanaryCode
    n_canaries : int
    public : numpy.random.Generator
        Says which weight is whose.

    Raises
    ------
    ValueError
        If there are more canaries than weights.

    Notes
    -----
    **Guarantees.** ``scores()`` is computed from the noisy sums, and from what the records that are
    no canaries add, which noisy sums and their own sampling settle. Neither coins nor the sampling
    of canaries enter.
    """

    def __init__(
        self,
        config: TrainingConfig,
        module: nn.Module,
        loss: nn.Module,
        *rest: Any,
        code: CanaryCode,
        n_canaries: int,
        public: np.random.Generator,
    ) -> None:
        super().__init__(config, module, loss, *rest)
        n_weights = len(self._grad)
        if n_canaries > n_weights:
            raise ValueError(
                f"n_canaries={n_canaries} is more than the {n_weights} weights of the network, of "
                "which each canary takes one. Pass fewer, or make the network larger."
            )
        weights = torch.from_numpy(public.permutation(n_weights)[:n_canaries]).to(self.device)
        self._canaries = self._clipped.gradients = CanaryGradients(
            self._clipped.gradients, code, self._grad, weights, _LENGTH * config.max_grad_norm
        )
        self.scores = CanaryScores(config, n_canaries)

    def run(
        self,
        X: Tensor | MappedRows,
        y: Tensor,
        peers: Peers | None = None,
        verbose: int = 0,
    ) -> nn.Module:
        """Train, and look at every noisy sum."""
        return super().run(X, y, _Watching(self._canaries, self.scores), verbose)


class _Watching(Alone):
    def __init__(self, canaries: CanaryGradients, scores: CanaryScores) -> None:
        self._canaries = canaries
        self._scores = scores

    def release(
        self, mechanism: Mechanism, total: NDArray[np.float64], random: SecureRandom
    ) -> NDArray[np.float64]:
        noisy = super().release(mechanism, total, random)
        clean, weights = self._canaries.clean.cpu().numpy(), self._canaries.weights.cpu().numpy()
        self._scores.add(_less(noisy[weights].astype(float), clean))
        self._canaries.clean.zero_()
        return noisy


def _less(noisy: Float64Array, clean: Float64Array) -> Float64Array:
    """Return noisy sums less what records contributed, whatever both were multiplied by.

    **Edge cases.** An engine that scales sums before it adds noise is to be caught by what canaries
    show then, not hidden by what records do.
    """
    length = float(clean @ clean)
    return noisy - clean * (float(noisy @ clean) / length) if length > 0 else noisy
