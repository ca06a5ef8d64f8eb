"""TrainingConfig: one frozen plan of sampling, clipping, noise and updates of a private run.

Each kind of noise gives the sampler, the mechanism and the event. "gaussian", "exact" and
"logistic" are DP-SGD on Poisson samples. "banded" and "tree" are DP-FTRL: banded matrix
factorisation (Denisov et al. 2022) and tree aggregation (Kairouz et al. 2021).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...accounting import (
    ComposedEvent,
    Event,
    GaussianEvent,
    PoissonSampledEvent,
    RepeatedEvent,
    calibrate_noise_multiplier,
)
from ...accounting.events import (
    BandedFactorizationEvent,
    LogisticEvent,
    MatrixFactorizationEvent,
    NonPrivateEvent,
    TreeAggregationEvent,
)
from ...accounting.events.matrix_factorization import (
    running_sum_error,
    square_root_band,
    step_deviation,
)
from ...mechanisms import FloatGaussian, Mechanism, PoissonSampler, SecureRandom
from ...mechanisms.float_noise import FloatLogistic
from ...mechanisms.matrix_gaussian import MatrixGaussian
from ...mechanisms.rounded_gaussian import RoundedGaussian
from .._gradients.clipped_sum import CLIPPING, AdaptiveClipping, Clip
from .._gradients.group_batches import PerGroup

if TYPE_CHECKING:
    from ..augmentation import Views


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Plan of a private run, without its module, its loss and its records.

    The public estimators document the fields. With ``per_group``, records stands for groups.

    **Guarantees.** The plan is frozen, and depends only on public facts and parameters.
    :attr:`event` is the cost of the run that :class:`~.engine.Training` makes of it: both read
    steps, sampling and noise from the same fields.
    """

    n_records: int
    batch_size: int
    epochs: int
    relation: str
    noise: str = "gaussian"
    noise_multiplier: float = 0.0
    max_grad_norm: float = 1.0
    clipping: str = "flat"
    target_quantile: float = 0.5
    optimizer: Any = "sgd"
    optimizer_params: Mapping[str, Any] = field(default_factory=dict)
    learning_rate: float | str = "auto"
    schedule: str = "constant"
    averaging: float | str = 0.5
    averaging_decay: float = 0.95
    views: Views | None = None
    device: str = "cpu"
    per_group: PerGroup | None = None
    target_noise: float | None = None  # multiplier of each of a regressor's ``target_releases``
    held_out_share: float = 0.0  # of the records, which end a run without privacy

    @classmethod
    def planned(
        cls,
        n: int,
        *,
        n_records: int | None = None,
        batch_size: int | str = "auto",
        noise: str = "gaussian",
        **settings: Any,
    ) -> TrainingConfig:
        """Return the plan for ``n`` records, or the public ``n_records``, without noise."""
        streams = NOISE[noise].streams
        if streams and n_records is not None:
            raise ValueError(
                f"n_records={n_records!r} hides the number of records, but with noise={noise!r} "
                "one more record would move the others to other batches. Leave n_records=None, or "
                "use noise='gaussian'."
            )
        public_n = n if n_records is None else int(n_records)
        expected = max(1, public_n // 4) if batch_size == "auto" else int(batch_size)
        return cls(
            n_records=public_n,
            batch_size=min(expected, public_n),
            relation="zero_out" if n_records is None else "add_remove",
            noise=noise,
            **settings,
        )

    def with_noise_for(
        self, epsilon: float | None, delta: float, noise_multiplier: float | None = None
    ) -> TrainingConfig:
        """Return the plan with noise calibrated to ``epsilon``, or with the given noise."""
        if (epsilon is None) == (noise_multiplier is None):
            raise ValueError(
                f"epsilon={epsilon!r} and noise_multiplier={noise_multiplier!r}: give exactly one, "
                "as both determine the noise. To set the noise itself, pass epsilon=None; epsilon_ "
                "then reports its cost."
            )
        if epsilon is not None and math.isinf(epsilon):
            return replace(self, noise_multiplier=0.0)
        if delta >= 1.0 / self.n_records:
            one = "record" if self.per_group is None else "group"
            raise ValueError(
                f"delta={delta!r} must be below 1 / number of {one}s = {1 / self.n_records:.3g}: "
                f"otherwise publishing a {one} outright would count as private. A usual choice is "
                f"{10.0 ** math.floor(math.log10(0.1 / self.n_records)):.0e}."
            )
        if epsilon is not None:
            noise_multiplier = calibrate_noise_multiplier(
                self.event_at, epsilon=epsilon, delta=delta, relation=self.relation
            )
        assert noise_multiplier is not None
        return replace(self, noise_multiplier=float(noise_multiplier))

    @property
    def unit(self) -> str:
        """Unit that the guarantee protects."""
        return "record" if self.per_group is None else self.per_group.unit

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions of the guarantee that follow from the kind of noise."""
        stated = self.noise_kind.assumptions(self)
        if self.per_group is None:
            return stated
        return tuple(words.replace("record", "group") for words in stated)

    @property
    def noise_kind(self) -> Noise:
        """The kind of noise."""
        return NOISE[self.noise]

    @property
    def sampling_rate(self) -> float:
        """Probability that a record takes part in a step, under Poisson sampling."""
        return self.batch_size / self.n_records  # Abadi et al. 2016, Algorithm 1: L / N

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps in which each record is expected once."""
        if self.noise_kind.streams:
            return -(-self.n_records // self.batch_size)
        return round(self.n_records / self.batch_size)

    @property
    def n_steps(self) -> int:
        """Number of steps of the whole run."""
        return self.steps_per_epoch * self.epochs

    @property
    def event(self) -> Event:
        """Accounting event of the whole run."""
        return self.event_at(self.noise_multiplier)

    def event_at(self, noise_multiplier: float) -> Event:
        """Return the event of the whole run at another noise multiplier."""
        if noise_multiplier == 0:
            return NonPrivateEvent()
        steps = self.noise_kind.event(noise_multiplier, self)
        if self.target_noise is None:
            return steps
        mean = slope = error = GaussianEvent(self.target_noise)
        return ComposedEvent((mean, steps, slope, error))

    def clip(self) -> Clip:
        """Return the clipping function; an adaptive one starts anew."""
        return self._adaptive() if self.clipping == "adaptive" else CLIPPING[self.clipping]

    def _adaptive(self) -> AdaptiveClipping:
        norm = self.max_grad_norm
        noise = self.noise_multiplier * self.noise_kind.spread(self)
        return AdaptiveClipping(norm, norm, noise, self.target_quantile, float(self.batch_size))

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on the sum of a step, in units of ``max_grad_norm``."""
        if self.clipping == "adaptive":
            return self._adaptive().noise_on_sum
        return self.noise_multiplier * self.noise_kind.spread(self)

    def step_size(self, n_weights: int) -> float:
        """Return the step size before the schedule, for ``n_weights`` trained weights."""
        if self.learning_rate != "auto":
            return float(self.learning_rate)
        return self.step_size_for_noise(n_weights) if self.optimizer == "sgd" else 0.01

    def step_size_for_noise(self, n_weights: int) -> float:
        """Return the step size of gradient descent that the noise allows."""
        noise = self.noise_std * self.noise_kind.spread_in_sums(self) / self.noise_kind.spread(self)
        # Norm of a step's noise, over the norm that a mean gradient can have at most.
        ratio = noise * math.sqrt(n_weights) / self.batch_size
        return min(1.0, 0.35 / math.sqrt(max(ratio, 1e-12))) / self.max_grad_norm

    def share_of_step_size(self, step: int) -> float:
        """Return the factor of the step size in a step, counted from 0."""
        return SCHEDULES[self.schedule](step / self.n_steps)

    @property
    def first_averaged(self) -> int:
        """First step, counted from 0, whose weights are averaged."""
        if self.averaging == "ema":
            return 0
        return int(self.n_steps * (1.0 - float(self.averaging)))


class Sampler(Protocol):
    """Draws the indices, among ``n`` records, of the next step's batch."""

    def draw(self, n: int, random: SecureRandom) -> NDArray[np.int64]: ...


class Noise(ABC):
    """A kind of noise, as a function of noise multiplier z, clipping norm and run."""

    streams = False
    sums = "float32"  # precision in which clipped gradients are added up

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


class SequentialBatches:
    """Sampler of consecutive batches in the order of the records, cyclically."""

    def __init__(self, batch_size: int, steps_per_epoch: int) -> None:
        self.batch_size = batch_size
        self.steps_per_epoch = steps_per_epoch
        self._step = 0

    def draw(self, n: int, random: SecureRandom) -> NDArray[np.int64]:
        """Return the indices of the next batch, from 0 to ``n - 1``."""
        start = self._step % self.steps_per_epoch * self.batch_size
        self._step += 1
        return np.arange(start, min(start + self.batch_size, n))


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
        return RepeatedEvent(PoissonSampledEvent(run.sampling_rate, self.one_step(z)), run.n_steps)

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
        return (
            "a record's gradient and output are the same, to the last bit, without another one",
        )


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
    def event(self, z: float, run: TrainingConfig) -> MatrixFactorizationEvent: ...

    def mechanism(self, z: float, norm: float, run: TrainingConfig) -> Mechanism:
        return MatrixGaussian(self.event(z, run), norm) if z else FloatGaussian(0.0, norm)

    def sampler(self, run: TrainingConfig) -> SequentialBatches:
        return SequentialBatches(run.batch_size, run.steps_per_epoch)


class _Banded(_Streaming):
    def event(self, z: float, run: TrainingConfig) -> MatrixFactorizationEvent:
        band = square_root_band(run.steps_per_epoch, run.epochs)
        return BandedFactorizationEvent(z, run.steps_per_epoch, run.epochs, band)

    def spread(self, run: TrainingConfig) -> float:
        band = square_root_band(run.steps_per_epoch, run.epochs)
        return step_deviation(np.asarray(band), run.n_steps)

    def spread_in_sums(self, run: TrainingConfig) -> float:
        band = square_root_band(run.steps_per_epoch, run.epochs)
        return running_sum_error(np.asarray(band), run.n_steps) / _independent_error(run)


class _Tree(_Streaming):
    def event(self, z: float, run: TrainingConfig) -> MatrixFactorizationEvent:
        return TreeAggregationEvent(z, run.steps_per_epoch, run.epochs)

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


# Factor of the step size as a function of the share of steps done; it never depends on the data.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}
NOISE: dict[str, Noise] = {
    "gaussian": _Sampled(GaussianEvent, FloatGaussian, 1.0),
    "exact": _Exact(GaussianEvent, RoundedGaussian, 1.0),
    "logistic": _Sampled(
        lambda s: LogisticEvent(s, norm=2), FloatLogistic, math.pi / math.sqrt(3.0)
    ),
    "banded": _Banded(),
    "tree": _Tree(),
}
