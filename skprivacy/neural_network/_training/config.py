"""What a training run will do, fixed by public facts before the data is looked at."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ...accounting import Event, NonPrivate
from .noise import NOISE

__all__ = ["SCHEDULES", "Plan", "constant"]


@dataclass(frozen=True)
class Plan:
    """Sampling rate, number of steps and divisor of a run, and the relation they hold in."""

    sampling_rate: float
    steps_per_epoch: int
    epochs: int
    divisor: float
    relation: str
    noise: str = "gaussian"

    @classmethod
    def of(
        cls,
        n: int,
        n_records: int | None,
        batch_size: int | str,
        epochs: int,
        delta: float | None,
        noise: str = "gaussian",
    ) -> Plan:
        """Plan for ``n`` records, of which ``n_records`` is the public figure if there is one."""
        streams = NOISE[noise].streams
        if streams and n_records is not None:
            raise ValueError(
                f"n_records={n_records!r} hides the number of records, but noise={noise!r} takes "
                "them in their order, and one more would move the others to other batches. Leave "
                "n_records=None, or use noise='gaussian'."
            )
        public_n = n if n_records is None else int(n_records)
        if delta is not None and delta >= 1.0 / public_n:
            raise ValueError(
                f"delta={delta!r} must be below 1 / number of records = {1 / public_n:.3g}: "
                "otherwise publishing a record outright would count as private. A usual choice is "
                f"{10.0 ** math.floor(math.log10(0.1 / public_n)):.0e}."
            )
        expected = max(1, public_n // 4) if batch_size == "auto" else int(batch_size)
        expected = min(expected, public_n)
        return cls(
            sampling_rate=expected / public_n,
            steps_per_epoch=-(-public_n // expected) if streams else round(public_n / expected),
            epochs=int(epochs),
            divisor=float(expected),
            relation="zero_out" if n_records is None else "add_remove",
            noise=noise,
        )

    @property
    def n_steps(self) -> int:
        return self.steps_per_epoch * self.epochs

    def event(self, noise_multiplier: float) -> Event:
        """Return the event of the whole run."""
        if noise_multiplier == 0:
            return NonPrivate()
        return NOISE[self.noise].event(noise_multiplier, self)


def constant(done: float) -> float:
    """Keep the learning rate."""
    return 1.0


def _linear(done: float) -> float:
    return 1.0 - done


def _cosine(done: float) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * done))


# The factor of the learning rate, by the share of steps that are done.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": constant,
    "linear": _linear,
    "cosine": _cosine,
}
