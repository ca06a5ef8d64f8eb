"""Whole ledgers, with partitions, against the worst of all adversaries: see test_filters.

The record of interest lies in part 1. What is asked of part 2 tells nothing about it, but moves
the ledger on, and with it what may still be asked of the whole.
"""

import json
import math
from collections import Counter

import pytest

from skprivacy.accounting import ApproxDPEvent, GaussianEvent
from skprivacy.accounting.budget import admission
from skprivacy.accounting.budget.filters import Cost

from .test_filters import HIGH, LOW, NOISE, SMALL, UNIT, answers

PATHS = ("/", "/=1/", "/=2/")
TERMS = {"filter": "adaptive", "relation": "add_remove"}


class Lines:
    """A log of charges in memory, as what decides about admission reads it."""

    def __init__(self, cap, lines):
        self.cap, self.lines = cap, lines
        self.openings = {}

    def scopes(self):
        return {"/": json.dumps(self.cap._asdict())}

    def charges(self, since=0, before=None):
        last = len(self.lines) + 1 if before is None else before
        counts = Counter(self.lines[max(since, 1) - 1 : last - 1])
        return [(path, body, n) for (path, body), n in counts.items()]

    def reserves(self, scope):
        return [(i, *line) for i, line in enumerate(self.lines, 1) if line[0].startswith(scope)]

    def key(self):
        """Return all that admission depends on: the order matters up to the opening only."""
        opening = admission._opening(self, "/", self.cap, TERMS)
        charge = opening.charge if opening else len(self.lines) + 1
        parts = self.lines[: charge - 1], self.lines[charge - 1 :]
        return (opening and opening[1:], *(frozenset(Counter(part).items()) for part in parts))


def worst_case(cap, events):
    """Return the largest delta at the cap's epsilon that is reached for a record in part 1."""
    found, asked = {}, {}
    questions = [
        (path, event, json.dumps(event.to_dict(), sort_keys=True), answers(event))
        for path in PATHS
        for event in events
    ]

    def may_ask(lines, key, path, event):
        question = key, path, event
        if question not in asked:
            refusal = admission.find_refusal(Lines(cap, lines), path, event, TERMS)
            asked[question] = refusal is None
        return asked[question]

    def best(lines, loss):
        key = Lines(cap, lines).key()
        if (key, loss) not in found:
            total = loss[0] * UNIT + loss[1] * math.log(HIGH / LOW)
            values = [max(0.0, -math.expm1(cap.epsilon - total))]
            for path, event, body, outcomes in questions:
                if may_ask(lines, key, path, event):
                    more = (*lines, (path, body))
                    told = [(1.0, (0, 0))] if path == "/=2/" else outcomes
                    values.append(sum(p * go_on(more, loss, step) for p, step in told))
            found[key, loss] = max(values)
        return found[key, loss]

    def go_on(lines, loss, step):
        return 1.0 if step is None else best(lines, (loss[0] + step[0], loss[1] + step[1]))

    return best((), (0, 0)), len(found)


@pytest.mark.heavy
@pytest.mark.parametrize("epsilon", [0.4, 0.6])
@pytest.mark.parametrize("delta", [0.01, 0.03])
@pytest.mark.parametrize("failing", [ApproxDPEvent(0.0, 0.009), ApproxDPEvent(2 * UNIT, 0.005)])
def test_no_adversary_passes_the_cap_by_way_of_another_part(epsilon, delta, failing):
    cap = Cost(epsilon, delta)
    reached, states = worst_case(cap, (SMALL, failing, GaussianEvent(NOISE)))
    assert reached <= delta * (1 + 1e-9)
    assert states > 30
