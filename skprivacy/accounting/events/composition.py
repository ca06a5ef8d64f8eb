"""Composition of events, and privacy amplification by Poisson sampling.

:class:`ComposedEvent` and :class:`RepeatedEvent` hold several releases about the same data.
:class:`PoissonSampledEvent` is a release about a random sample of records, and
:class:`SampledGroupEvent` is its cost for a group of records under Gaussian noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import binom

from ..._validation import positive, sequence, whole
from ..event import (
    Event,
    NoLossDistributionError,
    Orders,
    Pairs,
    allows_replacement,
    check_event,
    check_known,
    flatten,
)
from ..pld.pairs import GaussianPair, symmetric_pairs
from ..pld.sampled_pairs import Added, MixedGaussians, Removed
from ..renyi import mixed_gaussian_rdp, pure_rdp, rdp
from ..work_limit import check_work, repeated_work
from .noise import GaussianEvent

_MAX_COUNTS = 64  # largest number of distinct counts of sampled records
_NEGLIGIBLE = 1e-40  # tail probability beyond which counts are merged
_WORK_PER_COUNT = 1e7
_SAMPLING_WORK = 2e6  # for quadratures at fractional Renyi orders


@dataclass(frozen=True)
class RepeatedEvent(Event, tag="Repeated", knows_label=True):
    """Adaptive composition of the same event: each run may depend on earlier answers.

    Parameters
    ----------
    event : Event
        The release of each run.
    count : int
        Number of runs, at least 0.
    """

    event: Event
    count: int

    def __post_init__(self) -> None:
        check_event("event", self.event)
        whole("count", self.count, 0)

    def iter_components(self) -> Iterable[tuple[Event, int]]:
        return ((self.event, self.count),)

    def work(self) -> float:
        return repeated_work(self.event.work(), self.count)

    def curve_work(self) -> float:
        return repeated_work(self.event.curve_work(), self.count)

    def renyi_work(self) -> float:
        return self.event.renyi_work()

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # Mironov 2017, composition: Renyi costs add up
        return self.count * rdp(self.event, orders, relation) if self.count else 0 * orders

    def zcdp(self, relation: str) -> float:
        return total_zcdp(self, relation)

    def grouped(self, size: int) -> RepeatedEvent | None:
        one = self.event.grouped(size)
        return None if one is None else RepeatedEvent(one, self.count)


@dataclass(frozen=True)
class ComposedEvent(Event, tag="Composed", knows_label=True):
    """Adaptive composition of several events on the same data.

    Parameters
    ----------
    events : tuple of Event
        The releases, in any order.
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", sequence("events", self.events))
        for event in self.events:
            check_event("events", event)

    def iter_components(self) -> Iterable[tuple[Event, int]]:
        return ((event, 1) for event in self.events)

    def work(self) -> float:
        return sum(event.work() for event in self.events)

    def curve_work(self) -> float:
        return sum(event.curve_work() for event in self.events)

    def renyi_work(self) -> float:
        return sum(event.renyi_work() for event in self.events)

    def renyi(self, orders: Orders, relation: str) -> Orders:
        each = (rdp(RepeatedEvent(e, n), orders, relation) for e, n in flatten(self).items())
        return sum(each, 0 * orders)

    def zcdp(self, relation: str) -> float:
        return total_zcdp(self, relation)

    def grouped(self, size: int) -> ComposedEvent | None:
        each = group_events(self.events, size)
        return None if each is None else ComposedEvent(each)


