"""Odd events, guarantees, budgets and descriptions: nothing is charged that was refused."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skprivacy import accounting
from skprivacy.accounting import (
    ComposedEvent,
    Event,
    GaussianEvent,
    GNMaxEvent,
    LaplaceEvent,
    PrivacyBudget,
    PrivacyGuarantee,
    RepeatedEvent,
)
from skprivacy.base import reserve_release

from .oracle import Refused, attempt, few
from .values import arguments, odd_values

pytestmark = pytest.mark.heavy

ONE = GaussianEvent(2.0)
VOTES = GNMaxEvent(40.0, votes=(220, 20, 10))
# What every field of an event may hold, by its name.
FIELDS = {
    "event": ONE, "events": (ONE, LaplaceEvent(3.0)), "count": 3, "sampling_rate": 0.1,
    "noise_multiplier": 2.0, "sigma": 4.0, "sensitivity": 1.0, "dimension": 1, "epsilon": 1.0,
    "delta": 1e-6, "kind": "gnmax", "n_queries": 5, "n_categories": 3, "norm": 1, "lift": 1.0,
    "smoothness": 0.05, "weights": (0.5, 0.5), "votes": None, "threshold": None, "moved": 1,
    "coefficients": (1.0, 0.5), "n_steps": 10, "epochs": 1, "steps_per_epoch": 10, "rate": 0.1,
}  # fmt: skip
EVENTS = [
    event
    for name in accounting.__all__
    if inspect.isclass(event := getattr(accounting, name))
    and issubclass(event, Event)
    and not inspect.isabstract(event)
    and event._tag is not None
]
ASKED = {
    "MatrixFactorizationEvent": {"noise_multiplier": 2.0, "steps_per_epoch": 10, "epochs": 1},
    "calibrate_noise_multiplier": {
        "make_event": st.just(GaussianEvent), "epsilon": 1.0, "delta": 1e-6,
        "relation": "add_remove", "accountant": "pld", "guess": None,
    },
    "calibrate_to_advantage": {
        "make_event": st.just(GaussianEvent), "advantage": 0.1, "relation": "add_remove"
    },
    "calibrate_to_tpr": {
        "make_event": st.just(GaussianEvent), "tpr": 0.2, "fpr": 0.1, "relation": "add_remove"
    },
    "delta_of": {"event": ONE, "epsilon": 1.0, "relation": "add_remove"},
    "epsilon_of": {"event": ONE, "delta": 1e-6, "relation": "add_remove"},
    "flatten": {"event": ONE},
    "local_sensitivity": {"event": VOTES, "order": 5.0, "distances": 0},
    "pld": {"event": ONE, "relation": "add_remove"},
    "rdp": {"event": ONE, "orders": np.array([2.0, 3.0]), "relation": "add_remove"},
    "renyi_divergence": {"p": [0.5, 0.5], "q": [0.4, 0.6], "order": 2.0},
    "square_root_band": {"steps_per_epoch": 10, "epochs": 1, "most": 4},
    "rdp_epsilon": {"event": ONE, "delta": 1e-6, "relation": "add_remove"},
    "rdp_delta": {"event": ONE, "epsilon": 1.0, "relation": "add_remove"},
    "pld_epsilon": {"event": ONE, "delta": 1e-6, "relation": "add_remove"},
    "weakest_arithmetic": {"parts": ["exact", "floating_point"]},
    "zcdp": {"event": ONE, "relation": "add_remove"},
    "gdp_mu": {"event": ONE},
    "compare_accountants": {"event": ONE, "delta": 1e-6, "relation": "add_remove"},
    "check_delta": {"delta": 1e-6, "n_records": 100},
    "smoothed_cost": {"event": ONE, "order": 5.0, "smoothness": 0.05},
    "PrivacyGuarantee": {
        "event": ONE, "at_delta": 1e-6, "relation": "add_remove", "kind": "proved",
        "assumptions": (), "unit": "record", "arithmetic": "exact",
    },
    "PrivacyBudget": {
        "epsilon": 1.0, "delta": 1e-6, "relation": None, "unit": None, "filter": "adaptive",
        "n_records": None,
    },
}  # fmt: skip
OF_BUDGETS = {
    "charge": {"event": ONE, "source": "me", "relation": "add_remove", "unit": "record"},
    "reserve": {"event": ONE, "source": "me", "relation": "add_remove", "unit": "record"},
    "remaining": {"event": ONE},
    "scope": {"name": "adult", "epsilon": 1.0, "delta": 1e-6},
    "partition": {"key": "1"},
    "spent": {"delta": 1e-6},
    "commit": {"charge_id": 2},
    "fail": {"charge_id": 2},
    "verify": {"digest": None},
}
OF_GUARANTEES = {
    "epsilon": {"delta": 1e-6},
    "delta": {"epsilon": 1.0},
    "tpr_bound": {"fpr": 0.1},
    "group": {"k": 2},
}


@pytest.mark.parametrize("kind", EVENTS)
@given(data=st.data())
@few(8)
def test_events(kind, data):
    names = [field.name for field in fields(kind)]
    valid = {name: FIELDS.get(name, 1.0) for name in names}
    given_ = data.draw(arguments(valid)) if valid else {}
    event = attempt(lambda: kind(**given_), {*names, kind.__name__, "event"})
    if isinstance(event, Refused):
        return
    names = {*names, *FIELDS, "relation", kind.__name__}
    description = attempt(event.to_dict, names)
    if not isinstance(description, Refused):
        assert Event.from_dict(json.loads(json.dumps(description))).to_dict() == description


@pytest.mark.parametrize("name", [name for name in ASKED if hasattr(accounting, name)])
@given(data=st.data())
@few(10)
def test_questions(name, data):
    given_ = data.draw(arguments(ASKED[name], least=1))
    attempt(
        lambda: getattr(accounting, name)(**given_),
        {*given_, "events", "path", "delta", "votes", "noise_multiplier", "target"},
    )


@pytest.mark.parametrize("method", OF_GUARANTEES)
@given(data=st.data())
@few(10)
def test_guarantees(method, data):
    given_ = data.draw(arguments(OF_GUARANTEES[method], least=1))
    guarantee = PrivacyGuarantee(RepeatedEvent(ONE, 3), 1e-6)
    attempt(lambda: getattr(guarantee, method)(**given_), given_)


@pytest.mark.parametrize("method", OF_BUDGETS)
@given(data=st.data())
@few(10)
def test_budgets(method, data):
    budget = PrivacyBudget(5.0, 1e-5)
    budget.reserve(ONE)
    given_ = data.draw(arguments(OF_BUDGETS[method], least=1))
    attempt(
        lambda: getattr(budget, method)(**given_),
        {*given_, "event", "relation", "scope"},
        unchanged=budget._ledger.records,
    )
    budget.verify()


@given(data=st.data())
@few(10)
def test_charges(data):
    budget = PrivacyBudget(5.0, 1e-5)
    valid = {
        "budget": budget, "event": ONE, "relation": "add_remove", "source": "me", "kind": "proved",
        "unit": "record",
    }  # fmt: skip
    given_ = data.draw(arguments(valid, least=1))

    def released():
        with reserve_release(**given_):
            pass

    attempt(released, given_, unchanged=lambda: len(budget.entries()))


def descriptions():
    """JSON that is almost the description of an event."""
    leaves = st.one_of(
        st.none(), st.booleans(), st.integers(-3, 10**20), st.floats(), st.text(max_size=5)
    )
    keys = st.sampled_from(
        ["type", "version", "event", "events", "count", "noise_multiplier", "sigma", "kind"]
    )
    tags = st.sampled_from(
        ["Gaussian", "RepeatedEvent", "ComposedEvent", "PoissonSampledEvent", "VoteBlockEvent"]
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(keys, inner, max_size=4),
            st.builds(lambda tag, rest: {**rest, "type": tag}, tags,
                      st.dictionaries(keys, inner, max_size=3)),
        ),
        max_leaves=8,
    )  # fmt: skip


@given(descriptions())
@few(60)
def test_descriptions_of_events(description):
    names = {*FIELDS, "type", "version", "fields", "match", "count"}
    attempt(lambda: Event.from_dict(description), names)


@given(st.one_of(descriptions(), odd_values()), st.data())
@few(40)
def test_descriptions_of_guarantees(event, data):
    known = PrivacyGuarantee(ComposedEvent((ONE, ONE)), 1e-6).to_dict()
    known[data.draw(st.sampled_from(sorted(known)))] = event
    names = {*known, *FIELDS, "type", "version", "match", "describe"}
    attempt(lambda: PrivacyGuarantee.from_dict(known), names)
