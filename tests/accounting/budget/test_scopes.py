"""Scopes and partitions: what is charged where, and which caps hold."""

import itertools
import json
import pickle
from contextlib import suppress

import numpy as np
import pytest

from skprivacy.accounting import (
    ApproxDPEvent,
    ComposedEvent,
    GaussianEvent,
    LaplaceEvent,
    LedgerError,
    PrivacyBudget,
)
from skprivacy.accounting.pld.distribution import pld
from skprivacy.exceptions import BudgetExceededError

from .budgets import Charged, X, Y, lies_in, parts_of, scopes_in


def charge_at_random(budget, depth, kinds, n, seed, after=lambda: None):
    """Reserve events in scopes, both drawn at random; return those that were admitted."""
    random, places, charged = np.random.RandomState(seed), scopes_in(budget, depth), []
    for _ in range(n):
        place, event = places[random.randint(len(places))], kinds[random.randint(len(kinds))]
        with suppress(BudgetExceededError):
            place.reserve(event)
            charged.append((place._scope, event))
        after()
    return charged


def of_each_record(charged):
    """Yield the events that are charged of a record, for each way in which it can lie in parts."""
    divided = sorted({s[: s.rindex("/", 0, i) + 1] for s, _ in charged for i in parts_of(s)})
    for parts in itertools.product("12", repeat=len(divided)):
        mine = dict(zip(divided, parts, strict=True))
        yield [event for scope, event in charged if lies_in(scope, mine)]


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(3))
def test_default_admits_all_that_addition_admits_in_any_scope(seed, tmp_path):
    random = np.random.RandomState(seed)
    basic, default = (
        PrivacyBudget(1.0, 1e-5, tmp_path / name, filter=name) for name in ("basic", "adaptive")
    )
    for budget in (basic, default):
        budget.scope("a", 0.7, 6e-6)
    places = [place._scope for place in scopes_in(basic, 2)]
    for _ in range(60):
        place = places[random.randint(len(places))]
        event = ApproxDPEvent(0.05 * random.randint(1, 8), 1e-6 * random.randint(3))
        try:
            PrivacyBudget.open(basic.path, place).reserve(event)
        except BudgetExceededError:
            continue
        PrivacyBudget.open(default.path, place).reserve(event)
    assert len(default.entries()) == len(basic.entries()) > 10


def test_one_opening_serves_all_partitions():
    """A record is charged in its own part and in the whole; both must count it alike."""
    budget = PrivacyBudget(epsilon=2.0, delta=1e-5)
    budget.partition("ann").reserve(ApproxDPEvent(0.5, 1e-6))
    budget.partition("bob").reserve(GaussianEvent(20.0))  # opens; for ann 1.5 is left, for bob 2
    left = [budget.partition(name).remaining(GaussianEvent(20.0)) for name in ("ann", "bob", "new")]
    assert 0 < left[0] < left[1] == left[2] - 1
    assert budget.remaining(GaussianEvent(20.0)) == left[0] - 1  # ann's epsilon and bob's noise
    assert budget.partition("new").remaining(LaplaceEvent(2.0)) == 4
    budget.verify()


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(3))
def test_no_record_spends_more_than_its_cap_by_the_default(seed):
    """Against the tight composition of what each record was charged, wherever it lies."""
    budget = PrivacyBudget(1.0, 1e-5)
    kinds = (ApproxDPEvent(0.1), ApproxDPEvent(0.2, 1e-6), GaussianEvent(20.0), GaussianEvent(35.0))
    charged = charge_at_random(budget, 1, kinds, 60, seed)
    spent = [pld(ComposedEvent(tuple(events))).epsilon(1e-5) for events in of_each_record(charged)]
    assert 0.4 < max(spent) <= 1.0 + 1e-9


def test_scopes_nest(budget):
    adult = budget.scope("adult", epsilon=0.5)
    sweep = adult.scope("sweep")
    sweep.reserve(LaplaceEvent(2.5))
    with pytest.raises(BudgetExceededError, match="'/adult/'"):
        sweep.reserve(LaplaceEvent(2.5))
    other = budget.scope("texas")
    other.reserve(LaplaceEvent(2.0))
    with pytest.raises(BudgetExceededError, match="scope '/'"):
        other.reserve(LaplaceEvent(5.0))
    assert budget.spent() == pytest.approx(0.9)
    assert adult.spent() == sweep.spent() == pytest.approx(0.4)
    assert adult.cap == (0.5, 0.0)
    assert sweep.cap is None
    assert list(budget.entries()["scope"]) == ["/adult/sweep/", "/texas/"]
    with pytest.raises(ValueError, match="already has the cap"):
        budget.scope("adult", epsilon=0.6)
    assert pickle.loads(pickle.dumps(sweep)).spent() == pytest.approx(0.4)