@dataclass(frozen=True)
class PoissonSampledEvent(Event, tag="PoissonSampled", knows_label=True):
    """Event on a Poisson sample, which includes each record independently.

    Parameters
    ----------
    sampling_rate : float
        The probability of inclusion, in (0, 1].
    event : Event
        The event on the sample. **Under every relation its sensitivity is a bound on the norm of
        one record's contribution**: a DP-SGD step of clipping norm C and noise of standard
        deviation z * C is ``PoissonSampledEvent(q, GaussianEvent(z))``, whatever the relation.
    """

    sampling_rate: float
    event: Event

    def __post_init__(self) -> None:
        _check_rate(self.sampling_rate)
        check_event("event", self.event)

    def work(self) -> float:
        return _SAMPLING_WORK + 2 * self.event.work()

    def renyi_work(self) -> float:
        return _SAMPLING_WORK + 2 * self.event.renyi_work()

    def renyi(self, orders: Orders, relation: str) -> Orders:
        if self.sampling_rate == 1 and not allows_replacement(relation):
            return rdp(self.event, orders, relation)
        if self.event.has_bounded_loss:  # ln(1 + q (e^epsilon - 1)) of the pure epsilon
            both = self.dominating_pairs(relation)
            return pure_rdp(max(pair.max_loss for pair in both), orders)
        return self.event.sampled_renyi(self.sampling_rate, orders, relation)

    def dominating_pairs(self, relation: str) -> Pairs:
        inner, rate = self.event, self.sampling_rate
        known = inner.sampled_pairs(rate, relation)
        if known is not None:
            return known
        if allows_replacement(relation):
            raise NoLossDistributionError(
                f"A Poisson sample of {inner!r} has no known dominating pair under "
                f"relation={relation!r}. Use 'add_remove' or 'zero_out'."
            )
        base = inner.dominating_pairs(relation)
        if rate == 1:
            return base
        if base[0] != base[1] or base[0].infinity:
            raise NoLossDistributionError(
                f"A Poisson sample of {inner!r} is not covered, since the dominating pair of the "
                "event is not symmetric. Account for it without sampling."
            )
        # Zhu, Dong and Wang 2022, Theorem 11
        return Removed(base[0], rate), Added(base[1], rate)

    def sampled_pairs(self, rate: float, relation: str) -> Pairs | None:
        if allows_replacement(relation):
            return None
        # A sample of a sample is a sample, at the product of the rates.
        return PoissonSampledEvent(rate * self.sampling_rate, self.event).dominating_pairs(relation)

    def zcdp(self, relation: str) -> float:
        # zCDP has no amplification by sampling, so this is the bound without sampling. A replaced
        # contribution moves by up to twice its norm, which multiplies rho by four.
        return total_zcdp(self.event, relation) * (4 if allows_replacement(relation) else 1)

    def grouped(self, size: int) -> Event | None:
        inner: Event = self
        rate = 1.0
        while isinstance(inner, PoissonSampledEvent):
            rate, inner = rate * inner.sampling_rate, inner.event
        return SampledGroupEvent(rate, inner, size) if isinstance(inner, GaussianEvent) else None

    def gdp(self) -> tuple[float, bool]:
        if not isinstance(self.event, GaussianEvent):
            return math.inf, True
        if self.sampling_rate == 1:
            return self.event.gdp()
        # Bu, Dong, Long and Su 2020: the limit of T steps is q sqrt(T (e^(1/z^2) - 1))
        precision = 1 / self.event.noise_multiplier**2
        square = math.expm1(precision) if precision < 700 else math.inf
        return self.sampling_rate * math.sqrt(square), False


def total_zcdp(event: Event, relation: str) -> float:
    """Return rho of all parts of an event: the sum (Bun and Steinke 2016, Lemma 1.7)."""
    check_work(event)
    check_known(event, relation)
    return math.fsum(n * e.zcdp(relation) for e, n in flatten(event).items())


