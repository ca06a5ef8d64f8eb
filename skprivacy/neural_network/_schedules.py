"""Learning rates that change with the step, never with the data."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["SCHEDULES", "constant"]


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
