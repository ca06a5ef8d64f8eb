"""Composition rules for fully adaptive charges: sums, Renyi orders, and a fixed plan.

The three rules hold even if each event, with its parameters, is chosen after seeing all earlier
answers: :func:`sum_epsilons_and_deltas`, :func:`renyi_cost_at_orders` and
:func:`repetitions_epsilon`. Each gives an epsilon at a delta that is reserved for the rule.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..events import ApproxDP, Composed, Event, Repeated, flatten
from ..guarantee import epsilon_of
from ..rdp import DEFAULT_ORDERS, rdp

__all__ = [
    "Cost",
    "Counts",
    "compose_counts",
    "renyi_cost_at_orders",
    "renyi_orders",
    "repetitions_epsilon",
    "spent_epsilon",
    "sum_epsilons_and_deltas",
]

Counts = Counter[Event]

_ROUNDING = 1 + 1e-12


class Cost(NamedTuple):
    """An epsilon at a delta, as a cost or as a cap."""

    epsilon: float
    delta: float

    def is_within(self, cap: Cost) -> bool:
        """Return whether this cost is finite and does not exceed ``cap``."""
        fits = self.epsilon <= cap.epsilon * _ROUNDING and self.delta <= cap.delta * _ROUNDING
        return fits and math.isfinite(self.epsilon)


def compose_counts(counts: Counts) -> Event:
    """Compose all charges into one event."""
    return Composed(tuple(Repeated(e, n) for e, n in counts.items()))


def spent_epsilon(charges: Counts, delta: float, relation: str) -> float:
    """Return epsilon of all charges at ``delta``; infinity if none is finite."""
    try:
        return epsilon_of(compose_counts(charges), delta, relation)
    except ValueError:  # delta = 0 where only delta > 0 is finite
        return math.inf


@lru_cache(maxsize=4096)
def _basic_cost(event: Event, relation: str) -> Cost:
    """Return the epsilon and delta of one charge; epsilon is infinite without such a pair."""
    epsilon = failure = 0.0
    for part, n in flatten(event).items():
        if isinstance(part, ApproxDP):
            epsilon, failure = epsilon + n * part.epsilon, failure + n * part.delta
            continue
        try:
            epsilon += n * epsilon_of(part, 0.0, relation)
        except ValueError:
            return Cost(math.inf, failure)
    return Cost(epsilon, failure)


def sum_epsilons_and_deltas(counts: Counts, relation: str) -> Cost:
    """Return the sums of epsilons and of deltas: basic composition."""
    each = [(n, _basic_cost(event, relation)) for event, n in counts.items()]
    return Cost(
        math.fsum(n * one.epsilon for n, one in each), math.fsum(n * one.delta for n, one in each)
    )


@lru_cache(maxsize=4096)
def _renyi_cost(event: Event, order: float, relation: str) -> tuple[float, float]:
    """Return the Renyi cost of one charge, and its probability of revealing everything."""
    cost = failure = 0.0
    for part, n in flatten(event).items():
        safe = part
        if isinstance(part, ApproxDP):
            safe, failure = ApproxDP(part.epsilon), failure + n * part.delta
        try:
            cost += n * float(rdp(safe, [order], relation)[0])
        except TypeError:  # no Renyi bound is known
            cost = math.inf
    return cost, failure


# Orders, relative to the order that admits most Gaussian releases, and their shares of delta. Rare
# large losses, as under sampling with little noise, need lower orders than Gaussian noise.
_ORDERS = ((1.0, 0.55), (0.75, 0.15), (0.55, 0.15), (0.4, 0.15))


def _conversion(order: NDArray[np.float64] | float, log_delta: float) -> NDArray[np.float64]:
    """Return the term that converts a Renyi cost into an epsilon."""
    # Canonne, Kamath and Steinke 2020, Proposition 12
    order = np.asarray(order)
    epsilon: NDArray[np.float64] = np.log1p(-1 / order) - (np.log(order) + log_delta) / (order - 1)
    return epsilon


@lru_cache(maxsize=256)
def renyi_orders(cap: Cost) -> tuple[tuple[float, float], ...]:
    """Return Renyi orders and their shares of delta, which depend only on the cap."""
    orders = np.asarray(DEFAULT_ORDERS, dtype=float)
    allowance = cap.epsilon - _conversion(orders, math.log(cap.delta))
    best = orders[np.argmax(allowance / orders)]
    return tuple((float(best * scale), share) for scale, share in _ORDERS if best * scale > 1)


def renyi_cost_at_orders(
    counts: Counts, orders: tuple[tuple[float, float], ...], delta: float, relation: str
) -> Cost:
    """Return the smallest epsilon that any of the orders, fixed beforehand, proves at ``delta``.

    The second number is the probability of revealing everything, which ``delta`` does not cover.

    Let L be the loss, c the cost spent at order a, w the order's share and epsilon the value for
    this order. Then (1 - e^(epsilon - L))_+ is at most w delta M, where M = e^((a-1)(L - c)) is a
    supermartingale that starts at 1. Summed over the orders, the mean is at most delta, so the best
    order may depend on the answers (Feldman and Zrnic 2021, arXiv:2008.11193).
    """
    best = failure = math.inf
    for order, share in orders:
        each = [(n, _renyi_cost(event, order, relation)) for event, n in counts.items()]
        cost = math.fsum(n * c[0] for n, c in each)
        failure = math.fsum(n * c[1] for n, c in each)
        # Feldman and Zrnic 2021: epsilon of this order, at its share of delta
        best = min(best, cost + float(_conversion(order, math.log(delta * share))))
    return Cost(max(best, 0.0), failure)


def repetitions_epsilon(counts: Counts, first: Event, delta: float, relation: str) -> float:
    """Return epsilon of the fewest repetitions of ``first`` that contain all charges.

    The first charge fixes how many repetitions fit a cap, before any answer is seen. Suppose all of
    their losses are drawn beforehand. To release only some of them, in any order and depending on
    the answers, reveals no more. The result is infinite if a charge has a part that ``first``
    lacks.
    """
    parts = flatten(first)
    used: Counts = Counter()
    for event, n in counts.items():
        for part, m in flatten(event).items():
            used[part] += n * m
    if not parts or any(part not in parts for part in used):
        return math.inf
    unit = math.gcd(*parts.values())
    times = max((-(-n * unit // parts[part]) for part, n in used.items()), default=0)
    plan = Composed(tuple(Repeated(part, times * (n // unit)) for part, n in parts.items()))
    return epsilon_of(plan, delta, relation)
