"""Choice of one of several candidates by their scores."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .._checks import positive
from .._event import Event, Orders, Pairs
from .._renyi import pure_rdp
from .._work import closed_form_work
from ..pld.pairs import SlopePair, both, pure_pair

__all__ = ["ExponentialEvent", "ReportNoisyMaxEvent"]


@dataclass(frozen=True)
class ExponentialEvent(Event, tag="Exponential", stored=("epsilon",), knows_label=True):
    """A choice with probability proportional to exp(epsilon u / (2 sensitivity of u)).

    Parameters
    ----------
    epsilon : float
        The privacy loss lies in an interval of length epsilon. If the utility is monotone in the
        data, pass half of it.

    References
    ----------
    Dong, Durfee, Rogers (2020), "Optimal differential privacy composition for exponential
    mechanisms".
    """

    epsilon: float

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)

    work = closed_form_work

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # The worst loss takes two values that differ by epsilon; their position is optimised.
        t, a = self.epsilon, orders
        k = math.exp(-t)
        share = -np.expm1(-a * t) / -math.expm1(-t)
        best = (a - 1) / a * -np.expm1(-a * t) / (k * -np.expm1((1 - a) * t))
        return np.minimum(np.log(best) + np.log(share / a) / (a - 1), a * t**2 / 8)

    has_bounded_loss = True

    def dominating_pairs(self, relation: str) -> Pairs:
        """Return the envelope of the privacy curves of all losses in an interval of length epsilon.

        Each has delta(eps') at most (1 - sqrt(k e^eps'))^2 / (1 - k), k = e^-epsilon: logistic
        noise. Each point of the envelope is attained by one choice, but no choice attains all of
        it. For compositions it is only an upper bound, and Renyi accounting can be tighter.

        Parameters
        ----------
        relation : str
            The neighbouring relation.

        Returns
        -------
        tuple of two pairs
            For removing, and for adding: the same.
        """
        return both(SlopePair(self.epsilon, loose=True))

    def zcdp(self, relation: str) -> float:
        return self.epsilon**2 / 8

    def grouped(self, size: int) -> ExponentialEvent:
        # a sum of losses, each of which lies in an interval of length epsilon
        return ExponentialEvent(size * self.epsilon)


@dataclass(frozen=True)
class ReportNoisyMaxEvent(Event, tag="ReportNoisyMax", stored=("epsilon",), knows_label=True):
    """The index of the largest value after Laplace or exponential noise of scale 2/epsilon each.

    Parameters
    ----------
    epsilon : float
        For Gumbel noise use :class:`ExponentialEvent`, which costs less.
    """

    epsilon: float

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)

    work = closed_form_work

    def renyi(self, orders: Orders, relation: str) -> Orders:
        return pure_rdp(self.epsilon, orders)

    has_bounded_loss = True

    def dominating_pairs(self, relation: str) -> Pairs:
        return both(pure_pair(self.epsilon))

    def grouped(self, size: int) -> ReportNoisyMaxEvent:
        return ReportNoisyMaxEvent(size * self.epsilon)
