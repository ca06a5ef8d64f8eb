"""The best of a random number of private trials."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .events import Event, _check_event
from .rdp import DEFAULT_ORDERS, _rdp, rdp

__all__ = ["PrivateSelection"]


@dataclass(frozen=True)
class PrivateSelection(Event):
    """The best of K runs, K drawn from a truncated negative binomial distribution.

    Parameters
    ----------
    event : Event
        One run, with the score by which it is judged. All runs must have the same event.
    eta : float, default=1.0
        Shape, above -1: 1 is geometric, 0 logarithmic.
    gamma : float
        Rate, in (0, 1): a smaller one means more runs.

    Notes
    -----
    Only a *random* number of trials earns this bound. A fixed grid composes.

    References
    ----------
    Papernot, Steinke (2022), "Hyperparameter tuning with Renyi differential privacy",
    arXiv:2110.03620, Theorem 2.
    """

    event: Event
    eta: float = 1.0
    gamma: float = 0.1

    def __post_init__(self) -> None:
        _check_event("event", self.event)
        if not (math.isfinite(self.eta) and self.eta > -1):
            raise ValueError(f"eta={self.eta!r} must be a finite number > -1.")
        if not 0 < self.gamma < 1:
            raise ValueError(f"gamma={self.gamma!r} must be in (0, 1).")

    @property
    def expected_trials(self) -> float:
        """The mean number of runs."""
        if self.eta == 0:
            return (1 / self.gamma - 1) / -math.log(self.gamma)
        fall = -math.expm1(self.eta * math.log(self.gamma))
        return self.eta * (1 - self.gamma) / (self.gamma * fall)


@_rdp.register
def _(event: PrivateSelection, orders, relation):
    own, every = DEFAULT_ORDERS, rdp(event.event, DEFAULT_ORDERS, relation)
    choice = ((1 - 1 / own) * every - math.log(event.gamma) / own).min()
    return (
        rdp(event.event, orders, relation)
        + (1 + event.eta) * choice
        + np.log(event.expected_trials) / (orders - 1)
    )
