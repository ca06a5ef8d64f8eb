"""Every event states its work, and one that would take too long is refused before it starts."""

import dataclasses
import math
import time
import warnings

import pytest

from skprivacy.accounting import (
    ApproxDPEvent,
    ComposedEvent,
    Event,
    GaussianEvent,
    PoissonSampledEvent,
    PrivacyBudget,
    RepeatedEvent,
    VoteBlockEvent,
    compare_accountants,
    epsilon_of,
)
from skprivacy.accounting.accountants import delta_of, gdp_mu, rdp_delta, rdp_epsilon, zcdp
from skprivacy.accounting.events import NonPrivateEvent, PrivateSelectionEvent, SampledGroupEvent
from skprivacy.accounting.events.mixtures import MixtureEvent
from skprivacy.accounting.pld.distribution import pld
from skprivacy.accounting.renyi import rdp
from skprivacy.accounting.smooth_sensitivity import smoothed_cost
from skprivacy.accounting.work_limit import MAX_WORK, WorkLimitError, closed_form_work

from .test_stored_events import EVENTS

NOISE = GaussianEvent(1.0)
# One of each class, and the block of the other noise.
EXAMPLES = [*{type(event): event for event in EVENTS}.values()]
EXAMPLES.append(VoteBlockEvent("gnmax", 20.0, 20))
WHOLE = [1, 64, 10**4, 10**7, 10**9, 10**12, 10**18, 10**400, 10**4000]
REAL = [1e-300, 1e-20, 1e-6, 1e-3, 0.5, 1 - 1e-12, 3.0, 1e3, 1e6, 1e20, 1e300]


def hostile(examples=EXAMPLES):
    """Yield each example with each of its numbers replaced by extreme ones."""
    for example in examples:
        for field in dataclasses.fields(example):
            value = getattr(example, field.name)
            if type(value) not in (int, float):
                continue
            for number in WHOLE if type(value) is int else REAL:
                try:
                    yield dataclasses.replace(example, **{field.name: number})
                except (ValueError, TypeError, OverflowError):
                    continue  # the class itself refuses it


def repeated_often():
    """Return an event of 2**630 repetitions."""
    event = NOISE
    for _ in range(10):
        event = RepeatedEvent(event, 2**63 - 1)
    return event


def measured(event):
    """Return the processor time of epsilon, and whether the event was refused by its work."""
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Renyi orders at the edge, and of overflow
            epsilon_of(event, 1e-6, "zero_out")
    except WorkLimitError:
        return time.process_time() - start, True
    except (ValueError, TypeError, OverflowError):
        pass  # other refusals are tested elsewhere; here time alone counts
    return time.process_time() - start, False


def test_a_class_without_work_cannot_be_defined():
    with pytest.raises(TypeError, match=r"Forgotten must define work\(\)"):

        class Forgotten(Event):
            pass

    class Base(Event, tag=None):
        pass

    with pytest.raises(TypeError, match=r"Child must define work\(\)"):

        class Child(Base):
            pass

    class Stated(Base):
        work = closed_form_work


def test_no_number_makes_an_event_take_long():
    """Refused, or its stated work is small; the slow test shows that stated works are true."""
    refused = 0
    for event in hostile():
        start = time.process_time()
        work = event.work()
        assert time.process_time() - start < 1
        assert work > 0
        if not work <= MAX_WORK:
            took, was_refused = measured(event)
            assert was_refused
            assert took < 1
            refused += 1
        elif work < 2e6:
            took, _ = measured(event)
            assert took < 1  # 2e6 numbers take 0.02 s; the rest is for other processes
    assert refused > 10


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_stated_works_are_true(example):
    """Within a factor of four: the model is rough, and the machine may be slower than ours."""
    allowed = [event for event in hostile([example]) if event.work() <= MAX_WORK]
    if not allowed:
        return  # a class without numbers of its own
    dearest = max(allowed, key=lambda event: event.work())
    took, was_refused = measured(dearest)
    assert not was_refused
    assert took < 1 + 4 * 1e-8 * dearest.work()


