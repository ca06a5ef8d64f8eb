"""Privacy analysis of PATE votes: data-dependent and data-independent Renyi costs.

:func:`sanitized_cost` publishes a data-dependent cost (Papernot et al. 2018).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, logsumexp, ndtri

from .. import _config
from .._validation import is_number, is_whole, open_unit, positive, raise_alone, whole
from ..accounting import ComposedEvent, Event, GNMaxEvent, PrivacyBudget, RepeatedEvent
from ..accounting.event import check_delta, flatten
from ..accounting.events import VoteThresholdEvent
from ..accounting.events.gnmax import gnmax_rdp
from ..accounting.renyi import DEFAULT_ORDERS, rdp
from ..accounting.smooth_sensitivity import check_order, smoothed_cost
from ..base import private_release
from ..mechanisms import SecureRandom
from ..mechanisms.special_noise import SmoothGaussian
from .aggregators import Aggregator, ConfidentGNMax, GNMax, LNMax

Floats = NDArray[np.float64]
_Costs = tuple[Floats, Floats]  # data-dependent and data-independent, (n_queries, n_orders) each
_MAX_MOMENTS = 100_000
_UNREADABLE = (TypeError, ValueError, RuntimeError, OverflowError)  # raised by numpy's conversion

CONVERSIONS = ("tight", "classic", "strong")


@dataclass(frozen=True)
class VoteAnalysis:
    """Cost of each query at each Renyi order; made by :func:`analyze_votes`.

    Attributes
    ----------
    orders : ndarray of shape (n_orders,)
        Renyi orders.
    dependent : ndarray of shape (n_queries, n_orders)
        Cost of each query given its votes, in nats. **It is private.**
    independent : ndarray of shape (n_queries, n_orders)
        Cost of each query whatever its votes, in nats.
    delta : float
        The delta at which epsilon is stated.
    conversion : {"tight", "classic", "strong"}
        Conversion of costs to epsilon.
    pure : float or None
        Epsilon of one query at delta 0, whatever its votes; None if it has none.
    """

    orders: Floats = field(repr=False)
    dependent: Floats = field(repr=False)
    independent: Floats = field(repr=False)
    delta: float = 1e-5
    conversion: str = "tight"
    pure: float | None = None

    def epsilon(self, n_queries: int | None = None) -> float:
        """Return the epsilon of the first queries, whatever their votes.

        Parameters
        ----------
        n_queries : int, default=None
            ``None`` means all.

        Returns
        -------
        float
            Epsilon in nats.
        """
        # Papernot et al. 2017, section 3: strong composition of pure mechanisms
        if self.conversion == "strong":
            assert self.pure is not None
            steps = len(self.independent[:n_queries])
            spread = math.sqrt(2 * steps * math.log(1 / self.delta))
            return steps * self.pure**2 + self.pure * spread
        return self._epsilon(self.independent, n_queries)

    def private_epsilon(self, n_queries: int | None = None) -> float:
        """Return the epsilon of the first queries given their votes: **not for release**.

        It depends on private data. :func:`~skprivacy.ensemble.sanitized_cost` turns it into a
        figure that may be published.

        Parameters
        ----------
        n_queries : int, default=None
            ``None`` means all.

        Returns
        -------
        float
            Epsilon in nats.

        Raises
        ------
        ValueError
            With ``conversion="strong"``, which does not use votes.

        Warns
        -----
        PrivacyLeakWarning
            Always; under ``skprivacy.set_config(strict=True)`` it is a ValueError.
        """
        if self.conversion == "strong":
            raise ValueError(
                "conversion='strong' does not use votes. Use 'tight', or the papers' 'classic'."
            )
        _config.leak(
            "private_epsilon depends on the votes, hence on private data: do not publish it. "
            "Use epsilon(), or skprivacy.ensemble.sanitized_cost."
        )
        return self._epsilon(self.dependent, n_queries)

    def _epsilon(self, costs: Floats, n_queries: int | None) -> float:
        if n_queries is not None:
            whole("n_queries", n_queries, least=0)
        a, cost = self.orders, costs[:n_queries].sum(axis=0)
        if self.conversion == "classic":
            # Abadi et al. 2016, Theorem 2, part 2: the tail bound of the log moments, for epsilon
            return float(np.min((cost * (a - 1) - math.log(self.delta)) / (a - 1)))
        return max(0.0, float(np.min(_convert_to_epsilons(cost, a, self.delta))))


def _convert_to_epsilons(costs: Any, orders: Any, delta: float) -> Any:
    """Return the epsilon at ``delta`` that each Renyi cost bounds."""
    # Canonne, Kamath and Steinke 2020, Proposition 12
    return costs + np.log1p(-1 / orders) - (np.log(orders) + math.log(delta)) / (orders - 1)


def analyze_votes(
    votes: ArrayLike,
    aggregator: Aggregator,
    *,
    delta: float = 1e-5,
    answered: ArrayLike | None = None,
    moments: int | None = None,
    conversion: str = "tight",
) -> VoteAnalysis:
    """Return the privacy cost of each query of a matrix of votes.

    Parameters
    ----------
    votes : array-like of int, shape (n_queries, n_classes)
        Counts of teachers for each class.
    aggregator : GNMax, LNMax or ConfidentGNMax
        Aggregator with its noise set. A neighbouring data set moves one vote of each query.
    delta : float, default=1e-5
        In (0, 1).
    answered : array-like of bool, shape (n_queries,), default=None
        Which queries were answered; the others cost only a threshold test. ``None`` means all.
    moments : int, default=None
        Use only the orders 2 to ``moments`` + 1. The script published with the first paper uses 8.
        ``None`` means the library's orders.
    conversion : {"tight", "classic", "strong"}, default="tight"
        Conversion of costs to epsilon. "classic" is the conversion of the papers, from log
        moments (Abadi et al. 2016). "strong" is for :class:`LNMax` only, and independent of the
        votes: T e**2 + e sqrt(2 T ln(1 / delta)) for T queries of pure cost e. For Laplace noise of
        scale 1 / gamma, e is 2 gamma. It is the figure of the first paper, and uses no moments. It
        is valid but never the smallest: zero-concentrated differential privacy proves a bound with
        half its first term.

    Returns
    -------
    VoteAnalysis
        ``epsilon(n_queries)`` of the first queries, or of all, whatever their votes, and
        ``private_epsilon(n_queries)``, which their votes make smaller and which is **private**.
        ``independent`` and ``dependent`` are these costs of each query at each of the ``orders``.

    Raises
    ------
    ValueError
        If the votes are not counts, or a parameter is not as described.

    References
    ----------
    Papernot et al., "Semi-supervised knowledge transfer for deep learning from private training
    data", ICLR 2017, section 3 and Theorem 3.
    N. Papernot et al., "Scalable private learning with PATE", ICLR 2018, Theorem 6.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.ensemble import GNMax, analyze_votes
    >>> votes = np.tile([200, 30, 20], (286, 1))
    >>> round(analyze_votes(votes, GNMax(40.0)).epsilon(), 2)
    2.64
    """
    counts = _check_votes(votes)
    open_unit("delta", delta, 1e-5)
    if not isinstance(conversion, str) or conversion not in CONVERSIONS:
        raise ValueError(f"conversion={conversion!r} must be one of {CONVERSIONS}.")
    if moments is not None and not (is_whole(moments) and 1 <= moments <= _MAX_MOMENTS):
        raise ValueError(
            f"moments={moments!r} must be a whole number from 1 to {_MAX_MOMENTS}, or None."
        )
    if not isinstance(aggregator, Aggregator) or aggregator.noise is None:
        raise ValueError(f"aggregator={aggregator!r} must be an aggregator with its noise.")
    if conversion == "strong" and (moments is not None or not isinstance(aggregator, LNMax)):
        raise ValueError(
            f"conversion='strong' is for LNMax without moments, not for {aggregator!r} with "
            f"moments={moments!r}. Use 'tight' or 'classic'."
        )
    orders = np.asarray(DEFAULT_ORDERS if moments is None else np.arange(2, moments + 2), float)
    try:
        taken = np.ones(len(counts), bool) if answered is None else np.asarray(answered, bool)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError("answered must be True or False for each query, or None.") from None
    if taken.shape != (len(counts),):
        raise ValueError(f"answered has shape {taken.shape}; expected {(len(counts),)}.")
    dependent, independent = _query_costs(counts, aggregator, orders, taken)
    pure = 2 / float(aggregator.noise or 0.0) if isinstance(aggregator, LNMax) else None
    return VoteAnalysis(orders, dependent, independent, float(delta), conversion, pure)


def _check_votes(votes: ArrayLike) -> Floats:
    try:
        counts = np.asarray(votes, np.float64)
    except _UNREADABLE:
        raise_alone(ValueError("votes must be counts, one row for each query."))
    if counts.ndim != 2 or counts.shape[1] < 2 or not len(counts):
        raise ValueError(
            f"votes has shape {counts.shape}; expected (n_queries, n_classes) with two classes "
            "or more."
        )
    if not (np.isfinite(counts) & (counts >= 0) & (counts == np.floor(counts))).all():
        raise ValueError("votes must be finite counts >= 0, whole numbers and not shares.")
    return counts


def _query_costs(
    counts: Floats, aggregator: Any, orders: Floats, taken: NDArray[np.bool_]
) -> _Costs:
    """Return the costs of each query."""
    noise = float(aggregator.noise or 0.0)
    if isinstance(aggregator, LNMax):
        return _lnmax_costs(counts, noise, orders)
    if not isinstance(aggregator, GNMax | ConfidentGNMax):
        raise ValueError(f"aggregator={aggregator!r}: no data-dependent cost is known.")
    vote = _gnmax_costs(counts, noise, orders)
    if isinstance(aggregator, GNMax):
        return vote
    test = _threshold_costs(counts, aggregator, orders)
    parts = [np.where(taken[:, None], v, 0.0) + t for v, t in zip(vote, test, strict=True)]
    return parts[0], parts[1]


def _winner_gaps(counts: Floats) -> Floats:
    """Return the winner's lead over each other class, of shape (n_queries, n_classes - 1)."""
    ordered = np.sort(counts, axis=1)
    gaps: Floats = ordered[:, -1:] - ordered[:, :-1]
    return gaps


