"""Laplace mechanism, with continuous or discrete (geometric) noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .._checks import positive, whole
from .._event import Event, NoLossDistributionError, Orders, Pairs
from .._work import CLOSED_FORM_WORK, closed_form_work
from ..pld.pairs import MOST_ATOMS, WORK_PER_ATOM, AtomPair, SlopePair, symmetric_pairs
from .generic import ApproxDP

__all__ = ["DiscreteLaplaceEvent", "LaplaceEvent"]


@dataclass(frozen=True)
class LaplaceEvent(Event, tag="Laplace", stored=("noise_multiplier",), knows_label=True):
    """Laplace mechanism: a scalar or vector of bounded L1 sensitivity plus Laplace noise.

    Parameters
    ----------
    noise_multiplier : float
        Scale of the noise divided by the L1 sensitivity; its inverse is the pure epsilon.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)

    work = closed_form_work

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # Mironov 2017, Proposition 6
        t = 1 / self.noise_multiplier
        a = orders
        up = np.log(a / (2 * a - 1)) + (a - 1) * t
        down = np.log((a - 1) / (2 * a - 1)) - a * t
        return np.maximum(np.logaddexp(up, down), 0) / (a - 1)

    has_bounded_loss = True

    def dominating_pairs(self, relation: str) -> Pairs:
        # Half of P has the largest loss: outcomes on the far side of its centre
        return symmetric_pairs(SlopePair(1 / self.noise_multiplier, atoms=True))

    def grouped(self, size: int) -> LaplaceEvent:
        return LaplaceEvent(self.noise_multiplier / size)


@dataclass(frozen=True)
class DiscreteLaplaceEvent(
    Event, tag="DiscreteLaplace", stored=("scale", "sensitivity"), knows_label=True
):
    """Geometric mechanism: integers of bounded L1 sensitivity plus discrete Laplace noise.

    Parameters
    ----------
    scale : float
        The probability of x is proportional to exp(-abs(x) / scale).
    sensitivity : int, default=1
        L1 sensitivity.
    """

    scale: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        positive("scale", self.scale)
        whole("sensitivity", self.sensitivity)

    def work(self) -> float:
        return CLOSED_FORM_WORK + WORK_PER_ATOM * min(self.sensitivity, MOST_ATOMS)

    def renyi(self, orders: Orders, relation: str) -> Orders:
        losses, p, _ = self.dominating_pairs(relation)[0].sketch()
        moments = np.logaddexp.reduce(np.outer(orders - 1, losses) + np.log(p), axis=1)
        divergence: Orders = np.maximum(moments, 0) / (orders - 1)
        return divergence

    has_bounded_loss = True

    def dominating_pairs(self, relation: str) -> Pairs:
        t, step = self.sensitivity, 1 / self.scale
        if t > MOST_ATOMS:
            raise NoLossDistributionError(
                f"{self!r} has more than {MOST_ATOMS} distinct losses. Account for it as "
                "ApproxDP(sensitivity / scale)."
            )
        # P moves the noise Q by t. Outcomes left of 0 or right of t share one loss, -t or t steps.
        ratio = math.exp(-step)
        inner = np.exp(-step * np.arange(1, t)) * (1 - ratio) / (1 + ratio)
        p = np.r_[1 / (1 + ratio), inner, ratio**t / (1 + ratio)][::-1]
        losses = step * (2 * np.arange(t + 1.0) - t)
        return symmetric_pairs(AtomPair(tuple(losses), tuple(p), tuple(p[::-1]), gap=step))

    def grouped(self, size: int) -> Event:
        distance = size * self.sensitivity
        if distance > MOST_ATOMS:
            return ApproxDP(distance / self.scale)
        return DiscreteLaplaceEvent(self.scale, distance)
