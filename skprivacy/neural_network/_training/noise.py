"""Kinds of training noise: the sampler, the mechanism and the event of each.

"gaussian", "exact" and "logistic" are DP-SGD on Poisson samples. "banded" and "tree" are DP-FTRL:
banded matrix factorisation (Denisov et al. 2022) and tree aggregation (Kairouz et al. 2021).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ...accounting import (
    BandedFactorization,
    Event,
    GaussianEvent,
    LogisticEvent,
    MatrixFactorization,
    PoissonSampled,
    Repeated,
    TreeAggregation,
    square_root_band,
)
from ...accounting.matrix import running_sum_error, step_deviation
from ...mechanisms import (
    FloatGaussian,
    FloatLogistic,
    MatrixGaussian,
    Mechanism,
    PoissonSampler,
    RoundedGaussian,
    SecureRandom,
)

if TYPE_CHECKING:
    from .config import TrainingConfig

__all__ = ["NOISE", "Noise", "Sampler", "SequentialBatches"]


class Sampler(Protocol):
    """Draws the indices, among ``n`` records, of the next step's batch."""

    def draw(self, n: int, random: SecureRandom) -> NDArray[np.int64]: ...


class Noise(ABC):
    """A kind of noise, as a function of noise multiplier z, clipping norm and run.

    ``sums`` is the precision in which clipped gradients are added up.
    """

    streams = False
    sums = "float32"

    def assumptions(self, run: TrainingConfig) -> tuple[str, ...]:
        """Return the assumptions of a run's guarantee."""
        return ()

    @property
    @abstractmethod
    def arithmetic(self) -> str:
        """Arithmetic of the mechanism."""

    @abstractmethod
    def event(self, z: float, run: TrainingConfig) -> Event:
        """Return the accounting event of a run."""

    @abstractmethod
    def mechanism(self, z: float, norm: float, run: TrainingConfig) -> Mechanism:
        """Return the mechanism that adds the noise of every step."""

    @abstractmethod
    def sampler(self, run: TrainingConfig) -> Sampler:
        """Return the sampler of the steps' batches."""

    @abstractmethod
    def spread(self, run: TrainingConfig) -> float:
        """Return the standard deviation of one step's noise in units of z times the norm."""

    def spread_in_sums(self, run: TrainingConfig) -> float:
        """Return the spread of independent noise with equal mean variance in running sums."""
        return self.spread(run)


@dataclass(frozen=True)
class _Sampled(Noise):
    """Independent noise on Poisson samples."""

    one_step: Callable[[float], Event]
    adds: type[FloatGaussian] | type[FloatLogistic] | type[RoundedGaussian]
    std: float

    @property
    def arithmetic(self) -> str:
        return self.adds.arithmetic

    def event(self, z: float, run: TrainingConfig) -> Event:
        # Abadi et al. 2016, Algorithm 1: T steps, each on a sample with rate L / N
        return Repeated(PoissonSampled(run.sampling_rate, self.one_step(z)), run.n_steps)

    def mechanism(self, z: float, norm: float, run: TrainingConfig) -> Mechanism:
        return self.adds(z, norm)

    def sampler(self, run: TrainingConfig) -> PoissonSampler:
        return PoissonSampler(run.sampling_rate)

    def spread(self, run: TrainingConfig) -> float:
        return self.std


class _Exact(_Sampled):
    """Gaussian noise on a grid, added to a sum whose rounding errors the clipping allows for.

    Under zero-out, a record without contribution keeps its row of the batch. All others are then
    computed as before, because the order of additions depends on shapes only. With one record less,
    or a group with other rows, this need not hold.
    """

    sums = "float64"

    def assumptions(self, run: TrainingConfig) -> tuple[str, ...]:
        if run.relation == "zero_out" and run.per_group is None:
            return ()
        return ("a record's gradient is the same, to the last bit, in a batch without another one",)


class _Streaming(Noise):
    """Correlated noise (DP-FTRL) on batches in the order of the records."""

    streams = True
    arithmetic = MatrixGaussian.arithmetic

    def assumptions(self, run: TrainingConfig) -> tuple[str, ...]:
        return (
            "which batch a record is in, and when, depends on nobody's data: "
            "the order of the records is public or arbitrary",
        )

    @abstractmethod
    def event(self, z: float, run: TrainingConfig) -> MatrixFactorization: ...

    def mechanism(self, z: float, norm: float, run: TrainingConfig) -> Mechanism:
        return MatrixGaussian(self.event(z, run), norm) if z else FloatGaussian(0.0, norm)

    def sampler(self, run: TrainingConfig) -> SequentialBatches:
        return SequentialBatches(run.batch_size, run.steps_per_epoch)


class _Banded(_Streaming):
    def event(self, z: float, run: TrainingConfig) -> MatrixFactorization:
        band = square_root_band(run.steps_per_epoch, run.epochs)
        return BandedFactorization(z, run.steps_per_epoch, run.epochs, band)

    def spread(self, run: TrainingConfig) -> float:
        band = square_root_band(run.steps_per_epoch, run.epochs)
        return step_deviation(np.asarray(band), run.n_steps)

    def spread_in_sums(self, run: TrainingConfig) -> float:
        band = square_root_band(run.steps_per_epoch, run.epochs)
        return running_sum_error(np.asarray(band), run.n_steps) / _independent_error(run)


class _Tree(_Streaming):
    def event(self, z: float, run: TrainingConfig) -> MatrixFactorization:
        return TreeAggregation(z, run.steps_per_epoch, run.epochs)

    def spread(self, run: TrainingConfig) -> float:
        # A step adds the noise of a new node and, on average, removes the noise of one older node.
        return math.sqrt(2.0)

    def spread_in_sums(self, run: TrainingConfig) -> float:
        # Kairouz et al. 2021: a prefix sum adds one tree node per binary digit of the step
        steps = np.arange(1, run.n_steps + 1)
        digits = sum(steps >> level & 1 for level in range(run.n_steps.bit_length()))
        return math.sqrt(float(np.mean(digits))) / _independent_error(run)


def _independent_error(run: TrainingConfig) -> float:
    """Return the root mean variance of running sums of independent noise of variance 1."""
    return math.sqrt((run.n_steps + 1) / 2)


NOISE: dict[str, Noise] = {
    "gaussian": _Sampled(GaussianEvent, FloatGaussian, 1.0),
    "exact": _Exact(GaussianEvent, RoundedGaussian, 1.0),
    "logistic": _Sampled(
        lambda s: LogisticEvent(s, norm=2), FloatLogistic, math.pi / math.sqrt(3.0)
    ),
    "banded": _Banded(),
    "tree": _Tree(),
}


class SequentialBatches:
    """Sampler of consecutive batches in the order of the records, cyclically."""

    def __init__(self, batch_size: int, steps_per_epoch: int) -> None:
        self.batch_size = batch_size
        self.steps_per_epoch = steps_per_epoch
        self._step = 0

    def draw(self, n: int, random: SecureRandom) -> NDArray[np.int64]:
        """Return the indices, out of 0 to ``n - 1``, of the next batch."""
        start = self._step % self.steps_per_epoch * self.batch_size
        self._step += 1
        return np.arange(start, min(start + self.batch_size, n))
