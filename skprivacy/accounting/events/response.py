"""Randomised response."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .._checks import positive, whole
from .._event import Event, Orders, Pairs
from .._work import closed_form_work
from ..pld.pairs import AtomPair, both, pure_pair
from .composition import Repeated

__all__ = ["RandomizedResponseEvent"]


@dataclass(frozen=True)
class RandomizedResponseEvent(
    Event, tag="RandomizedResponse", stored=("epsilon", "n_categories"), knows_label=True
):
    """One category, reported with randomised response.

    The true category is reported with probability e^epsilon / (e^epsilon + n_categories - 1).

    Parameters
    ----------
    epsilon : float
        Above 0.
    n_categories : int, default=2
        At least 2.
    """

    epsilon: float
    n_categories: int = 2

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        whole("n_categories", self.n_categories, 2)

    work = closed_form_work

    def renyi(self, orders: Orders, relation: str) -> Orders:
        high, low, rest = self._probabilities()
        a = orders
        moment = np.logaddexp(
            a * math.log(high) + (1 - a) * math.log(low),
            a * math.log(low) + (1 - a) * math.log(high),
        )
        return (np.logaddexp(moment, math.log(rest)) if rest else moment) / (a - 1)

    has_bounded_loss = True

    def dominating_pairs(self, relation: str) -> Pairs:
        if self.n_categories == 2:
            return both(pure_pair(self.epsilon))
        high, low, rest = self._probabilities()
        losses = (-self.epsilon, 0.0, self.epsilon)
        return both(AtomPair(losses, (low, rest, high), (high, rest, low), gap=self.epsilon))

    def grouped(self, size: int) -> Event:
        # each unit of the group gives a response of its own
        return Repeated(self, size)

    def _probabilities(self) -> tuple[float, float, float]:
        """Return those of the true category, one other category, and the remaining ones."""
        low = 1 / (math.exp(self.epsilon) + self.n_categories - 1)
        return math.exp(self.epsilon) * low, low, (self.n_categories - 2) * low
