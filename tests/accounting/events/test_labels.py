"""The relation "label": a record keeps its features, and its label becomes another."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from skprivacy.accounting import (
    ComposedEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledEvent,
    PrivacyBudget,
    PrivacyGuarantee,
    RepeatedEvent,
    compare_accountants,
    epsilon_of,
)
from skprivacy.accounting.accountants import delta_of, zcdp
from skprivacy.accounting.event import RELATIONS
from skprivacy.accounting.events import (
    BandedFactorizationEvent,
    LogisticEvent,
    NonPrivateEvent,
    RandomizedResponseEvent,
)
from skprivacy.accounting.events.mixtures import MixtureEvent
from skprivacy.accounting.pld.distribution import pld
from skprivacy.accounting.renyi import rdp
from skprivacy.accounting.work_limit import closed_form_work

from .test_stored_events import EVENTS

ORDERS = [1.5, 2.0, 8.0, 64.0]


@dataclass(frozen=True)
class Unheard(Event):
    """An event of somebody who had never heard of labels."""

    work = closed_form_work

    def renyi(self, orders, relation):
        return 1e-3 * orders

    def dominating_pairs(self, relation):
        return GaussianEvent(10.0).dominating_pairs(relation)

    def zcdp(self, relation):
        return 1e-3


@dataclass(frozen=True)
class Subclass(GaussianEvent):
    """A subclass does not inherit what its parent knows: its sensitivity may be another one."""


@pytest.mark.everyday(12)
@pytest.mark.heavy
@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_another_label_never_costs_less_than_is_true_of_another_record(event):
    """For each event, either no bound is known, or one that holds for any other record."""

    def cost(relation):
        try:
            return epsilon_of(event, 1e-6, relation)
        except TypeError:
            return None

    assert cost("label") == cost("replace_one")
    try:
        expected = rdp(event, ORDERS, "replace_one")
    except TypeError:
        with pytest.raises(TypeError):
            rdp(event, ORDERS, "label")
    else:
        np.testing.assert_array_equal(rdp(event, ORDERS, "label"), expected)
    assert zcdp(event, "label") == zcdp(event, "replace_one") or isinstance(event, NonPrivateEvent)


def test_sampled_contributions_are_replaced_by_another_label():
    """A gradient of norm 1 may turn round when its label changes: twice the norm."""
    event = PoissonSampledEvent(1.0, GaussianEvent(2.0))
    assert epsilon_of(event, 1e-6, "label") == epsilon_of(GaussianEvent(1.0), 1e-6)
    stream = BandedFactorizationEvent(2.0, steps_per_epoch=4, epochs=1)
    assert epsilon_of(stream, 1e-6, "label") == epsilon_of(GaussianEvent(1.0), 1e-6)
    sampled = RepeatedEvent(PoissonSampledEvent(0.1, GaussianEvent(2.0)), 10)
    assert epsilon_of(sampled, 1e-6, "label") > 1.5 * epsilon_of(sampled, 1e-6, "zero_out")
    assert zcdp(sampled, "label") == 4 * zcdp(sampled, "zero_out")
    with pytest.raises(TypeError, match="relation='label'"):
        epsilon_of(PoissonSampledEvent(0.1, LogisticEvent(2.0)), 1e-6, "label")


@pytest.mark.parametrize(
    "event",
    [
        Unheard(),
        Subclass(5.0),
        RepeatedEvent(Unheard(), 3),
        ComposedEvent((LaplaceEvent(3.0), Unheard())),
        PoissonSampledEvent(0.1, Subclass(5.0)),
        MixtureEvent((0.5, 0.5), (LaplaceEvent(3.0), RepeatedEvent(Unheard(), 2))),
    ],
    ids=repr,
)
def test_an_event_that_does_not_know_labels_is_refused(event):
    questions = [
        lambda: epsilon_of(event, 1e-6, "label"),
        lambda: delta_of(event, 1.0, "label"),
        lambda: pld(event, "label"),
        lambda: rdp(event, ORDERS, "label"),
        lambda: zcdp(event, "label"),
        lambda: compare_accountants(event, 1e-6, "label"),
        lambda: PrivacyGuarantee(event, 1e-6, "label"),
    ]
    for ask in questions:
        with pytest.raises(TypeError, match="knows_label"):
            ask()
    assert epsilon_of(event, 1e-6, "zero_out") < math.inf
    budget = PrivacyBudget(5.0, 1e-5, relation="label")
    with pytest.raises((TypeError, ValueError)):
        budget.reserve(event)
    assert budget.spent() == 0


@pytest.mark.parametrize("other", sorted(set(RELATIONS) - {"label"}))
def test_a_budget_never_adds_labels_to_another_relation(other):
    for first, second in [("label", other), (other, "label")]:
        budget = PrivacyBudget(epsilon=5.0)
        budget.reserve(RandomizedResponseEvent(1.0), relation=first)
        with pytest.raises(ValueError, match="relation"):
            budget.reserve(RandomizedResponseEvent(1.0), relation=second)
        assert budget.relation == first
        assert budget.spent() == pytest.approx(1.0)


def test_label_guarantee_states_its_relation():
    guarantee = PrivacyGuarantee(RandomizedResponseEvent(1.0), relation="label")
    assert repr(guarantee) == "1.00-DP, label, unspecified noise, proved"
    assert guarantee.group(2).epsilon() == pytest.approx(2.0)
    assert guarantee.group(2).relation == "label"
    with pytest.raises(ValueError, match="protects only labels"):
        guarantee.as_replace_one()
