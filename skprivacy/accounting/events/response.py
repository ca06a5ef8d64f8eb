"""Randomised response (Warner 1965)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .._checks import positive, whole
from .._event import Event, Orders, Pairs
from .._work import closed_form_work
from ..pld.pairs import AtomPair, pure_pair, symmetric_pairs
from .composition import Repeated

__all__ = ["RandomizedResponseEvent"]


@dataclass(frozen=True)
class RandomizedResponseEvent(
    Event, tag="RandomizedResponse", stored=("epsilon", "n_categories"), knows_label=True
):
    """Randomised response: one category, reported with noise.

    The true category is reported with probability e^epsilon / (e^epsilon + n_categories - 1), every
    other category with equal probability.

    Parameters
    ----------
    epsilon : float
        Pure epsilon, above 0.
    n_categories : int, default=2
        Number of categories, at least 2.
    """

    epsilon: float
    n_categories: int = 2

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        whole("n_categories", self.n_categories, 2)

    work = closed_form_work

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # Mironov 2017, randomised response, with further categories that are equally likely
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
            return symmetric_pairs(pure_pair(self.epsilon))
        high, low, rest = self._probabilities()
        losses = (-self.epsilon, 0.0, self.epsilon)
        return symmetric_pairs(
            AtomPair(losses, (low, rest, high), (high, rest, low), gap=self.epsilon)
        )

    def grouped(self, size: int) -> Event:
        # Each unit of the group gives one response.
        return Repeated(self, size)

    def _probabilities(self) -> tuple[float, float, float]:
        """Return the probabilities of the true category, one other category, and the rest."""
        low = 1 / (math.exp(self.epsilon) + self.n_categories - 1)
        return math.exp(self.epsilon) * low, low, (self.n_categories - 2) * low
