"""Filters against the worst of all adversaries, found by dynamic programming."""

import math
from collections import Counter
from functools import cache

import pytest

from skprivacy.accounting import ApproxDP
from skprivacy.accounting._filters import Charges, admits

EPSILON = 2.0
UNIT = 0.2  # of which all losses are multiples
STEPS = (1, 3)
EVENTS = tuple(ApproxDP(UNIT * k) for k in STEPS)


def worst_case(name, delta):
    """Return the largest delta at EPSILON that an adversary reaches who chooses as he goes on.

    Randomised response is the worst that a pure epsilon allows, so that loss and counts are all
    that matters: E[(1 - e^(EPSILON - L))_+] is maximised over what to ask next, or to stop.
    """

    @cache
    def admitted(counts, first):
        charges = Counter({e: n for e, n in zip(EVENTS, counts, strict=True) if n})
        return admits(name, Charges(charges, EVENTS[first]), EPSILON, delta, "add_remove")

    @cache
    def best(counts, first, loss):
        value = max(0.0, -math.expm1(EPSILON - loss * UNIT))
        for i, (event, step) in enumerate(zip(EVENTS, STEPS, strict=True)):
            more = tuple(n + (j == i) for j, n in enumerate(counts))
            start = i if first is None else first
            if admitted(more, start):
                up = 1 / (1 + math.exp(-event.epsilon))
                value = max(
                    value,
                    up * best(more, start, loss + step) + (1 - up) * best(more, start, loss - step),
                )
        return value

    return best((0, 0), None, 0), best.cache_info().currsize


@pytest.mark.parametrize("delta", [0.003, 0.03, 0.1])
@pytest.mark.parametrize("name", ["adaptive", "renyi"])
def test_no_adversary_passes_the_cap(name, delta):
    reached, states = worst_case(name, delta)
    assert reached <= delta * (1 + 1e-9)
    assert states > 200


def test_an_adversary_passes_the_cap_of_the_filter_for_settled_events():
    """That filter is proved for events settled beforehand only, and this is why."""
    assert worst_case("pld", 0.01)[0] > 0.013