@pytest.mark.parametrize(
    "ask",
    [
        lambda event: epsilon_of(event, 1e-6),
        lambda event: delta_of(event, 1.0),
        lambda event: rdp(event, [2.0]),
        lambda event: rdp_epsilon(event, 1e-6),
        lambda event: rdp_delta(event, 1.0),
        lambda event: pld(event),
        lambda event: zcdp(event),
        lambda event: gdp_mu(event),
        lambda event: compare_accountants(event, 1e-6),
        lambda event: smoothed_cost(event, 2.0, 0.1),
        lambda event: PrivacyBudget(1.0, 1e-6).reserve(event),
    ],
)
@pytest.mark.parametrize("event", [SampledGroupEvent(0.01, NOISE, 10**7), repeated_often()])
def test_every_accountant_asks_first(ask, event):
    start = time.process_time()
    with pytest.raises(WorkLimitError, match="Use smaller counts or fewer kinds"):
        ask(event)
    assert time.process_time() - start < 1


def test_compositions_add_up():
    one = SampledGroupEvent(0.01, NOISE, 64)
    many = ComposedEvent(
        tuple(SampledGroupEvent(0.01, GaussianEvent(1.0 + i), 64) for i in range(100))
    )
    assert epsilon_of(one, 1e-6) < math.inf
    with pytest.raises(WorkLimitError):
        epsilon_of(many, 1e-6)


def search_over(candidates):
    """Return the event of a search: the best of some fits, and of as many scores."""
    fit = MixtureEvent((1 / len(candidates),) * len(candidates), tuple(candidates))
    return MixtureEvent(
        (0.8, 0.2), (PrivateSelectionEvent(fit), PrivateSelectionEvent(GaussianEvent(1.1)))
    )


SEARCHES = {
    "networks": [
        RepeatedEvent(PoissonSampledEvent(0.04, GaussianEvent(s)), 48) for s in (0.8, 0.95)
    ],
    "networks of groups": [
        RepeatedEvent(SampledGroupEvent(0.04, GaussianEvent(s), 2), 48) for s in (4.0, 5.0)
    ],
    "teachers": [VoteBlockEvent("gnmax", s, 80) for s in (9.0, 12.0)],
    "searches": [
        search_over([RepeatedEvent(PoissonSampledEvent(0.04, GaussianEvent(s)), 48)])
        for s in (2.0, 3.0)
    ],
}


@pytest.mark.heavy
@pytest.mark.everyday(2)
@pytest.mark.parametrize("kind", SEARCHES)
def test_searches_are_accounted_for(kind):
    """Each curve is computed once, whatever encloses it: work must not multiply with the levels."""
    event = search_over(SEARCHES[kind])
    took, was_refused = measured(event)
    assert not was_refused
    assert took < 1 + 4 * 1e-8 * event.work()


def test_searches_may_have_fifty_different_candidates():
    """Of 100 the bounds take 20 to 60 s, depending on the noise, and they are refused."""
    sampled = [PoissonSampledEvent(0.01 + 1e-4 * i, GaussianEvent(1.0)) for i in range(100)]
    steps = [RepeatedEvent(step, 500) for step in sampled]
    assert search_over(steps[:50]).work() <= MAX_WORK < search_over(steps).work()


@pytest.mark.parametrize("around", [
    PrivateSelectionEvent,
    lambda event: PoissonSampledEvent(0.5, PrivateSelectionEvent(event)),
    lambda event: RepeatedEvent(PrivateSelectionEvent(event), 2),
    lambda event: MixtureEvent((1.0,), (ComposedEvent((PrivateSelectionEvent(event),)),)),
])  # fmt: skip
def test_stating_the_work_of_nested_events_takes_no_time(around):
    event = GaussianEvent(5.0)
    for _ in range(60):
        event = around(event)
    start = time.process_time()
    with pytest.raises(WorkLimitError):
        epsilon_of(event, 1e-6)
    assert time.process_time() - start < 1


def test_a_step_of_each_of_many_records_is_a_sum_in_closed_form():
    start = time.process_time()
    assert isinstance(ApproxDPEvent(0.5, 1e-30).grouped(10**9), NonPrivateEvent)
    assert time.process_time() - start < 1
    grouped = ApproxDPEvent(0.5, 1e-6).grouped(3)
    total = 1e-6 * (1 + math.exp(0.5) + math.exp(1.0))
    assert total <= grouped.delta <= total * (1 + 1e-13)
    assert ApproxDPEvent(0.0, 1e-6).grouped(3).delta == pytest.approx(3e-6, rel=1e-13)
