"""TrainingConfig: one frozen plan of sampling, clipping, noise and updates of a private run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...accounting import Event, NonPrivate, calibrate_noise_multiplier
from .._gradients.clipping import CLIPPING, AdaptiveClipping, Clip
from .noise import NOISE, Noise

if TYPE_CHECKING:
    from ..augmentation import Views

__all__ = ["SCHEDULES", "PerGroup", "TrainingConfig"]


def _constant(done: float) -> float:
    return 1.0


def _linear(done: float) -> float:
    return 1.0 - done


def _cosine(done: float) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * done))


# Factor of the step size as a function of the share of steps done; it never depends on the data.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
}


@dataclass(frozen=True)
class PerGroup:
    """Terms of a run that protects groups.

    ``unit`` names a group. At most ``most`` of its records are used. ``contribution`` is "mean" or
    "sum", applied to their gradients before clipping.
    """

    unit: str
    most: int | None
    contribution: str


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Plan of a private run, without its module, its loss and its records.

    ``n_records`` is public. ``batch_size`` is expected, and at most ``n_records``. ``noise``,
    ``clipping``, ``optimizer`` and ``schedule`` are keys of ``NOISE``, ``CLIPPING`` (or
    "adaptive"), ``OPTIMIZERS`` (or a class of ``torch.optim``) and ``SCHEDULES``. With
    ``per_group``, records above means groups. Public estimators document the other fields.

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
        """Return the plan with noise calibrated to ``epsilon``, or with the given noise.

        Exactly one of the two must be given. An infinite ``epsilon`` means no noise.
        """
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
            return NonPrivate()
        return self.noise_kind.event(noise_multiplier, self)

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
