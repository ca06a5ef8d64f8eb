"""Privacy filters: when must one stop, if each event may depend on the answers so far?"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .events import ApproxDP, Composed, Event, Repeated, flatten
from .guarantee import epsilon_of
from .rdp import DEFAULT_ORDERS, rdp

__all__ = ["FILTERS", "Charges", "admits", "together"]

_ROUNDING = 1 + 1e-12


@dataclass(frozen=True)
class Charges:
    """How often each event was charged, and which was the first of all."""

    counts: Counter[Event]
    first: Event | None


def together(counts: Counter[Event]) -> Event:
    """Return all charges as one event."""
    return Composed(tuple(Repeated(e, n) for e, n in counts.items()))


@lru_cache(maxsize=4096)
def _pure(event: Event, relation: str) -> tuple[float, float]:
    """Return basic (epsilon, delta) of one charge; infinity if it has none of its own."""
    epsilon = failure = 0.0
    for part, n in flatten(event).items():
        if isinstance(part, ApproxDP):
            epsilon, failure = epsilon + n * part.epsilon, failure + n * part.delta
            continue
        try:
            epsilon += n * epsilon_of(part, 0.0, relation)
        except ValueError:
            return math.inf, failure
    return epsilon, failure


@lru_cache(maxsize=4096)
def _renyi(event: Event, order: float, relation: str) -> tuple[float, float]:
    """Return the Renyi cost of one charge, and the probability with which it fails outright."""
    cost = failure = 0.0
    for part, n in flatten(event).items():
        safe = part
        if isinstance(part, ApproxDP):
            safe, failure = ApproxDP(part.epsilon), failure + n * part.delta
        cost += n * float(rdp(safe, [order], relation)[0])
    return cost, failure


# Orders, relative to the one that lets most Gaussian noise pass, and their shares of delta. Large
# losses that are rare, as of sampling with little noise, need lower orders than Gaussian noise.
_ORDERS = ((1.0, 0.55), (0.75, 0.15), (0.55, 0.15), (0.4, 0.15))


@lru_cache(maxsize=64)
def renyi_orders(epsilon: float, delta: float) -> tuple[tuple[float, float], ...]:
    """Return the orders, which the cap alone decides, and how much may be spent at each.

    With the cost spent at order a within its allowance, (1 - e^(epsilon - L))_+ is at most
    w delta M, where w is the order's share and M a supermartingale that starts at 1. Which order
    still has room may depend on the answers: summed over the orders, the mean is at most delta.
    """
    log_delta = math.log(delta)

    def allowance(a, share):
        return epsilon - np.log1p(-1 / a) + (np.log(a) + log_delta + math.log(share)) / (a - 1)

    best = DEFAULT_ORDERS[np.argmax(allowance(DEFAULT_ORDERS, 1.0) / DEFAULT_ORDERS)]
    chosen = [(float(best * scale), share) for scale, share in _ORDERS if best * scale > 1]
    return tuple((a, float(allowance(a, share))) for a, share in chosen)


def _sum(counts: Counter[Event], cost, *args) -> tuple[float, float]:
    each = [(n, cost(e, *args)) for e, n in counts.items()]
    return math.fsum(n * c[0] for n, c in each), math.fsum(n * c[1] for n, c in each)


def _within_orders(counts, epsilon, delta, failing, relation) -> bool:
    """Tell whether some order has room, and outright failures add up to ``failing`` at most."""
    for order, allowance in renyi_orders(epsilon, delta):
        cost, failure = _sum(counts, _renyi, order, relation)
        if cost <= allowance * _ROUNDING and failure <= failing * _ROUNDING:
            return True
    return False


def _within_plan(charges, epsilon, delta, relation) -> bool:
    """Tell whether all charges are parts of as many repetitions of the first as fit the cap.

    How many fit is settled with the first charge, before anything was seen. Draw the losses of all
    of them beforehand: a part of them, taken in any order and as answers suggest, tells no more.
    """
    parts = flatten(charges.first)
    unit = math.gcd(*parts.values())
    used: Counter[Event] = Counter()
    for event, n in charges.counts.items():
        for part, m in flatten(event).items():
            used[part] += n * m
    if not parts or any(part not in parts for part in used):
        return False
    times = max(-(-n * unit // parts[part]) for part, n in used.items()) if used else 0
    plan = Composed(tuple(Repeated(part, times * (n // unit)) for part, n in parts.items()))
    return epsilon_of(plan, delta, relation) <= epsilon


def _basic(charges, epsilon, delta, relation) -> bool:
    total, failure = _sum(charges.counts, _pure, relation)
    return total <= epsilon * _ROUNDING and failure <= delta * _ROUNDING


def _free(charges, epsilon, delta, relation) -> bool:
    """Admit what takes no share of delta from the other rules.

    Pure charges that add up to epsilon contribute nothing to delta. The first charge is chosen
    before anything was seen: if it passes only by itself, nothing else will ever pass.
    """
    total, failure = _sum(charges.counts, _pure, relation)
    if failure == 0 and total <= epsilon * _ROUNDING:
        return True
    alone = delta > 0 and sum(charges.counts.values()) == 1
    return alone and epsilon_of(together(charges.counts), delta, relation) <= epsilon


def _adaptive_filter(charges, epsilon, delta, relation) -> bool:
    """Give 0.4 of delta to repetitions of the first event, 0.5 to Renyi orders, 0.1 to failures."""
    if _free(charges, epsilon, delta, relation):
        return True
    return delta > 0 and (
        _within_orders(charges.counts, epsilon, 0.5 * delta, 0.1 * delta, relation)
        or _within_plan(charges, epsilon, 0.4 * delta, relation)
    )


def _renyi_filter(charges, epsilon, delta, relation) -> bool:
    """Give 0.9 of delta to Renyi orders and 0.1 to outright failures."""
    if _free(charges, epsilon, delta, relation):
        return True
    return delta > 0 and _within_orders(charges.counts, epsilon, 0.9 * delta, 0.1 * delta, relation)


def _pld_filter(charges, epsilon, delta, relation) -> bool:
    if delta == 0:
        return _basic(charges, epsilon, delta, relation)
    return epsilon_of(together(charges.counts), delta, relation) <= epsilon * (1 + 1e-9)


FILTERS = {
    "adaptive": _adaptive_filter,
    "renyi": _renyi_filter,
    "pld": _pld_filter,
    "basic": _basic,
}


def admits(name: str, charges: Charges, epsilon: float, delta: float, relation: str) -> bool:
    """Return whether all charges together stay within (epsilon, delta)."""
    return not charges.counts or bool(FILTERS[name](charges, epsilon, delta, relation))
