"""Renyi accounting: conversion of Renyi differential privacy to (epsilon, delta)."""

from __future__ import annotations

import math
import warnings
from functools import lru_cache

import numpy as np

from ..exceptions import PrivacyWarning
from ._checks import check_relation, not_negative, number
from ._event import Event, Orders, check_event, flatten
from ._renyi import DEFAULT_ORDERS, rdp
from ._work import check_work
from .events import ApproxDP, Composed, Repeated

__all__ = ["DEFAULT_ORDERS", "rdp", "rdp_delta", "rdp_epsilon"]


def _convert_to_epsilons(values: Orders, orders: Orders, delta: float) -> Orders:
    # Canonne, Kamath and Steinke 2020, Proposition 12
    epsilon = values + np.log1p(-1 / orders) - (np.log(orders) + math.log(delta)) / (orders - 1)
    return np.where(np.isnan(epsilon), np.inf, np.maximum(epsilon, 0))


def _split_off_failure(event: Event) -> tuple[Event, float]:
    """Split off the probability that an (epsilon, delta) event reveals everything."""
    counts = flatten(event)
    log_safe = sum(n * math.log1p(-e.delta) for e, n in counts.items() if isinstance(e, ApproxDP))
    if log_safe == 0:
        return event, 0.0
    pure = [
        Repeated(ApproxDP(e.epsilon) if isinstance(e, ApproxDP) else e, n)
        for e, n in counts.items()
    ]
    return Composed(tuple(pure)), -math.expm1(log_safe)


def rdp_epsilon(event: Event, delta: float, relation: str = "add_remove") -> float:
    """Return the smallest epsilon that Renyi accounting proves at ``delta``.

    Parameters
    ----------
    event : Event
        What was released.
    delta : float
        In (0, 1).
    relation : {"add_remove", "label", "replace_one", "zero_out"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        Infinity if nothing is proved.

    Warns
    -----
    PrivacyWarning
        If the best order lies at the edge of the grid, in which case a better bound may exist.

    References
    ----------
    C. Canonne, G. Kamath and T. Steinke, "The discrete Gaussian for differential privacy", NeurIPS
    2020, arXiv:2004.00010, Proposition 12.

    Examples
    --------
    >>> from skprivacy.accounting import GaussianEvent, PoissonSampled, Repeated, rdp_epsilon
    >>> round(rdp_epsilon(Repeated(PoissonSampled(0.01, GaussianEvent(4.0)), 10_000), 1e-5), 4)
    1.0354
    """
    check_event("event", event)
    check_relation(relation)
    number("delta", delta, "a number in (0, 1)")
    epsilon, edge = best_epsilon(event, delta, relation)
    if edge is not None:
        warnings.warn(
            f"The best Renyi order, {edge:g}, is at the edge of the grid: epsilon is valid but may "
            "be larger than necessary.",
            PrivacyWarning,
            stacklevel=2,
        )
    return epsilon


@lru_cache(maxsize=512)
def best_epsilon(event: Event, delta: float, relation: str) -> tuple[float, float | None]:
    """Return epsilon, and its order if that lies at the edge of the grid (else None)."""
    check_work(event)
    safe, failure = _split_off_failure(event)
    if delta <= failure:
        return math.inf, None
    # With probability 1 - failure the release costs as much as ``safe``, for the rest of delta.
    delta = (delta - failure) / (1 - failure)
    values = rdp(safe, DEFAULT_ORDERS, relation)
    epsilons = _convert_to_epsilons(values, DEFAULT_ORDERS, delta)
    best = int(epsilons.argmin())
    if not np.isfinite(epsilons[best]):
        return math.inf, None
    if best in (0, len(epsilons) - 1):
        sharp = epsilons[best] == 0 or values[best] == 0
        return float(epsilons[best]), None if sharp else float(DEFAULT_ORDERS[best])
    # Every order gives a valid bound: refine the grid around the best one.
    orders = np.linspace(DEFAULT_ORDERS[best - 1], DEFAULT_ORDERS[best + 1], 17)
    if DEFAULT_ORDERS[best] >= 64:  # integer orders have finite sums, which are faster
        orders = np.unique(orders.round())
    finer = _convert_to_epsilons(rdp(safe, orders, relation), orders, delta)
    return float(min(epsilons[best], finer.min())), None


def rdp_delta(event: Event, epsilon: float, relation: str = "add_remove") -> float:
    """Return the smallest delta that Renyi accounting proves at ``epsilon``.

    Parameters
    ----------
    event : Event
        What was released.
    epsilon : float
        In nats, at least 0.
    relation : {"add_remove", "label", "replace_one", "zero_out"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        In [0, 1].
    """
    not_negative("epsilon", epsilon)
    return float(rdp_deltas(event, np.array([float(epsilon)]), relation)[0])


def rdp_deltas(event: Event, epsilons: Orders, relation: str = "add_remove") -> Orders:
    """Return the smallest delta that Renyi accounting proves at each epsilon."""
    check_work(event)
    safe, failure = _split_off_failure(event)
    values, a = rdp(safe, DEFAULT_ORDERS, relation), DEFAULT_ORDERS
    # Canonne, Kamath and Steinke 2020, Proposition 12, solved for delta
    logs = (a - 1) * (values - epsilons[:, None] + np.log1p(-1 / a)) - np.log(a)
    safely = np.exp(np.minimum(logs.min(axis=1), 0))
    deltas: Orders = np.minimum(failure + (1 - failure) * safely, 1.0)
    return deltas