@pytest.mark.parametrize("name", ["adult", "/adult", "adult/", "/adult/"])
def test_a_scope_opened_by_name_is_under_every_cap_on_its_path(ledger, name, budget):
    budget.scope("adult", epsilon=0.5)
    opened = PrivacyBudget.open(ledger, scope=name)
    with pytest.raises(BudgetExceededError, match="'/adult/'"):
        Charged(scale=1.9, budget=opened).fit(X, Y)
    with pytest.raises(BudgetExceededError, match="scope '/'"):
        Charged(scale=0.02, budget=PrivacyBudget.open(ledger, scope="a/")).fit(X, Y)
    Charged(scale=2.5, budget=opened).fit(X, Y)
    assert budget.spent() == budget.scope("adult").spent() == pytest.approx(0.4)
    assert list(budget.entries()["scope"]) == ["/adult/"]
    budget.verify()


@pytest.mark.parametrize("name", ["", "//", "a//b", "/a//", "///", "=", "a/=/b", "/="])
def test_malformed_scope_is_refused(ledger, name):
    PrivacyBudget(epsilon=1.0, path=ledger)
    with pytest.raises(ValueError, match="non-empty names of scopes"):
        PrivacyBudget.open(ledger, scope=name)


def test_a_partition_opened_by_name_is_one(ledger, budget):
    PrivacyBudget.open(ledger, "=ann").reserve(LaplaceEvent(2.0))
    assert budget.partition("ann").remaining(LaplaceEvent(2.0)) == 1
    assert PrivacyBudget.open(ledger, "/=bob").remaining(LaplaceEvent(2.0)) == 2
    other = ledger.with_name("replaced.ledger")
    PrivacyBudget(epsilon=1.0, path=other, relation="replace_one")
    with pytest.raises(ValueError, match="no parallel composition"):
        PrivacyBudget.open(other, "=ann")


@pytest.mark.parametrize("scope", ["a/", "", "//", "/a"])
def test_a_charge_outside_every_cap_is_found(budget, scope):
    """The line is sound, its scope is not."""
    body = json.dumps(LaplaceEvent(0.02).to_dict(), sort_keys=True)
    with budget._ledger.transaction() as log:
        log.append("reserve", scope, "", body)
    with pytest.raises(LedgerError, match=f"names the scope {scope!r}, which no cap covers"):
        budget.verify()
    with pytest.raises(LedgerError, match=r"holds a charge to .*, which no cap covers"):
        budget.reserve(LaplaceEvent(10.0))


def test_a_cap_that_comes_late_must_hold_what_was_charged(budget):
    scope = budget.scope("adult")
    scope.scope("sweep").reserve(LaplaceEvent(2.5))
    with pytest.raises(ValueError, match=r"epsilon=0\.3.*'/adult/'.*spent epsilon=0\.4") as error:
        budget.scope("adult", epsilon=0.3)
    assert "at least" in str(error.value)
    assert scope.cap is None
    budget.verify()  # what was refused left no trace
    assert budget.scope("adult", epsilon=0.4).remaining(LaplaceEvent(1000.0)) == 0
    budget.verify()
    for part in "12":
        budget.scope("texas").partition(part).reserve(LaplaceEvent(5.0))
    with pytest.raises(ValueError, match="'/texas/'"):
        budget.scope("texas", epsilon=0.1)
    budget.scope("texas", epsilon=0.2)  # the parts cost what the dearest of them costs
    with pytest.raises(BudgetExceededError, match="'/texas/'"):
        budget.scope("texas").partition("1").reserve(LaplaceEvent(50.0))
    budget.verify()


