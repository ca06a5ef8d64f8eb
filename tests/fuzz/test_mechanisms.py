"""Odd parameters and odd values for every mechanism and every function beside them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skprivacy import mechanisms
from skprivacy.accounting import (
    BandedFactorizationEvent,
    GNMaxEvent,
    PrivacyBudget,
    RepeatedEvent,
    TreeAggregationEvent,
)
from skprivacy.ensemble import sanitized_cost
from skprivacy.mechanisms import SecureRandom

from .oracle import Refused, attempt, few
from .values import arguments, odd_arrays, odd_values

pytestmark = pytest.mark.heavy

NOISE = {"noise_multiplier": 1.0, "sensitivity": 1.0}
RANGE = {"lower": -1.0, "upper": 1.0}
CHOICE = {"epsilon": 1.0, "sensitivity": 1.0, "monotonic": st.booleans()}
RESPONSE = {"epsilon": 1.0, "n_categories": 3}
VOTES = RepeatedEvent(GNMaxEvent(40.0, votes=(220, 20, 10)), 100)
FLAT = st.builds(lambda n, kind: np.zeros(n, kind), st.integers(0, 5), st.sampled_from("fd"))
SCORES = st.just([0.0, 3.0, 1.0])
RUN = st.sampled_from(
    [BandedFactorizationEvent(2.0, 10, 1, (1.0, 0.5)), TreeAggregationEvent(2.0, 10, 1)]
)

# Every mechanism: its parameters, and values that it takes.
MECHANISMS = {
    mechanisms.Laplace: ({**NOISE, **RANGE}, SCORES),
    mechanisms.Gaussian: ({**NOISE, **RANGE}, SCORES),
    mechanisms.Logistic: ({**NOISE, **RANGE, "norm": st.sampled_from(["l1", "l2"])}, SCORES),
    mechanisms.KNorm: ({**NOISE, **RANGE}, SCORES),
    mechanisms.FloatGaussian: (NOISE, FLAT),
    mechanisms.FloatLogistic: (NOISE, FLAT),
    mechanisms.RoundedGaussian: (NOISE, FLAT),
    mechanisms.MatrixGaussian: ({"run": RUN, "sensitivity": 1.0}, FLAT),
    mechanisms.DistributedGaussian: (
        {"noise_multiplier": 1.0, "n_parties": 3, "n_untrusted": 1, "n_contributions": 5},
        st.integers(2, 3).map(lambda n: np.zeros((n, 4), np.int64)),
    ),
    mechanisms.RandomizedResponse: (RESPONSE, st.just([0, 1, 2])),
    mechanisms.RandomizedResponseWithPrior: (RESPONSE, st.just([0, -1, 2])),
    mechanisms.Exponential: (CHOICE, SCORES),
    mechanisms.ReportNoisyMax: (CHOICE, SCORES),
    mechanisms.SmoothGaussian: (
        {"noise_multiplier": 5.0, "smoothness": 0.05, "lift": 1.0, "upper": 1.0}, SCORES
    ),
}  # fmt: skip
# What computes a mechanism or a number from parameters.
FUNCTIONS = {
    mechanisms.Laplace.calibrated: {"epsilon": 1.0, "sensitivity": 1.0, **RANGE},
    mechanisms.Gaussian.calibrated: {
        "epsilon": 1.0, "delta": 1e-6, "sensitivity": 1.0, "gaussian": "classic", **RANGE
    },
    mechanisms.Logistic.calibrated: {"epsilon": 1.0, "sensitivity": 1.0, **RANGE},
    mechanisms.KNorm.calibrated: {"epsilon": 1.0, "sensitivity": 1.0, **RANGE},
    mechanisms.analytic_noise_multiplier: {"epsilon": 1.0, "delta": 1e-6},
    mechanisms.classic_noise_multiplier: {"epsilon": 1.0, "delta": 1e-6},
    mechanisms.PoissonSampler: {"rate": 0.5},
    mechanisms.SecureRandom: {"seed": st.sampled_from([None, 0])},
    sanitized_cost: {
        "event": VOTES, "order": 6.0, "noise_multiplier": 5.0, "smoothness": None,
        "alpha": 0.01, "relation": "add_remove", "noise_seed": None,
    },
}  # fmt: skip
# Of what they return: the methods, with arguments.
METHODS = {
    mechanisms.DistributedGaussian: {
        "share": {"values": np.zeros((3, 4), np.int64), "random": SecureRandom()},
        "masks": {"n": 3, "size": 4, "random": SecureRandom()},
        "total": {"sent": np.zeros((3, 4), np.uint64)},
    },
    mechanisms.KNorm: {"std_of": {"size": 3}},
    mechanisms.RandomizedResponse: {"debias": {"counts": [3, 4, 5]}},
    mechanisms.PoissonSampler: {"draw": {"n": 20, "random": SecureRandom()}},
    mechanisms.SecureRandom: {
        "integers": {"high": 5, "size": 3}, "uniform": {"size": 3}, "normal": {"size": 3},
        "random_bytes": {"n": 3}, "add_normal": {"values": np.zeros(3), "std": 1.0},
    },
}  # fmt: skip


def test_every_mechanism_is_here():
    public = {getattr(mechanisms, name) for name in mechanisms.__all__}
    assert public - {*MECHANISMS, *FUNCTIONS} == {mechanisms.Mechanism}


@pytest.mark.parametrize("kind", MECHANISMS)
@given(data=st.data())
@few(25)
def test_mechanisms(kind, data):
    parameters, values = MECHANISMS[kind]
    names = {*parameters, "value", "random", "size"}
    given_ = data.draw(arguments(parameters))
    mechanism = attempt(lambda: kind(**given_), names)
    if isinstance(mechanism, Refused):
        return
    for fact in ("event", "grid", "scale", "std", "truth_probability"):
        if hasattr(kind, fact):
            attempt(lambda fact=fact: getattr(mechanism, fact), names)
    value = data.draw(st.one_of(values, odd_arrays()))
    random = data.draw(st.one_of(*[st.builds(SecureRandom)] * 9, odd_values()))
    attempt(lambda: mechanism.release(value, random), names)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
@given(data=st.data())
@few(25)
def test_functions(function, data):
    parameters = FUNCTIONS[function]
    given_ = data.draw(arguments(parameters, least=1))
    attempt(lambda: function(**given_), {*parameters, "seed"})


@pytest.mark.parametrize("kind", METHODS)
@given(data=st.data())
@few(25)
def test_methods(kind, data):
    valid = MECHANISMS[kind][0] if kind in MECHANISMS else FUNCTIONS[kind]
    made = kind(**data.draw(arguments(valid, most=0)))
    for name, parameters in METHODS[kind].items():
        given_ = data.draw(arguments(parameters, least=1))
        attempt(lambda name=name, given_=given_: getattr(made, name)(**given_), parameters)


@given(data=st.data())
@few(15)
def test_a_refused_release_costs_nothing(data):
    budget = PrivacyBudget(100.0, 1e-3)
    given_ = data.draw(arguments(FUNCTIONS[sanitized_cost], least=1))
    attempt(
        lambda: sanitized_cost(**given_, budget=budget),
        {*given_, "budget", "seed"},
        unchanged=lambda: len(budget.entries()),
    )
