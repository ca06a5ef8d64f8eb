"""Admission of charges: which and how many a budget admits, and the text of a refusal."""

import math
import pickle
from collections import Counter

import numpy as np
import pytest

from skprivacy.accounting import (
    ApproxDPEvent,
    ComposedEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledEvent,
    PrivacyBudget,
    RepeatedEvent,
)
from skprivacy.accounting.budget.filters import Cost, renyi_cost_at_orders, renyi_orders
from skprivacy.accounting.events import NonPrivateEvent
from skprivacy.accounting.pld.distribution import pld
from skprivacy.exceptions import BudgetExceededError

from .budgets import sgd


def test_budget_composes_events_not_epsilons():
    event = sgd(0.5)
    budget = PrivacyBudget(epsilon=1.5, delta=1e-5)
    fits = budget.remaining(event)
    assert fits > 5  # basic composition would allow three
    for _ in range(fits):
        budget.charge(event)
    assert budget.remaining(event) == 0
    assert budget.spent() <= 1.5
    pld_fits = PrivacyBudget(epsilon=1.5, delta=1e-5, filter="pld").remaining(event)
    assert pld_fits >= fits
    basic = PrivacyBudget(epsilon=1.5, delta=1e-5, filter="basic")
    assert basic.remaining(ApproxDPEvent(0.5, 1e-6)) == 3


def test_one_fit_may_have_it_all_and_nothing_follows():
    budget = PrivacyBudget(epsilon=1.0, delta=1e-6)
    event = sgd(1.0)
    assert budget.remaining(event) == 1
    budget.charge(event)
    assert budget.remaining(GaussianEvent(1000.0)) == 0


@pytest.mark.heavy
def test_the_filters_stay_within_the_cap_for_repetitions():
    """They never admit more than the tight composition allows."""
    for epsilon, delta in [(0.3, 1e-6), (3.0, 1e-5), (10.0, 1e-8)]:
        orders = renyi_orders(Cost(epsilon, delta))
        assert all(order > 1 for order, _ in orders)
        assert sum(share for _, share in orders) <= 1 + 1e-12
        for event in (
            GaussianEvent(4.0),
            sgd(0.2),
            LaplaceEvent(8.0),
            ApproxDPEvent(0.05, delta / 1e4),
        ):
            for name in ("adaptive", "renyi"):
                n = PrivacyBudget(epsilon=epsilon, delta=delta, filter=name).remaining(event)
                assert n > 0 or pld(event).epsilon(delta) > epsilon / 2
                if n:
                    assert pld(RepeatedEvent(event, n)).epsilon(delta) <= epsilon * (1 + 1e-3)


@pytest.mark.parametrize("cost", [0.01, 0.5, 3.0])
def test_an_order_bounds_the_failure_of_the_guarantee_whatever_the_loss(cost):
    """Against the definition: (1 - e^(epsilon - L))_+ <= delta e^((a-1)(L - cost)) for all L."""
    noise = 3.0
    for order in (1.3, 4.0, 40.0):
        count = round(cost * 2 * noise**2 / order) or 1
        spent = count * order / (2 * noise**2)
        counts, delta = Counter({GaussianEvent(noise): count}), 1e-5
        epsilon = renyi_cost_at_orders(counts, ((order, 1.0),), delta, "add_remove").epsilon
        loss = epsilon + np.geomspace(1e-6, 50, 20_000)
        ratio = np.log(-np.expm1(epsilon - loss)) - (order - 1) * (loss - spent)
        assert ratio.max() == pytest.approx(math.log(delta), abs=1e-3) or epsilon == 0
        assert ratio.max() <= math.log(delta) + 1e-9


def test_outright_failure_has_a_share_of_delta():
    budget = PrivacyBudget(epsilon=3.0, delta=1e-5, filter="renyi")
    assert budget.remaining(ApproxDPEvent(1e-4, 2e-6)) == 1  # one charge may have it all
    assert budget.remaining(ApproxDPEvent(1e-4, 1e-7)) == 10  # a tenth of delta is theirs
    budget = PrivacyBudget(epsilon=3.0, delta=1e-5)
    budget.reserve(GaussianEvent(100.0))
    assert budget.remaining(ApproxDPEvent(1e-4, 1e-7)) == 10


