"""How often a private search tries: the truncated negative binomial distribution.

A fixed number of trials would have to be composed. If the number is random, and nobody learns it,
the best of all trials costs little more than one (Liu and Talwar 2019; Papernot and Steinke 2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count

from scipy.optimize import brentq

from ..accounting import ApproxDP, Event, PrivateSelection
from ..mechanisms import SecureRandom

__all__ = ["NumberOfTrials"]

_LEAST_RATE = 1e-9
_LEAST_FIRST = 1e-7  # P(K = 1), below which the sum of 53-bit numbers does not follow the law


@dataclass(frozen=True)
class NumberOfTrials:
    """The law of the number of trials K.

    Parameters
    ----------
    eta, gamma : float
        As in :class:`~skprivacy.accounting.PrivateSelection`.

    Notes
    -----
    **Guarantees.** K is drawn by inversion of a uniform number of 53 bits, so each probability is
    off by about 1e-16, and numbers that are less probable are never drawn. The law of the best
    trial depends on them through f'(u), the sum of k P(K = k) u^(k - 1), which is at least P(K = 1)
    for every u: for ``gamma`` of 0.01 and above it is off by a relative 1e-9 at most, hence so is
    the privacy loss.
    """

    eta: float
    gamma: float

    @classmethod
    def of_mean(cls, mean: float, eta: float) -> NumberOfTrials:
        """Return the law of this mean, which is above 1."""
        law = cls(1.0, 1 / mean) if eta == 1 else cls._by_bisection(mean, eta)
        if law._probability_of_one() < _LEAST_FIRST:
            raise ValueError(
                f"eta={eta!r} is too large for n_trials={mean!r}: few trials would next to never "
                "occur, and their number could not be drawn exactly. Use a smaller eta, such as 1."
            )
        return law

    @classmethod
    def _by_bisection(cls, mean: float, eta: float) -> NumberOfTrials:

        def excess(log_gamma: float) -> float:
            return math.log(cls(eta, math.exp(log_gamma)).mean / mean)

        low, high = math.log(_LEAST_RATE), math.log1p(-1e-9)
        if excess(low) < 0 or excess(high) > 0:
            raise ValueError(
                f"n_trials={mean!r} is out of reach for eta={eta!r}. Use eta=1, or a mean closer "
                "to 10."
            )
        return cls(eta, math.exp(brentq(excess, low, high, xtol=1e-14)))

    @property
    def mean(self) -> float:
        """The mean of K."""
        return PrivateSelection(ApproxDP(0.0), self.eta, self.gamma).expected_trials

    def best_of(self, event: Event) -> PrivateSelection:
        """Return the event of the best of K trials."""
        return PrivateSelection(event, self.eta, self.gamma)

    def draw(self, random: SecureRandom) -> int:
        """Draw K, at least 1."""
        left = float(random.uniform(1)[0])
        probability = self._probability_of_one()
        for k in count(1):
            left -= probability
            if left <= 0 or probability < 1e-18:
                return k
            probability *= (1 - self.gamma) * (k + self.eta) / (k + 1)
        raise AssertionError("unreachable")

    def _probability_of_one(self) -> float:
        if abs(self.eta) < 1e-100:  # its logarithms differ from those of 0 by nothing
            return (1 - self.gamma) / -math.log(self.gamma)
        return self.eta * (1 - self.gamma) / math.expm1(-self.eta * math.log(self.gamma))