def _gnmax_costs(counts: Floats, sigma: float, orders: Floats) -> _Costs:
    # Papernot et al. 2018, Theorem 6, with Proposition 7 for q: the probability of another winner
    log_q = logsumexp(log_ndtr(-_winner_gaps(counts) / (math.sqrt(2) * sigma)), axis=1)
    log_q = np.minimum(log_q, math.log1p(-1 / counts.shape[1]))
    dependent = gnmax_rdp(log_q[:, None], sigma, orders)
    # Papernot et al. 2018, Proposition 8: the cost whatever the votes
    return dependent, np.broadcast_to(orders / sigma**2, dependent.shape)


def _threshold_costs(counts: Floats, aggregator: ConfidentGNMax, orders: Floats) -> _Costs:
    noise = aggregator.test_noise
    # Papernot et al. 2018: the test is a noisy arg-max of two outcomes, of half the cost
    log_q = log_ndtr(-np.abs(counts.max(axis=1) - aggregator.threshold) / noise)
    dependent = gnmax_rdp(log_q[:, None], math.sqrt(2) * noise, orders)
    return dependent, np.broadcast_to(orders / (2 * noise**2), dependent.shape)


def _lnmax_costs(counts: Floats, scale: float, orders: Floats) -> _Costs:
    pure = 2 / scale
    plain = np.minimum(orders * pure**2 / 2, pure)  # Papernot et al. 2017, Theorem 2
    gaps = _winner_gaps(counts) / scale
    # Papernot et al. 2017, Lemma 4: the probability of another winner
    q = ((2 + gaps) / (4 * np.exp(gaps))).sum(axis=1)[:, None]
    holds = (q > 0) & (q <= 1 / (math.exp(pure) + 1))
    # Papernot et al. 2017, Theorem 3: the data-dependent moment, where q is small enough
    with np.errstate(all="ignore"):  # undefined values are replaced by the plain cost below
        log_good = np.log1p(-q) + (orders - 1) * (np.log1p(-q) - np.log1p(-math.exp(pure) * q))
        value = np.logaddexp(log_good, np.log(q) + pure * (orders - 1)) / (orders - 1)
    dependent = np.where(holds, np.minimum(plain, np.maximum(value, 0)), plain)
    return dependent, np.broadcast_to(plain, dependent.shape)