def test_plain_addition_is_never_refused():
    budget = PrivacyBudget(epsilon=1.0, delta=1e-5)
    budget.reserve(LaplaceEvent(2.0))
    budget.reserve(ApproxDPEvent(0.3, 1e-7))
    assert budget.remaining(ApproxDPEvent(0.1, 1e-6)) == 2
    assert PrivacyBudget(epsilon=1.0, delta=1e-5).remaining(ApproxDPEvent(0.1, 1e-6)) == 10
    budget.verify()


@pytest.mark.heavy
def test_charges_beyond_the_sums_compose_within_the_remaining_cap():
    budget = PrivacyBudget(epsilon=3.0, delta=1e-5)
    scope = budget.scope("sgd", epsilon=2.5, delta=9e-6)
    budget.reserve(ApproxDPEvent(0.5, 1e-6))
    fits = budget.remaining(sgd(0.5))
    assert fits == PrivacyBudget(epsilon=2.5, delta=9e-6).remaining(sgd(0.5)) > 15
    for n in range(fits):
        assert scope.remaining(sgd(0.5)) == fits - n
        budget.reserve(sgd(0.5))
        scope = budget  # the rest outside of the scope
    budget.verify()
    assert budget.remaining(ApproxDPEvent(0.01)) == 0


def test_a_refusal_shows_the_figures_it_decides_by():
    budget = PrivacyBudget(epsilon=1.0, delta=1e-5)
    for _ in range(9):
        budget.reserve(ApproxDPEvent(0.10123456789, 1e-6))
    with pytest.raises(BudgetExceededError) as refused:
        budget.reserve(ApproxDPEvent(0.10123456789, 1e-6), source="A model")
    message = str(refused.value)
    assert message.startswith(
        "A model was refused: the budget of epsilon=1, delta=1e-05 of scope '/' would be "
        "overspent. The filter 'adaptive' counts epsilon=0.9111, delta=9e-06 as spent, and "
        "epsilon=1.012, delta=1e-05 with ApproxDPEvent(epsilon=0.1012, delta=1e-06). "
    )
    assert budget.spent() < 0.9111  # which is not what the filter decides by
    assert "Use a smaller epsilon, which takes more noise or fewer steps. Call " in message
    assert "Call budget.remaining(event) to see how many more such releases fit" in message
    just = PrivacyBudget(epsilon=1.0)
    with pytest.raises(BudgetExceededError, match=r"epsilon=just above 1, delta=0 with"):
        just.reserve(ApproxDPEvent(1.0000001))


NONE_KNOWN = "no finite epsilon is known for it at this delta"


@pytest.mark.parametrize(
    ("delta", "rule", "event", "words"),
    [
        (1e-5, "adaptive", ApproxDPEvent(0.5, 1e-4), "Use a smaller delta."),
        (1e-5, "adaptive", ApproxDPEvent(2.0, 1e-4), "Use a smaller epsilon and a smaller delta"),
        (0.0, "adaptive", GaussianEvent(50.0), "Use Laplace noise, or a budget with a "),
        (1e-5, "basic", GaussianEvent(50.0), "another filter"),
        (0.0, "adaptive", GaussianEvent(1e6), "at delta=0 it needs pure epsilons"),
        (1e-5, "basic", sgd(0.5), r"no finite epsilon .* adds up epsilons"),
        (1e-5, "adaptive", NonPrivateEvent(), NONE_KNOWN),
    ],
)
def test_a_refusal_says_why_and_what_would_be_admitted(delta, rule, event, words):
    with pytest.raises(BudgetExceededError, match=words):
        PrivacyBudget(1.0, delta, filter=rule).reserve(event)


def test_a_filter_that_cannot_count_an_event_says_so():
    basic = PrivacyBudget(epsilon=1.5, delta=1e-5, filter="basic")
    with pytest.raises(ValueError, match=r"'basic' adds up epsilons and deltas, .* no single pair"):
        basic.remaining(sgd(0.5))


