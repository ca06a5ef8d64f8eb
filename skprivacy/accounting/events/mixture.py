"""Mixture: one of several releases, by a public random choice."""

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
from ..pld.curve import pair_from_curve
from ..pld.pairs import AtomPair, MixedPair, symmetric_pairs
from .composition import total_zcdp
from .sampling import PoissonSampled

__all__ = ["Mixture"]

_SUM_TOLERANCE = 1e-9  # largest deviation of the sum of probabilities from 1
_SMALLEST_BRANCH_DELTA = 1e-15  # on the privacy curve of a composed branch
_LARGEST_BRANCH_LOSS = 350.0  # the exponential of twice this loss is still finite
_BRANCH_POINTS = 1000
_ZERO_LOSS_PAIR = AtomPair((0.0,), (1.0,), (1.0,))


@dataclass(frozen=True)
class Mixture(Event, tag="Mixture", stored=("p", "events"), knows_label=True):
    """Mixture: one of several events, chosen at random; the choice is released with the answer.

    Parameters
    ----------
    p : tuple of float
        The probability of each event, above 0. **Probabilities and choice must not depend on the
        data.**
    events : tuple of Event
        The events, of which one happens.

    Notes
    -----
    **Guarantees.** For every epsilon, delta is the weighted mean of the events' deltas, whereas
    :class:`Composed` would count each event fully. The dominating pair chooses each event's pair
    with its probability, and composes like any other pair. If an event is itself a composition, a
    bound on its privacy curve takes the place of its pair. The Renyi cost of order a is
    ln(sum_i p_i exp((a - 1) R_i)) / (a - 1). zCDP has no such mean, so the most expensive event
    counts. The mixture holds under every relation under which its events hold.

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
        if not usable or abs(math.fsum(self.p) - 1) > _SUM_TOLERANCE:
            raise ValueError(
                f"p={self.p!r} must be numbers above 0 that add up to 1. Leave out events that "
                "never happen."
            )
        if len(self.p) != len(self.events):
            raise ValueError(
                f"p has {len(self.p)} probabilities for {len(self.events)} events. Pass one "
                "probability for each event."
            )

    @property
    def weights(self) -> NDArray[np.float64]:
        """Probabilities, normalised to sum to 1."""
        return np.array(self.p) / math.fsum(self.p)

    def work(self) -> float:
        return sum(event.curve_work() for event in self.events)

    def curve_work(self) -> float:
        # The curves of the branches are there already; only their points are composed.
        return CURVE_WORK * len(self.events) + self.work()

    def renyi_work(self) -> float:
        return sum(event.renyi_work() for event in self.events)

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # ln(sum_i p_i exp((a - 1) R_i)) / (a - 1); expm1 keeps the digits of small costs
        each = np.array([rdp(e, orders, relation) for e in self.events])
        terms, weights = (orders - 1) * each, self.weights[:, None]
        near = np.log1p((weights * np.expm1(np.minimum(terms, 1))).sum(axis=0))
        far = logsumexp(terms, b=weights, axis=0)
        divergence: Orders = np.where(terms.max(axis=0) < 1, near, far) / (orders - 1)
        return divergence

    def sampled_renyi(self, rate: float, orders: Orders, relation: str) -> Orders:
        return self._sample_branches(rate).renyi(orders, relation)

    def dominating_pairs(self, relation: str) -> Pairs:
        each = [_branch_pairs(pld(e, relation), e) for e in self.events]
        weights = tuple(self.weights.tolist())
        # Kifer and Lin 2012, convexity: the choice is public and independent of the data
        remove, add = (MixedPair(weights, parts) for parts in zip(*each, strict=True))
        return remove, add

    def sampled_pairs(self, rate: float, relation: str) -> Pairs | None:
        return self._sample_branches(rate).dominating_pairs(relation)

    def _sample_branches(self, rate: float) -> Mixture:
        """Return the mixture of the sampled events, since sampling and choice are independent."""
        return Mixture(self.p, tuple(PoissonSampled(rate, e) for e in self.events))

    def zcdp(self, relation: str) -> float:
        return max(total_zcdp(e, relation) for e in self.events)

    def grouped(self, size: int) -> Mixture | None:
        each = [event.grouped(size) for event in self.events]
        known = tuple(event for event in each if event is not None)
        return Mixture(self.p, known) if len(known) == len(each) else None


def _branch_pairs(loss: PrivacyLossDistribution, event: Event) -> Pairs:
    """Return the pairs of a single event, or pairs for a bound on a composition's curve."""
    alone = loss.single_pairs()
    if alone is not None:
        return alone
    top = _largest_loss(loss)
    if top == 0 and loss.infinity == 0:
        return symmetric_pairs(_ZERO_LOSS_PAIR)
    if not top < _LARGEST_BRANCH_LOSS:
        raise NoLossDistributionError(
            f"{event!r} has privacy losses too large for a distribution. Use more noise."
        )
    epsilons = np.linspace(0, top, _BRANCH_POINTS)
    # The factor exceeds all later rounding errors.
    return symmetric_pairs(
        pair_from_curve(epsilons, np.minimum(loss.deltas(epsilons) * (1 + 1e-9), 1.0))
    )


def _largest_loss(loss: PrivacyLossDistribution) -> float:
    """Return the largest finite loss, or a loss exceeded with negligible probability."""
    if loss.infinity == 0 and math.isfinite(loss.max_loss):
        return loss.max_loss
    return loss.epsilon(loss.infinity * (1 + 1e-3) + _SMALLEST_BRANCH_DELTA)