@dataclass(frozen=True)
class SanitizedCost:
    """Data-dependent cost of votes, in a form that may be published.

    Attributes
    ----------
    order : float
        The Renyi order.
    renyi : float
        The published cost, without the cost of publishing it.
    release : Event
        The cost of publishing it.
    alpha : float
        Probability, before the noise is drawn, that ``renyi`` is below the true cost.
    proved : bool
        False if the noise was seeded.
    """

    order: float
    renyi: float
    release: Event
    alpha: float
    proved: bool = True

    def epsilon(self, delta: float) -> float:
        """Return epsilon at ``delta`` of the votes and this release together."""
        if check_delta(delta) == 0:
            raise ValueError(
                "delta=0 must be above 0: a Renyi cost gives no pure guarantee. Pass a delta > 0."
            )
        total = self.renyi + float(rdp(self.release, [self.order])[0])
        return max(float(_convert_to_epsilons(total, self.order, delta)), 0.0)

    def __repr__(self) -> str:
        kind = "sanitised" if self.proved else "estimate"
        return (
            f"Renyi cost {self.renyi:.4g} at order {self.order:g} for this data set, "
            f"confidence {1 - self.alpha:g}, {kind}"
        )


def sanitized_cost(
    event: Event,
    order: float,
    *,
    noise_multiplier: float = 5.0,
    alpha: float = 0.01,
    budget: PrivacyBudget | None = None,
    relation: str = "add_remove",
    noise_seed: int | None = None,
) -> SanitizedCost:
    """Publish the data-dependent Renyi cost of votes with noise of smooth sensitivity.

    Parameters
    ----------
    event : Event
        Votes and threshold tests with their true counts, and any data-independent events.
    order : float
        Above 1, chosen without looking at the votes. If the teachers mostly agree, 5 to 10 is good
        for hundreds of queries and delta = 1e-5.
    noise_multiplier : float, default=5.0
        Noise of the release, in units of the smooth sensitivity. More noise makes the release
        cheaper and the published number larger.
    alpha : float, default=0.01
        Probability, in (0, 0.5), that the published number is below the true cost.
    budget : PrivacyBudget, default=None
        Charged for the release before the votes are read. Charge the votes themselves by their
        data-independent events: a budget accepts no data-dependent cost.
    relation : str, default="add_remove"
        Neighbouring relation under which the release is charged.
    noise_seed : int, default=None
        Makes the noise reproducible **and the guarantee void**. For tests only.

    Returns
    -------
    SanitizedCost
        Its ``epsilon(delta)`` includes the cost of the release itself.

    Notes
    -----
    **Guarantees.** The published number is private, at the cost ``release``. With probability 1 -
    ``alpha`` it bounds a Renyi divergence of this order: between the releases for this data set and
    for any of its neighbours. The bound is about *this* data set. It is not differential privacy,
    which is about all data sets, and is never added to a budget.

    **Edge cases.** The published number never exceeds the data-independent cost. Nothing is gained
    if the votes were close, the order is far above the noise of the votes, or there are few
    teachers.

    References
    ----------
    Papernot et al. (2018), "Scalable private learning with PATE", appendix B.

    Examples
    --------
    >>> from skprivacy.accounting import GNMaxEvent, RepeatedEvent
    >>> from skprivacy.ensemble import sanitized_cost
    >>> votes = RepeatedEvent(GNMaxEvent(40.0, votes=(220, 20, 10)), 1000)
    >>> published = sanitized_cost(votes, order=6.0)
    >>> published.epsilon(1e-5) < 5.8  # data-independently at this order, and 4.98 at the best one
    True
    """
    order = check_order(order)
    if not (is_number(alpha) and 0 < alpha < 0.5):
        raise ValueError(f"alpha={alpha!r} must lie in (0, 0.5), for example 0.01.")
    positive("noise_multiplier", noise_multiplier)
    lift = noise_multiplier * -float(ndtri(alpha))
    random = SecureRandom(noise_seed)
    plain = [RepeatedEvent(_remove_votes(e), n) for e, n in flatten(event).items()]
    upper = float(rdp(ComposedEvent(tuple(plain)), [order])[0])
    smoothness = 0.25 / order  # below 0.5 / order the cost of the release is finite
    mechanism = SmoothGaussian(noise_multiplier, smoothness, lift, upper=upper)
    with private_release(
        mechanism.event, relation=relation, at_delta=0.0, source="sanitized_cost", budget=budget,
        noise_seed=noise_seed, arithmetic=mechanism.arithmetic,
    ) as privacy:  # fmt: skip
        value = smoothed_cost(event, order, smoothness)
        published = mechanism.release(value, random)
    proved = privacy.kind == "proved"
    return SanitizedCost(float(order), published, mechanism.event, alpha, proved)


def _remove_votes(event: Event) -> Event:
    """Return the event without the votes' counts."""
    if not event.data_dependent:
        return event
    if not isinstance(event, GNMaxEvent | VoteThresholdEvent):
        raise TypeError(
            f"event={event!r} has no known smooth sensitivity; expected GNMaxEvent, "
            "VoteThresholdEvent and data-independent events. Account for the data-independent cost."
        )
    return type(event)(event.noise_multiplier)
