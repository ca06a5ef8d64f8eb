"""Events of private choice: exponential mechanism, report noisy max and randomised response.

McSherry and Talwar 2007; McKenna and Sheldon 2020 (permute-and-flip); Warner 1965.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..._validation import positive, whole
from ..event import Event, Orders, Pairs
from ..pld.pairs import AtomPair, SlopePair, pure_pair, symmetric_pairs
from ..renyi import pure_rdp
from ..work_limit import closed_form_work
from .composition import RepeatedEvent


@dataclass(frozen=True)
class ExponentialEvent(Event, tag="Exponential", knows_label=True):
    """Exponential mechanism: choice with probability proportional to exp(epsilon u / (2 S)).

    Here u is the utility of a candidate, and S the sensitivity of the utility.

    Parameters
    ----------
    epsilon : float
        Length of the interval in which the privacy loss lies. If the utility u is monotone in the
        data, pass half of it.

    Notes
    -----
    The dominating pair is the envelope of the privacy curves of all losses in an interval of length
    epsilon: delta(e) is at most (1 - sqrt(k e^e))^2 / (1 - k), k = e^-epsilon, as for logistic
    noise. Each point of the envelope is attained by one choice, but no choice attains all of it.
    For compositions it is only an upper bound, and Renyi accounting can be tighter.

    References
    ----------
    J. Dong, D. Durfee and R. Rogers, "Optimal differential privacy composition for exponential
    mechanisms", ICML 2020.
    """

    epsilon: float

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)

    work = closed_form_work

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # Dong, Durfee and Rogers 2020: the worst loss takes two values that differ by epsilon. Its
        # weights follow from E_Q[P/Q] = 1; the position of the interval is maximised over.
        t, a = self.epsilon, orders
        k = math.exp(-t)
        share = -np.expm1(-a * t) / -math.expm1(-t)
        best = (a - 1) / a * -np.expm1(-a * t) / (k * -np.expm1((1 - a) * t))
        return np.minimum(np.log(best) + np.log(share / a) / (a - 1), a * t**2 / 8)

    has_bounded_loss = True

    def dominating_pairs(self, relation: str) -> Pairs:
        return symmetric_pairs(SlopePair(self.epsilon, loose=True))

    def zcdp(self, relation: str) -> float:
        return self.epsilon**2 / 8  # Hoeffding's lemma for a loss in an interval of this length

    def grouped(self, size: int) -> ExponentialEvent:
        # The losses of ``size`` steps add up, each in an interval of length epsilon.
        return ExponentialEvent(size * self.epsilon)


@dataclass(frozen=True)
class ReportNoisyMaxEvent(Event, tag="ReportNoisyMax", knows_label=True):
    """Report noisy max: index of the largest value after Laplace or exponential noise.

    Parameters
    ----------
    epsilon : float
        The noise of each value has scale 2 / epsilon. For Gumbel noise use
        :class:`ExponentialEvent`, which costs less.
    """

    epsilon: float

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)

    work = closed_form_work

    def renyi(self, orders: Orders, relation: str) -> Orders:
        return pure_rdp(self.epsilon, orders)

    has_bounded_loss = True

    def dominating_pairs(self, relation: str) -> Pairs:
        return symmetric_pairs(pure_pair(self.epsilon))

    def grouped(self, size: int) -> ReportNoisyMaxEvent:
        return ReportNoisyMaxEvent(size * self.epsilon)


@dataclass(frozen=True)
class RandomizedResponseEvent(Event, tag="RandomizedResponse", knows_label=True):
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
        return RepeatedEvent(self, size)

    def _probabilities(self) -> tuple[float, float, float]:
        """Return the probabilities of the true category, one other category, and the rest."""
        low = 1 / (math.exp(self.epsilon) + self.n_categories - 1)
        return math.exp(self.epsilon) * low, low, (self.n_categories - 2) * low
