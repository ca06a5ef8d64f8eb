"""What a private training run does, fixed by public facts before the data is looked at."""

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


# The factor of the step size, by the share of steps that are done: never by the data.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
}


@dataclass(frozen=True)
class PerGroup:
    """That a run protects groups, and what a group contributes to a step.

    Parameters
    ----------
    unit : str
        What a group is called.
    most : int or None
        How many records of a group are used at most.
    contribution : {"mean", "sum"}
        Of their gradients, before it is clipped.
    """

    unit: str
    most: int | None
    contribution: str


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """All that decides about a run, but for its module, its loss and its records.

    Parameters
    ----------
    n_records : int
        How many records there are, publicly.
    batch_size : int
        Expected number of records in a step, at most ``n_records``.
    epochs : int
        Expected number of times that each record takes part.
    relation : {"zero_out", "add_remove"}
        In which the guarantee holds.
    noise : str, default="gaussian"
        A key of ``NOISE``.
    noise_multiplier : float, default=0.0
        Size of the noise in units of ``max_grad_norm``.
    max_grad_norm : float, default=1.0
        Norm to which the gradient of each record is clipped.
    clipping : str, default="flat"
        A key of ``CLIPPING``, or "adaptive".
    target_quantile : float, default=0.5
        Of adaptive clipping.
    optimizer : str or type, default="sgd"
        A key of ``OPTIMIZERS``, or a class of ``torch.optim``.
    optimizer_params : dict, default={}
        Arguments of the optimizer, but for its step size.
    learning_rate : float or "auto", default="auto"
        Step size; "auto" as :class:`~skprivacy.neural_network.DPSGDClassifier` says.
    schedule : str, default="constant"
        A key of ``SCHEDULES``.
    averaging : float or "ema", default=0.5
        Share of the last steps over which the weights are averaged, or an exponential average.
    averaging_decay : float, default=0.95
        How much a step counts in the exponential average beside the step after it.
    views : Views, default=None
        What each record is shown as; ``None`` for itself.
    device : str, default="cpu"
        Where to train: a device of torch, or "auto".
    per_group : PerGroup, default=None
        That groups are protected: what is said of records above then holds of them. ``None`` for
        records.

    Notes
    -----
    **Guarantees.** Frozen, and made of public facts and parameters alone. :attr:`event` is what a
    run costs that :class:`~.engine.Training` makes of it: the one reads the number of steps, the
    sampling and the noise from where the other does.
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
        """Plan for ``n`` records, of which ``n_records`` is the public figure if there is one."""
        streams = NOISE[noise].streams
        if streams and n_records is not None:
            raise ValueError(
                f"n_records={n_records!r} hides the number of records, but noise={noise!r} takes "
                "them in their order, and one more would move the others to other batches. Leave "
                "n_records=None, or use noise='gaussian'."
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
        """Return the same with as much noise as ``epsilon`` takes, or with the noise given.

        Exactly one of the two is given. An infinite ``epsilon`` takes no noise.
        """
        if (epsilon is None) == (noise_multiplier is None):
            raise ValueError(
                f"epsilon={epsilon!r} and noise_multiplier={noise_multiplier!r}: give exactly one, "
                "as both determine the noise. To set the noise itself, pass epsilon=None; epsilon_ "
                "then reports what it costs."
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
        """What the guarantee protects."""
        return "record" if self.per_group is None else self.per_group.unit

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must be true for the guarantee to hold, because of the noise."""
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
        """Probability with which a record takes part in a step, if that is left to chance."""
        return self.batch_size / self.n_records

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps in which each record is expected to take part once."""
        if self.noise_kind.streams:
            return -(-self.n_records // self.batch_size)
        return round(self.n_records / self.batch_size)

    @property
    def n_steps(self) -> int:
        """Number of steps of the whole run."""
        return self.steps_per_epoch * self.epochs

    @property
    def event(self) -> Event:
        """What the whole run releases."""
        return self.event_at(self.noise_multiplier)

    def event_at(self, noise_multiplier: float) -> Event:
        """Return what the whole run would release at another noise."""
        if noise_multiplier == 0:
            return NonPrivate()
        return self.noise_kind.event(noise_multiplier, self)

    def clip(self) -> Clip:
        """Return the function that says how gradients are scaled; an adaptive one begins anew."""
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
        """Return the step size of a module with so many trained weights, before the schedule."""
        if self.learning_rate != "auto":
            return float(self.learning_rate)
        return self.step_size_for_noise(n_weights) if self.optimizer == "sgd" else 0.01

    def step_size_for_noise(self, n_weights: int) -> float:
        """Return the step size of gradient descent that the noise allows."""
        noise = self.noise_std * self.noise_kind.spread_in_sums(self) / self.noise_kind.spread(self)
        ratio = noise * math.sqrt(n_weights) / self.batch_size
        return min(1.0, 0.35 / math.sqrt(max(ratio, 1e-12))) / self.max_grad_norm

    def share_of_step_size(self, step: int) -> float:
        """Return the factor of the step size in a step, counted from 0."""
        return SCHEDULES[self.schedule](step / self.n_steps)

    @property
    def first_averaged(self) -> int:
        """The step, counted from 0, from which on the weights are averaged."""
        if self.averaging == "ema":
            return 0
        return int(self.n_steps * (1.0 - float(self.averaging)))