def test_a_late_cap_is_checked_by_the_filter_that_keeps_it():
    budget = PrivacyBudget(epsilon=9.0, delta=1e-5, filter="basic")
    for _ in range(3):
        budget.scope("a").reserve(ApproxDPEvent(0.5, 1e-6))
    with pytest.raises(ValueError, match="basic"):
        budget.scope("a", epsilon=2.0, delta=2e-6)  # the epsilons fit, the deltas do not
    budget.scope("a", epsilon=1.5, delta=3e-6)
    budget.verify()


def test_partitions_compose_in_parallel(budget):
    for user in ("ann", "bob", "eve"):
        for _ in range(3):
            budget.partition(user).reserve(LaplaceEvent(5.0))
    assert budget.spent() == pytest.approx(0.6)
    assert budget.partition("ann").remaining(LaplaceEvent(5.0)) == 2
    assert budget.partition("new").remaining(LaplaceEvent(5.0)) == 5
    assert budget.remaining(LaplaceEvent(5.0)) == 2  # on everybody's data: the dearest part counts
    budget.reserve(LaplaceEvent(2.5))
    assert budget.partition("new").remaining(LaplaceEvent(5.0)) == 3
    assert budget.partition("ann").remaining(LaplaceEvent(5.0)) == 0
    with pytest.raises(BudgetExceededError):
        budget.partition("ann").reserve(LaplaceEvent(5.0))
    budget.partition("new").reserve(LaplaceEvent(5.0))
    budget.verify()


@pytest.mark.parametrize(("first", "second"), [("s", "t"), ("t", "s"), ("s", "longer")])
def test_parts_of_two_scopes_may_hold_the_same_record(first, second, budget):
    budget.scope(first).partition("1").reserve(ApproxDPEvent(0.6))
    with pytest.raises(BudgetExceededError):
        budget.scope(second).partition("2").reserve(ApproxDPEvent(0.6))


@pytest.mark.parametrize("seed", range(4))
def test_no_record_is_charged_beyond_the_cap_wherever_it_lies(seed):
    """Against every way in which a record can lie in one part of each division."""
    kinds = [ApproxDPEvent(0.1 * tenths) for tenths in (1, 2, 3, 4)]
    charged = charge_at_random(PrivacyBudget(1.0, filter="basic"), 2, kinds, 40, seed)
    spent = [sum(event.epsilon for event in events) for events in of_each_record(charged)]
    assert 0.7 < max(spent) <= 1.0 + 1e-9


@pytest.mark.parametrize("relation", ["replace_one", "label"])
def test_partitions_need_a_relation_that_keeps_parts(relation):
    with pytest.raises(ValueError, match="no parallel composition: a changed record"):
        PrivacyBudget(epsilon=1.0, relation=relation).partition("ann")
    part = PrivacyBudget(epsilon=1.0).partition("ward A")
    with pytest.raises(ValueError, match="no parallel composition"):
        part.reserve(LaplaceEvent(10.0), relation=relation)


def test_parts_that_cost_different_things_are_no_overdraft():
    """No record is in two parts: sums over the dearest of each kind would call this 1.1 and 1.4."""
    budget = PrivacyBudget(epsilon=1.0)
    budget.partition("north").reserve(ApproxDPEvent(0.6))
    budget.partition("south").reserve(ApproxDPEvent(0.5))
    budget.verify()
    budget = PrivacyBudget(epsilon=1.0)
    budget.scope("texas").reserve(ApproxDPEvent(0.3))
    budget.scope("adult").partition("1").reserve(ApproxDPEvent(0.6))
    budget.scope("adult").partition("2").reserve(ApproxDPEvent(0.5))
    budget.verify()
    body = json.dumps(ApproxDPEvent(0.2).to_dict(), sort_keys=True)
    with budget._ledger.transaction() as log:
        log.append("reserve", "/adult/=1/", "", body)
    with pytest.raises(LedgerError, match="exceed its cap"):
        budget.verify()


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("name", ["adaptive", "renyi", "pld", "basic"])
def test_admitted_charges_pass_verify(name):
    budget = PrivacyBudget(1.0, 1e-5, filter=name)
    kinds = [ApproxDPEvent(0.1), ApproxDPEvent(0.2, 1e-6), LaplaceEvent(4.0), ApproxDPEvent(0.3)]
    kinds += [] if name == "basic" else [GaussianEvent(20.0), GaussianEvent(35.0)]
    charge_at_random(budget, 1, kinds, 50, 7, after=budget.verify)