@dataclass(frozen=True)
class SampledGroupEvent(Event, tag="SampledGroup", knows_label=True):
    """Poisson-sampled Gaussian mechanism for groups of at most ``size`` records.

    It bounds the cost of ``PoissonSampledEvent(sampling_rate, event)`` if ``size`` records are
    added, removed or replaced together. :meth:`PrivacyGuarantee.group` makes it.

    Parameters
    ----------
    sampling_rate : float
        The probability of inclusion of each record, independently, in (0, 1].
    event : GaussianEvent
        Its sensitivity bounds the norm of one record's contribution, under every relation.
    size : int
        Largest number of records in a group.

    Notes
    -----
    **Guarantees.** With probability w_j = Binomial(k, q)(j), j of a group's k records are in the
    sample. Their contributions then add up to a vector of norm at most j. In any dimension these
    pairs dominate:

    - removing: sum_j w_j N(j, z^2) from N(0, z^2); adding: the reverse;
    - replacing: sum_j w_j N(j, z^2) from sum_j w_j N(-j, z^2).

    Proof. Let S be the set of sampled records of the group, of probability w_S. Let u_S and v_S be
    the sums of their contributions in the two data sets (zero for absent records). The rest of the
    sample and its noise are the same in both. Let x be drawn from N(0, z^2 I), and A_S and B_S be
    the likelihood ratios of N(u_S) and N(v_S) to it. The hockey-stick divergence at alpha is then
    E (sum_S w_S A_S - alpha sum_S w_S B_S)_+. All ln A_S and ln B_S are jointly normal, and all
    A_S and B_S have mean 1. Their covariances are the inner products of the u_S and v_S, divided by
    z^2.

    Take a convex f, any numbers c_i, and the mean of f(sum_i c_i e^(X_i - Var X_i / 2)) over normal
    X. Along the path between two covariances its derivative is
    sum_ij c_i c_j (change of Cov_ij) E[f'' e^(...) e^(...)] / 2 (Kahane 1985). So the mean grows
    with every covariance of two terms of the same sign, and falls with every covariance of two
    terms of opposite signs. Let s and t be the numbers of records in S and T. Then
    <u_S, u_T> <= s t, <v_S, v_T> <= s t and <u_S, v_T> >= -s t. All three are attained at once by
    u_S = s and v_S = -s on a line, which proves replacing. With v_S = 0 this proves removing, and
    with u_S = 0 adding.

    By the same argument more, or larger, contributions never cost less, so smaller groups are
    covered. Steps compose as dominating pairs do. The bound is tight: contributions along one
    direction attain the pairs. Above 63 records, the counts j are rounded up to 64 values in all.

    References
    ----------
    J.-P. Kahane, "Sur le chaos multiplicatif", Annales des sciences mathematiques du Quebec 9
    (1985).
    C. Choquette-Choo, A. Ganesh, T. Steinke and A. Thakurta, "Privacy amplification for matrix
    mechanisms", ICLR 2024: mixtures of Gaussians as dominating pairs.
    """

    sampling_rate: float
    event: GaussianEvent
    size: int

    def __post_init__(self) -> None:
        _check_rate(self.sampling_rate)
        if not isinstance(self.event, GaussianEvent):
            raise TypeError(
                f"event={self.event!r} must be a GaussianEvent: nothing is proved for groups in "
                "samples with other noise. Use the curve of the records' guarantee."
            )
        whole("size", self.size)

    def work(self) -> float:
        # Quadratures over one Gaussian for each count, and exact binomials, whose digits grow with
        # the size: 0.01 s for 1,000 records, 5 s for 10,000.
        return _WORK_PER_COUNT * min(self.size, _MAX_COUNTS) + self.size**3 / 1000

    def renyi(self, orders: Orders, relation: str) -> Orders:
        weights, up, down = self._shifts(relation)
        noise = self.event.noise_multiplier
        each = [mixed_gaussian_rdp(noise, weights, up, down, orders)]
        if not allows_replacement(relation):
            away = tuple(-c for c in up)
            each.append(mixed_gaussian_rdp(noise, weights, down, away, orders))
        divergence: Orders = np.max(each, axis=0)
        return divergence

    def dominating_pairs(self, relation: str) -> Pairs:
        weights, up, down = self._shifts(relation)
        noise = self.event.noise_multiplier
        if len(weights) == 1:
            return symmetric_pairs(GaussianPair(noise / (up[0] - down[0])))
        # Choquette-Choo et al. 2024: mixtures of Gaussians; see Notes of the class
        remove = MixedGaussians(noise, weights, up, down)
        if allows_replacement(relation):
            return symmetric_pairs(remove)
        return remove, MixedGaussians(noise, weights, down, tuple(-c for c in up))

    def zcdp(self, relation: str) -> float:
        # As for one record, zCDP has no amplification by sampling.
        distance = self.size * (2 if allows_replacement(relation) else 1)
        return distance**2 / (2 * self.event.noise_multiplier**2)

    def grouped(self, size: int) -> SampledGroupEvent:
        return SampledGroupEvent(self.sampling_rate, self.event, size * self.size)

    def _shifts(self, relation: str) -> tuple[tuple[float, ...], ...]:
        """Return the weights and the shifts of P and of Q, for removing or replacing a group."""
        weights, up = _count_probabilities(self.sampling_rate, self.size)
        return weights, up, tuple(-c if allows_replacement(relation) else 0.0 for c in up)


def group_events(events: tuple[Event, ...], size: int) -> tuple[Event, ...] | None:
    """Return each event for groups, or None if it is not known for some of them."""
    each = [event.grouped(size) for event in events]
    known = tuple(event for event in each if event is not None)
    return known if len(known) == len(each) else None


def _check_rate(sampling_rate: float) -> None:
    positive("sampling_rate", sampling_rate)
    if sampling_rate > 1:
        raise ValueError(f"sampling_rate={sampling_rate!r} must be in (0, 1].")


@lru_cache(maxsize=64)
def _count_probabilities(rate: float, size: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the probabilities of the counts of sampled records; many counts are rounded up."""
    if rate == 1:
        return (1.0,), (float(size),)
    j = np.arange(size + 1)
    weights = np.array([_binomial_probability(int(i), size, rate) for i in j])
    bound = j
    if size >= _MAX_COUNTS:
        likely = j[
            (binom.sf(j, size, rate) > _NEGLIGIBLE) & (binom.cdf(j, size, rate) > _NEGLIGIBLE)
        ]
        kept = np.unique(np.linspace(likely[0], likely[-1], _MAX_COUNTS - 1).round().astype(int))
        bound = np.r_[kept, size][np.searchsorted(np.r_[kept, size], j)]
    shifts, where = np.unique(bound, return_inverse=True)
    total = np.bincount(where, weights)
    here = total > 0
    return tuple((total / math.fsum(total))[here].tolist()), tuple(shifts[here].astype(float))


def _binomial_probability(j: int, n: int, q: float) -> float:
    """Return a binomial probability, accurate to a few ulps (``scipy.stats.binom``: ten)."""
    choose = math.comb(n, j)
    log = j * math.log(q) + (n - j) * math.log1p(-q)
    if choose < 2**1000 and log > -700:
        return choose * math.exp(log)
    return math.exp(math.log(choose) + log)
