"""Filters against the worst of all adversaries, found by dynamic programming."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import norm

from skprivacy.accounting import (
    ApproxDPEvent,
    ComposedEvent,
    GaussianEvent,
    LaplaceEvent,
    RepeatedEvent,
)
from skprivacy.accounting.budget.filters import Account, Cost

UNIT = 0.2  # of which the losses of randomised response are multiples
NOISE = 3.0
HIGH, LOW = norm.sf(1.0, 0.5 / NOISE), norm.cdf(-1.0, 0.5 / NOISE)


def answers(event):
    """Return probabilities and losses of what is answered: of all mechanisms, the worst.

    An (epsilon, delta)-DP mechanism fails outright (infinite loss) or is randomised response.
    Gaussian noise is reported as low, middle or high. A loss is (a, b), for a UNIT + b ln(HIGH /
    LOW).
    """
    if isinstance(event, GaussianEvent):
        return [(HIGH, (0, 1)), (LOW, (0, -1)), (1 - HIGH - LOW, (0, 0))]
    up = (1 - event.delta) / (1 + math.exp(-event.epsilon))
    steps = round(event.epsilon / UNIT)
    return [(event.delta, None), (up, (steps, 0)), (1 - event.delta - up, (-steps, 0))]


def key(account):
    """Return all that a filter sees."""
    if isinstance(account, Either):
        return tuple(key(a) for a in account.accounts)
    counts = (frozenset(c.items()) for c in (account.added, account.counts))
    return account.filter, account.first, account.opened, *counts


def worst_case(account, epsilon, events):
    """Return the largest delta at ``epsilon`` that an adversary reaches, and how many states.

    E[(1 - e^(epsilon - L))_+] is maximised over what to ask next, or to stop.
    """
    found = {}
    told = [(event, answers(event)) for event in events]

    def best(account, loss):
        state = (key(account), loss)
        if state not in found:
            total = loss[0] * UNIT + loss[1] * math.log(HIGH / LOW)
            values = [max(0.0, -math.expm1(epsilon - total))]
            for event, outcomes in told:
                more = account.with_charge(event)
                if more.is_admitted():
                    values.append(sum(p * go_on(more, loss, step) for p, step in outcomes))
            found[state] = max(values)
        return found[state]

    def go_on(account, loss, step):
        return 1.0 if step is None else best(account, (loss[0] + step[0], loss[1] + step[1]))

    return best(account, (0, 0)), len(found)


@dataclass
class Either:
    """Admits what any of its filters does, each of them with all of delta."""

    accounts: tuple

    def with_charge(self, event):
        return Either(tuple(a.with_charge(event) for a in self.accounts))

    def is_admitted(self):
        return any(a.is_admitted() for a in self.accounts)


def account_of(name, epsilon, delta):
    return Account(Cost(epsilon, delta), name, "add_remove")


SMALL, FAILING = ApproxDPEvent(UNIT), ApproxDPEvent(0.0, 0.01)
GAMES = {
    "pure": (2.0, (SMALL, ApproxDPEvent(3 * UNIT))),
    "failing": (1.0, (SMALL, ApproxDPEvent(UNIT, 0.004), ApproxDPEvent(2 * UNIT, 0.02))),
    "gaussian": (1.0, (SMALL, GaussianEvent(NOISE))),
    "mixed": (0.8, (ApproxDPEvent(2 * UNIT), FAILING, GaussianEvent(NOISE))),
}
VALID = ("adaptive", "renyi", "basic")


@pytest.mark.heavy
@pytest.mark.parametrize("delta", [0.003, 0.03, 0.1])
@pytest.mark.parametrize("name", VALID)
@pytest.mark.parametrize("game", GAMES)
def test_no_adversary_passes_the_cap(game, name, delta):
    epsilon, events = GAMES[game]
    reached, states = worst_case(account_of(name, epsilon, delta), epsilon, events)
    assert reached <= delta * (1 + 1e-9)
    assert states > 5


@pytest.mark.everyday(8)
@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(40))
def test_no_adversary_passes_the_cap_of_any_game(seed):
    random = np.random.RandomState(seed)
    epsilon, delta = UNIT * random.randint(2, 10), 10 ** random.uniform(-3, -1)
    events = {GaussianEvent(NOISE), ApproxDPEvent(0.0, delta)}
    for _ in range(2):
        failure = random.choice([0.0, delta / random.randint(1, 6)])
        events.add(ApproxDPEvent(UNIT * random.randint(1, 5), failure))
    for name in VALID:
        reached, _ = worst_case(account_of(name, epsilon, delta), epsilon, tuple(events))
        assert reached <= delta * (1 + 1e-9)


def test_an_adversary_spends_all_that_a_cap_allows():
    """So that the games are as hard as they can be."""
    for name in ("adaptive", "basic"):
        assert worst_case(account_of(name, 1.0, 0.02), 1.0, (SMALL, FAILING))[0] > 0.0198


@pytest.mark.heavy
def test_an_adversary_passes_the_cap_of_the_filter_for_settled_events():
    """That filter is proved for events settled beforehand only, and this is why."""
    account = account_of("pld", 2.0, 0.01)
    assert worst_case(account, 2.0, (SMALL, ApproxDPEvent(3 * UNIT)))[0] > 0.013


@pytest.mark.parametrize("other", ["renyi", "pld"])
def test_an_adversary_passes_the_cap_if_either_of_two_filters_may_admit(other):
    """So that addition cannot be given all of delta on top of a filter that uses it."""
    either = Either((account_of("basic", 1.0, 0.03), account_of(other, 1.0, 0.03)))
    reached, _ = worst_case(either, 1.0, (SMALL, ApproxDPEvent(0.0, 0.03)))
    assert reached > 1.1 * 0.03


def _spent_at_random(random, cap):
    """Yield events, each of them a part of the cap, in any of the ways to write one."""
    while True:
        epsilon = cap.epsilon * random.choice([1e-3, 0.01, 0.1, 0.5]) * random.uniform(0.5, 1)
        delta = cap.delta * random.choice([0.0, 0.01, 0.1, 0.5])
        event = ApproxDPEvent(epsilon, delta) if delta else LaplaceEvent(1 / epsilon)
        many = RepeatedEvent(ApproxDPEvent(epsilon / 5, delta / 5), 5)
        yield [event, many, ComposedEvent((event, many))][random.randint(3)]


@pytest.mark.parametrize("seed", range(40))
def test_the_default_admits_whatever_addition_admits(seed):
    random = np.random.RandomState(seed)
    cap = Cost(10 ** random.uniform(-1, 1), 10 ** random.uniform(-9, -3))
    basic, default = (account_of(name, *cap) for name in ("basic", "adaptive"))
    events, refused = _spent_at_random(random, cap), 0
    while refused < 10:
        event = next(events)
        if not basic.with_charge(event).is_admitted():
            refused += 1
            continue
        basic, default = basic.with_charge(event), default.with_charge(event)
        assert default.is_admitted()
        assert default.cost() == basic.cost()
    assert basic.cost().epsilon > 0.4 * cap.epsilon or basic.cost().delta > 0.4 * cap.delta


@pytest.mark.parametrize("count", range(8))
def test_many_charges_at_once_are_as_many_one_by_one(count):
    """Of which the first are added up, and the rest is composed."""
    start = account_of("adaptive", 1.0, 1e-5).with_charge(ApproxDPEvent(0.4, 2e-6))
    for event in (ApproxDPEvent(0.2, 1e-6), GaussianEvent(60.0)):
        one_by_one = start
        for _ in range(count):
            one_by_one = one_by_one.with_charge(event)
        if count:
            assert key(start.with_charge(event, count)) == key(one_by_one)
            assert start.with_charge(event, count).cost() == one_by_one.cost()