def test_a_refusal_shows_sums_and_what_is_lacking():
    budget = PrivacyBudget(epsilon=1.0, delta=1e-5)
    budget.reserve(ApproxDPEvent(0.5, 1e-5))
    with pytest.raises(BudgetExceededError, match=r"and epsilon=0\.6, delta=1\.1e-05 with Approx"):
        budget.reserve(ApproxDPEvent(0.1, 1e-6))
    with pytest.raises(BudgetExceededError, match=r"no finite epsilon .* all of delta is spent"):
        budget.reserve(GaussianEvent(1e3))


RARE = PoissonSampledEvent(0.01, GaussianEvent(0.7))  # large losses, but seldom


@pytest.mark.heavy
def test_repetitions_of_the_first_event_have_more_room():
    for event, least in [(sgd(0.5), 1.1), (sgd(0.1), 1.1), (RARE, 50)]:
        counts = [
            PrivacyBudget(epsilon=3.0, delta=1e-5, filter=name).remaining(event)
            for name in ("renyi", "adaptive", "pld")
        ]
        assert least * counts[0] < counts[1] < counts[2]
        assert pld(RepeatedEvent(event, counts[1])).epsilon(0.4e-5) <= 3.0
        assert pld(RepeatedEvent(event, counts[1] + 1)).epsilon(0.4e-5) > 3.0


@pytest.mark.heavy
def test_the_plan_is_that_of_the_first_charge_and_counts_its_parts():
    budget = PrivacyBudget(epsilon=3.0, delta=1e-5)
    budget.reserve(RepeatedEvent(RARE, 6))
    whole = 6 + budget.remaining(RARE)
    assert whole == PrivacyBudget(epsilon=3.0, delta=1e-5).remaining(RARE)
    budget.reserve(ComposedEvent((RARE, RepeatedEvent(RARE, 20))))  # in any portions
    assert budget.remaining(RARE) == whole - 27
    # what is none of its parts is left to the Renyi orders, whose room the plan has used up
    assert budget.remaining(PoissonSampledEvent(0.01, GaussianEvent(0.71))) == 0
    assert budget.remaining(RARE) == whole - 27
    # something else first, and the same event has the room of the Renyi orders only
    other = PrivacyBudget(epsilon=3.0, delta=1e-5)
    other.reserve(GaussianEvent(200.0))
    assert other.remaining(RARE) < whole / 20
    budget.verify()


def test_a_plan_of_several_parts_is_billed_by_whole_units():
    other = PoissonSampledEvent(0.02, GaussianEvent(0.7))

    def fits(units):
        plan = ComposedEvent((RepeatedEvent(RARE, 2 * units), RepeatedEvent(other, units)))
        return pld(plan).epsilon(0.4e-5) <= 3.0

    budget = PrivacyBudget(epsilon=3.0, delta=1e-5)
    budget.reserve(ComposedEvent((RepeatedEvent(RARE, 4), RepeatedEvent(other, 2))))
    units = 2 + budget.remaining(other)
    assert fits(units)
    assert not fits(units + 1)
    assert 4 + budget.remaining(RARE) == 2 * units


def test_the_first_charge_of_a_scope_is_its_own():
    budget = PrivacyBudget(epsilon=30.0, delta=1e-3)
    budget.reserve(LaplaceEvent(10.0))
    scope = budget.scope("rare", epsilon=3.0, delta=1e-5)
    assert scope.remaining(RARE) == PrivacyBudget(epsilon=3.0, delta=1e-5).remaining(RARE)
    again = pickle.loads(pickle.dumps(scope))
    again.reserve(RARE)
    assert scope.remaining(RARE) > 100


def test_pure_budget_takes_pure_events_only(budget):
    assert budget.remaining(LaplaceEvent(10.0)) == 10
    assert budget.remaining(GaussianEvent(1e6)) == 0
    assert budget.remaining(NonPrivateEvent()) == 0


@pytest.mark.parametrize("filter", ["adaptive", "pld", "renyi"])
def test_tiny_charge_fits_billions_of_times(filter):
    budget = PrivacyBudget(1.0, 1e-6, filter=filter)
    fits = budget.remaining(GaussianEvent(1e6))
    assert 10**10 < fits < 10**11
    budget.reserve(RepeatedEvent(GaussianEvent(1e6), fits // 2))
