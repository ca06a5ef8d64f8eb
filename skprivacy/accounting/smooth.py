"""How far a data-dependent cost moves with the data, and what it costs to publish it with noise.

The data-dependent cost of votes is computed from private data. To publish it, noise is added that
hides what one record can change: here, one teacher, who has one vote in every query.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, logsumexp, ndtri_exp

from .events import Event, flatten, positive
from .rdp import _rdp, rdp
from .votes import GNMaxVote, VoteThreshold, gnmax_rdp, log_unlikely

__all__ = ["SmoothGaussian", "Smoothed", "local_sensitivity", "smoothed_cost"]

_FAR = 38.0  # so far below the place where costs end they are mostly below 1e-300
_POINTS = 4001


@dataclass(frozen=True)
class SmoothGaussian(
    Event, tag="SmoothGaussian", stored=("noise_multiplier", "smoothness", "lift")
):
    """One number of smooth sensitivity S, plus ``lift`` S, plus Gaussian noise in units of S.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise, divided by the smooth sensitivity.
    smoothness : float
        S changes by a factor of at most e^smoothness from one data set to the next.
    lift : float, default=0.0
        How many S are added to the number, so that noise seldom takes it below the truth.

    Notes
    -----
    The two normal distributions may differ in spread by a factor r between e^-b and e^b, and in
    their means by 1 + lift (e^b - 1) times the smaller spread's S. Both terms of their divergence
    are largest at r = e^-b. The bound is infinite from the order 1 / (1 - e^-2b) on. It is a little
    below the one that was published, which has e^2b / z^2 where this one has half of that and more.

    References
    ----------
    Papernot et al. (2018), "Scalable private learning with PATE", appendix B, mechanism GNSS.
    """

    noise_multiplier: float
    smoothness: float
    lift: float = 0.0

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        positive("smoothness", self.smoothness)
        if self.lift != 0:
            positive("lift", self.lift)


@_rdp.register
def _(event: SmoothGaussian, orders, relation):
    a, b, z = orders, event.smoothness, event.noise_multiplier
    apart = 1 + event.lift * math.expm1(b)
    room = 1 + a * math.expm1(-2 * b)
    means = a * (apart * math.exp(-b) / z) ** 2 / (2 * room)
    spreads = (-a * b - np.log(room) / 2) / (a - 1)
    return np.where(room > 0, means + spreads, np.inf)


class Smoothed(NamedTuple):
    """A data-dependent Renyi cost and its smooth sensitivity. **Both are private.**

    Parameters
    ----------
    cost : float
        The Renyi cost, in nats.
    sensitivity : float
        Its smooth sensitivity, in the same unit.
    """

    cost: float
    sensitivity: float


def smoothed_cost(event: Event, order: float, smoothness: float) -> Smoothed:
    """Return the data-dependent Renyi cost of votes and its smooth sensitivity.

    Parameters
    ----------
    event : Event
        Any composition of votes, their threshold tests and data-independent events.
    order : float
        The Renyi order, above 1, chosen without a look at the votes.
    smoothness : float
        Above 0. A smaller one means more sensitivity, and a cheaper release.

    Returns
    -------
    Smoothed
        ``cost`` is :func:`rdp` at the order, or a little more; ``sensitivity`` is the largest
        e^(-smoothness d) times the local sensitivity at distance d. Neither may be published:
        :func:`skprivacy.mechanisms.sanitised_cost` does that.

    Raises
    ------
    TypeError
        If some part's cost depends on the data and no smooth sensitivity is known for it.

    Examples
    --------
    >>> from skprivacy.accounting import GNMaxVote, Repeated, smoothed_cost
    >>> votes = Repeated(GNMaxVote(40.0, votes=(220, 20, 10)), 100)
    >>> cost, sensitivity = smoothed_cost(votes, order=10.0, smoothness=0.04)
    >>> round(cost, 4), round(sensitivity, 4)
    (0.0136, 0.008)
    """
    order = _check_order(order)
    positive("smoothness", smoothness)
    parts = flatten(event)
    cost = math.fsum(n * _cost_of(e, order) for e, n in parts.items())
    far = max((math.ceil(sum(getattr(e, "votes", None) or ())) for e in parts), default=0)
    distances = np.arange(far + 2)
    weighted = np.exp(-smoothness * distances) * local_sensitivity(event, order, distances)
    return Smoothed(cost, float(weighted.max()))


def local_sensitivity(event: Event, order: float, distances: ArrayLike = 0) -> NDArray[np.float64]:
    """Return how much one more record can change the data-dependent cost at a distance.

    Parameters
    ----------
    event : Event
        See :func:`smoothed_cost`.
    order : float
        The Renyi order.
    distances : array-like of int, default=0
        How many records the data set may differ from the present one beforehand.

    Returns
    -------
    ndarray of the shape of ``distances``
        Upper bounds, private like the votes.

    Notes
    -----
    With x = Phi^-1(q / (m - 1)) for m classes, one vote moves x by at most sqrt(2)/sigma. The cost
    rises with q up to q0, where the data-independent one takes over (at the latest at
    ln q = -(order/sigma)^2), and is constant from there. Papernot et al. show that its change is
    largest between q1, one vote below q0, and q0, if it grows with q up to q1 (their conditions C5
    and C6, which say the same since a step down from q is a step up from one vote below). Both are
    checked at some thousand points. Where one fails, as for large orders and little noise, the
    largest change over all of q is used, whatever the votes and the distance.

    At distance d, q is highest where d votes went from the winner to the runner-up; by convexity no
    other way to move d votes makes it higher. It is not below where every gap widened by 2d.

    References
    ----------
    Papernot et al. (2018), "Scalable private learning with PATE", appendix B.
    """
    order, distance = _check_order(order), np.asarray(distances)
    if distance.dtype.kind not in "iu" or (distance < 0).any():
        raise ValueError(f"distances={distances!r} must be integers >= 0.")
    total = np.zeros(distance.shape)
    for part, n in flatten(event).items():
        if isinstance(part, GNMaxVote) and part.votes is not None:
            total += n * _of_vote(part, order, distance)
        elif isinstance(part, VoteThreshold) and part.votes is not None:
            total += n * _of_threshold(part, order, distance)
        else:
            _check_public(part)
    return total


def _check_order(order: float) -> float:
    positive("order", order)
    if order <= 1:
        raise ValueError(f"order={order!r} must be above 1.")
    return float(order)


def _check_public(event: Event) -> None:
    if event.data_dependent:
        raise TypeError(
            f"No smooth sensitivity is known for the data-dependent cost of {event!r}; account for "
            "it without votes."
        )


def _cost_of(event: Event, order: float) -> float:
    if isinstance(event, GNMaxVote) and event.votes is not None:
        curve = _curve_of(event.noise_multiplier, len(event.votes), order)
        return float(curve.at_log_q(log_unlikely(event)))
    return float(rdp(event, [order])[0])


def _of_vote(event: GNMaxVote, order: float, distance: NDArray) -> NDArray[np.float64]:
    assert event.votes is not None
    curve = _curve_of(event.noise_multiplier, len(event.votes), order)
    if not curve.regular:
        return np.full(distance.shape, curve.steepest)
    top, second, *rest = sorted(event.votes, reverse=True)
    gaps = top - np.array([second, *rest])
    d = distance[..., None]
    closed = gaps - d
    closed[..., 0] -= distance
    high = np.where(gaps[0] >= 2 * distance, curve.place(closed), np.inf)
    low = curve.place(np.minimum(gaps + 2 * d, sum(event.votes)))  # no gap is wider than that
    rise = curve(high + curve.vote) - curve(high)
    fall = curve.top - curve(low - curve.vote)
    return np.where(high <= curve.x1, rise, np.where(low > curve.x0, fall, curve.steepest))


def _of_threshold(event: VoteThreshold, order: float, distance: NDArray) -> NDArray[np.float64]:
    """Take the largest change among all counts within reach: they are whole steps apart.

    Only counts that can occur are looked at. The sum over distances ends where all of them are
    within reach; a change beyond would be in reach of one data set and not of the next.
    """
    assert event.votes is not None
    assert event.threshold is not None
    sigma, reach = event.noise_multiplier, int(distance.max(initial=0)) + 1
    counts = np.clip(max(event.votes) + np.arange(-reach, reach + 1), 0.0, sum(event.votes))
    log_q = log_ndtr(-np.abs(counts - event.threshold) / sigma)
    change = np.abs(np.diff(gnmax_rdp(log_q, math.sqrt(2) * sigma, order)))
    # change[reach - 1 - d : reach + 1 + d] are the steps to be made from within distance d
    within = np.maximum.accumulate(np.maximum(change[reach - 1 :: -1], change[reach:]))
    return within[distance]


class _Curve:
    """The cost of one vote as a function of x, with the places where its change is largest."""

    def __init__(self, sigma: float, n_classes: int, order: float) -> None:
        self.sigma, self.order, self.others = sigma, order, math.log(n_classes - 1)
        self.top, self.vote = order / sigma**2, math.sqrt(2) / sigma
        self._limit = min(-((order / sigma) ** 2), math.log1p(-1 / n_classes))
        high = float(ndtri_exp(self._limit - self.others))
        low = high if self(high) < self.top else min(high, -1.0)
        while self(low) >= self.top:
            low *= 2
        while high - low > 1e-12:
            middle = (low + high) / 2
            low, high = (middle, high) if self(middle) < self.top else (low, middle)
        self.x0, self.x1 = low, low - self.vote
        far = _FAR
        while self(self.x0 - self.vote - far) > 1e-300:  # of large orders and little noise
            far *= 2
        x = np.linspace(self.x0 - self.vote - far, self.x0 + self.vote, _POINTS)
        cost, after = self(x), self(x + self.vote)
        rises, before = after - cost, x <= self.x1
        tiny = 1e-9 * after + 1e-300  # rounding
        monotone = bool((np.diff(cost) >= -tiny[1:]).all())
        self.regular = monotone and bool((np.diff(rises[before]) >= -tiny[before][1:]).all())
        self.steepest = self.top
        if self.regular:
            self.steepest = float(self.top - self(self.x1))
        elif monotone:  # between two points of the grid the change is at most from end to end
            self.steepest = float((after[1:] - cost[:-1]).max())

    def place(self, gaps: NDArray) -> NDArray[np.float64]:
        """Return x of votes whose winner is ahead by ``gaps``, along the last axis."""
        log_q = logsumexp(log_ndtr(-gaps / (math.sqrt(2) * self.sigma)), axis=-1)
        return ndtri_exp(np.minimum(log_q - self.others, 0.0))

    def at_log_q(self, log_q) -> NDArray[np.float64]:
        return np.where(log_q <= self._limit, gnmax_rdp(log_q, self.sigma, self.order), self.top)

    def __call__(self, x) -> NDArray[np.float64]:
        return self.at_log_q(self.others + log_ndtr(x))


@lru_cache(maxsize=64)
def _curve_of(sigma: float, n_classes: int, order: float) -> _Curve:
    return _Curve(sigma, n_classes, order)
