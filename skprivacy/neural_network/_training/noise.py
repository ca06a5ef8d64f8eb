"""The kinds of noise: who takes part in a step, what is added, and what the whole run costs."""

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
from ...accounting.matrix import running_sum_error, step_spread
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

__all__ = ["NOISE", "Noise", "Sampler", "TakingTurns"]


class Sampler(Protocol):
    """Who of ``n`` records takes part in the next step."""

    def draw(self, n: int, random: SecureRandom) -> NDArray[np.int64]: ...


class Noise(ABC):
    """One kind of noise, for any noise multiplier z, clipping norm and run.

    ``sums`` is the precision in which the clipped gradients of records are added up.
    """

    streams = False
    sums = "float32"

    def assumptions(self, run: TrainingConfig) -> tuple[str, ...]:
        """Return what must be true for the guarantee of a run to hold."""
        return ()

    @property
    @abstractmethod
    def arithmetic(self) -> str:
        """That of the mechanism."""

    @abstractmethod
    def event(self, z: float, run: TrainingConfig) -> Event:
        """Return what a run is accounted as."""

    @abstractmethod
    def mechanism(self, z: float, norm: float, run: TrainingConfig) -> Mechanism:
        """Return what adds the noise of every step."""

    @abstractmethod
    def sampler(self, run: TrainingConfig) -> Sampler:
        """Return what says who takes part in a step."""

    @abstractmethod
    def spread(self, run: TrainingConfig) -> float:
        """Return the standard deviation of one step's noise in units of z times the norm."""

    def spread_in_sums(self, run: TrainingConfig) -> float:
        """Return the same of independent noise that running sums would have as much noise of."""
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
        return Repeated(PoissonSampled(run.sampling_rate, self.one_step(z)), run.n_steps)

    def mechanism(self, z: float, norm: float, run: TrainingConfig) -> Mechanism:
        return self.adds(z, norm)

    def sampler(self, run: TrainingConfig) -> PoissonSampler:
        return PoissonSampler(run.sampling_rate)

    def spread(self, run: TrainingConfig) -> float:
        return self.std


class _Exact(_Sampled):
    """The same on a grid, added to a sum whose rounding errors the clipping allows for.

    Under zero-out, a record that contributes nothing keeps its row of the batch, so that all others
    are computed as they were: the order in which numbers are added up goes by shapes. With a record
    less, or a group with other rows, it need not.
    """

    sums = "float64"

    def assumptions(self, run: TrainingConfig) -> tuple[str, ...]:
        if run.relation == "zero_out" and run.per_group is None:
            return ()
        return ("a record's gradient is the same, to the last bit, in a batch without another one",)


class _Streaming(Noise):
    """Correlated noise on batches in the order in which the records come."""

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

    def sampler(self, run: TrainingConfig) -> TakingTurns:
        return TakingTurns(run.batch_size, run.steps_per_epoch)


class _Banded(_Streaming):
    def event(self, z: float, run: TrainingConfig) -> MatrixFactorization:
        band = square_root_band(run.steps_per_epoch, run.epochs)
        return BandedFactorization(z, run.steps_per_epoch, run.epochs, band)

    def spread(self, run: TrainingConfig) -> float:
        band = square_root_band(run.steps_per_epoch, run.epochs)
        return step_spread(np.asarray(band), run.n_steps)

    def spread_in_sums(self, run: TrainingConfig) -> float:
        band = square_root_band(run.steps_per_epoch, run.epochs)
        return running_sum_error(np.asarray(band), run.n_steps) / _independent_error(run)


class _Tree(_Streaming):
    def event(self, z: float, run: TrainingConfig) -> MatrixFactorization:
        return TreeAggregation(z, run.steps_per_epoch, run.epochs)

    def spread(self, run: TrainingConfig) -> float:
        return math.sqrt(2.0)  # on average: a new sum comes, and those that it contains go

    def spread_in_sums(self, run: TrainingConfig) -> float:
        steps = np.arange(1, run.n_steps + 1)
        digits = sum(steps >> level & 1 for level in range(run.n_steps.bit_length()))
        return math.sqrt(float(np.mean(digits))) / _independent_error(run)


def _independent_error(run: TrainingConfig) -> float:
    """Return the root of the mean variance of running sums of independent noise, variance 1."""
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


class TakingTurns:
    """Batches of records in their order, over and over again; nothing is drawn.

    Parameters
    ----------
    batch_size : int
    steps_per_epoch : int
    """

    def __init__(self, batch_size: int, steps_per_epoch: int) -> None:
        self.batch_size = batch_size
        self.steps_per_epoch = steps_per_epoch
        self._step = 0

    def draw(self, n: int, random: SecureRandom) -> NDArray[np.int64]:
        """Return the indices, out of 0 to ``n - 1``, of the records whose turn it is."""
        start = self._step % self.steps_per_epoch * self.batch_size
        self._step += 1
        return np.arange(start, min(start + self.batch_size, n))
