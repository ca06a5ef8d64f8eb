"""Releases known only by an (epsilon, delta) bound, and releases without protection."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._checks import number, positive, probability
from .._event import Event, Orders, Pairs
from .._renyi import pure_rdp
from .._work import closed_form_work
from ..pld.pairs import AtomPair, pure_pair, symmetric_pairs

__all__ = ["ApproxDP", "NonPrivate"]


@dataclass(frozen=True)
class NonPrivate(Event, tag="NonPrivate", knows_label=True):
    """Release without any protection."""

    work = closed_form_work

    def renyi(self, orders: Orders, relation: str) -> Orders:
        return np.full(orders.shape, np.inf)

    def dominating_pairs(self, relation: str) -> Pairs:
        return symmetric_pairs(AtomPair((0.0,), (0.0,), (1.0,), infinity=1.0))

    def grouped(self, size: int) -> NonPrivate:
        return self


@dataclass(frozen=True)
class ApproxDP(Event, tag="ApproxDP", stored=("epsilon", "delta"), knows_label=True):
    """Release of which only (epsilon, delta)-differential privacy is known.

    Parameters
    ----------
    epsilon : float
        At least 0.
    delta : float, default=0.0
        In [0, 1).
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        number("epsilon", self.epsilon, "a finite number >= 0")
        if self.epsilon != 0:
            positive("epsilon", self.epsilon)
        probability("delta", self.delta)

    work = closed_form_work

    def renyi(self, orders: Orders, relation: str) -> Orders:
        if self.delta > 0:
            return np.full(orders.shape, np.inf)
        return pure_rdp(self.epsilon, orders)

    has_bounded_loss = True

    def dominating_pairs(self, relation: str) -> Pairs:
        return symmetric_pairs(pure_pair(self.epsilon, self.delta))

    def grouped(self, size: int) -> Event:
        # Dwork and Roth 2014, group privacy: k steps are (k epsilon, delta')-DP with
        # delta' = delta (1 + e^epsilon + ... + e^((k - 1) epsilon)).
        with np.errstate(over="ignore"):
            steps = np.expm1(size * self.epsilon) / np.expm1(self.epsilon) if self.epsilon else size
        delta = self.delta * float(steps) * (1 + 1e-14)  # for rounding
        return ApproxDP(size * self.epsilon, delta) if delta < 1 else NonPrivate()
