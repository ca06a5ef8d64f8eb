"""A public random choice among releases."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from .._checks import numbers, sequence
from .._event import Event, NoLossDistributionError, Orders, Pairs, check_event
from .._renyi import rdp
from .._work import CURVE_WORK
from ..pld import PrivacyLossDistribution, pld
from ..pld.curve import pair_of_curve
from ..pld.pairs import AtomPair, MixedPair, both
from .composition import total_zcdp
from .sampling import PoissonSampled

__all__ = ["Mixture"]

_ROUNDING = 1e-9  # permitted deviation of the sum of probabilities from 1
_LEAST = 1e-15  # smallest delta on the privacy curve of a composed branch
_MOST = 350.0  # the exponential of twice as much is the largest that does not overflow
_POINTS = 1000
_NOTHING = AtomPair((0.0,), (1.0,), (1.0,))


@dataclass(frozen=True)
class Mixture(Event, tag="Mixture", stored=("p", "events"), knows_label=True):
    """One of several events, chosen at random; the choice is released with the answer.

    Parameters
    ----------
    p : tuple of float
        The probability of each event, above 0. **The probabilities must not depend on the data**,
        nor may the choice.
    events : tuple of Event
        The events, of which one happens.

    Notes
    -----
    **Guarantees.** For every epsilon, delta is the mean of the events' deltas: an event is weighted
    by its probability, where :class:`Composed` would count it fully. The pair that proves this, the
    dominating pair of each event with its probability, composes like any other; if events are
    compositions themselves, a bound on their privacy curves is used instead. The Renyi cost of
    order a is ln(sum_i p_i exp((a - 1) R_i)) / (a - 1). zCDP has no such mean, so the most
    expensive event counts. Holds under every relation, which is that of the events.

    References
    ----------
    D. Kifer and B.-R. Lin, "An axiomatic view of statistical privacy and utility", Journal of
    Privacy and Confidentiality 4 (2012): convexity.

    Examples
    --------
    >>> from skprivacy.accounting import LaplaceEvent, Mixture, epsilon_of
    >>> seldom = Mixture((0.99, 0.01), (LaplaceEvent(10.0), LaplaceEvent(1.0)))
    >>> round(epsilon_of(seldom, 0.0), 2), round(epsilon_of(seldom, 0.01), 2)
    (1.0, 0.09)
    """

    p: tuple[float, ...]
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", numbers("p", self.p))
        object.__setattr__(self, "events", sequence("events", self.events))
        for event in self.events:
            check_event("events", event)
        usable = all(type(w) in (int, float) and 0 < w <= 1 for w in self.p)
        if not usable or abs(math.fsum(self.p) - 1) > _ROUNDING:
            raise ValueError(
                f"p={self.p!r} must be numbers above 0 that add up to 1. Leave out an event that "
                "never happens."
            )
        if len(self.p) != len(self.events):
            raise ValueError(
                f"p must have one probability for each event; got {len(self.p)} probabilities for "
                f"{len(self.events)} events. Pass one probability for each event."
            )

    @property
    def weights(self) -> NDArray[np.float64]:
        """Normalised probabilities."""
        return np.array(self.p) / math.fsum(self.p)

    def work(self) -> float:
        return sum(event.curve_work() for event in self.events)

    def curve_work(self) -> float:
        # The curves of the branches are there already; only their points are composed.
        return CURVE_WORK * len(self.events) + self.work()

    def renyi_work(self) -> float:
        return sum(event.renyi_work() for event in self.events)

    def renyi(self, orders: Orders, relation: str) -> Orders:
        each = np.array([rdp(e, orders, relation) for e in self.events])
        terms, weights = (orders - 1) * each, self.weights[:, None]
        near = np.log1p((weights * np.expm1(np.minimum(terms, 1))).sum(axis=0))
        far = logsumexp(terms, b=weights, axis=0)
        divergence: Orders = np.where(terms.max(axis=0) < 1, near, far) / (orders - 1)
        return divergence

    def sampled_renyi(self, rate: float, orders: Orders, relation: str) -> Orders:
        return self._sampled(rate).renyi(orders, relation)

    def dominating_pairs(self, relation: str) -> Pairs:
        each = [_branch(pld(e, relation), e) for e in self.events]
        weights = tuple(self.weights.tolist())
        remove, add = (MixedPair(weights, parts) for parts in zip(*each, strict=True))
        return remove, add

    def sampled_pairs(self, rate: float, relation: str) -> Pairs | None:
        return self._sampled(rate).dominating_pairs(relation)

    def _sampled(self, rate: float) -> Mixture:
        """Return the mixture of sampled events; sampling and choice are independent."""
        return Mixture(self.p, tuple(PoissonSampled(rate, e) for e in self.events))

    def zcdp(self, relation: str) -> float:
        return max(total_zcdp(e, relation) for e in self.events)

    def grouped(self, size: int) -> Mixture | None:
        each = [event.grouped(size) for event in self.events]
        known = tuple(event for event in each if event is not None)
        return Mixture(self.p, known) if len(known) == len(each) else None


def _branch(loss: PrivacyLossDistribution, event: Event) -> Pairs:
    """Return the pairs of an event if it is a single one, else pairs of a bound on its curve."""
    alone = loss.single_pairs()
    if alone is not None:
        return alone
    top = _top(loss)
    if top == 0 and loss.infinity == 0:
        return both(_NOTHING)
    if not top < _MOST:
        raise NoLossDistributionError(
            f"{event!r} has privacy losses too large for a distribution. Use more noise."
        )
    epsilons = np.linspace(0, top, _POINTS)
    return both(pair_of_curve(epsilons, np.minimum(loss.deltas(epsilons) * (1 + 1e-9), 1.0)))


def _top(loss: PrivacyLossDistribution) -> float:
    """Return the largest finite loss, or one that is exceeded with negligible probability."""
    if loss.infinity == 0 and math.isfinite(loss.max_loss):
        return loss.max_loss
    return loss.epsilon(loss.infinity * (1 + 1e-3) + _LEAST)
