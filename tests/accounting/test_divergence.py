"""The Renyi divergence of given distributions: its definition, its limits and its zeros."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skprivacy.accounting.events import RandomizedResponseEvent
from skprivacy.accounting.renyi import rdp, renyi_divergence

ORDERS = [0.3, 0.999, 1 + 1e-9, 1.0001, 2, 2.5, 40.0]


def by_definition(p, q, order):
    with mp.workdps(60):
        p, q = [mp.mpf(float(x)) for x in p], [mp.mpf(float(x)) for x in q]
        p, q = [x / mp.fsum(p) for x in p], [x / mp.fsum(q) for x in q]
        a = mp.mpf(order)
        total = mp.fsum(x**a * y ** (1 - a) for x, y in zip(p, q, strict=True) if x and y)
        return float(mp.log(total) / (a - 1))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(4))
def test_divergence_is_its_definition(order, seed):
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(6, 0.5), size=2)
    assert renyi_divergence(p, q, order) == pytest.approx(by_definition(p, q, order), rel=1e-6)
    assert renyi_divergence(p.reshape(2, 3), q.reshape(2, 3), order) == renyi_divergence(
        p, q, order
    )


def test_close_distributions_keep_their_digits():
    p, q = np.array([0.5 + 1e-6, 0.5 - 1e-6]), np.array([0.5, 0.5])
    for order in (0.5, 1, 1.01, 2, 64):
        assert renyi_divergence(p, q, order) == pytest.approx(order * 2e-12, rel=1e-3)


def test_the_limits_are_kullback_leibler_and_the_largest_loss():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    assert renyi_divergence(p, q, 1) == pytest.approx(float(p @ np.log(p / q)), rel=1e-12)
    assert renyi_divergence(p, q, 1 + 1e-9) == pytest.approx(renyi_divergence(p, q, 1), rel=1e-6)
    assert renyi_divergence(p, q, math.inf) == pytest.approx(math.log(2.5), rel=1e-12)
    assert renyi_divergence(p, q, 1e5) == pytest.approx(math.log(2.5), rel=1e-4)
    assert renyi_divergence(p, q, 0) == 0


@pytest.mark.parametrize("order", [0.5, 1, 2, math.inf])
def test_outcomes_without_probability(order):
    """Outcomes that p lacks do not matter; one that q lacks is an infinite loss."""
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.25, 0.5])
    assert renyi_divergence(p, q, order) == pytest.approx(math.log(2), rel=1e-12)
    assert renyi_divergence([1.0, 0.0], [0.0, 1.0], order) == math.inf
    assert renyi_divergence(p, p, order) == 0
    back = renyi_divergence(q, p, order)
    assert back == (pytest.approx(math.log(2), rel=1e-12) if order < 1 else math.inf)
    assert renyi_divergence([0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], order) == 0


def test_order_zero_is_the_mass_that_q_gives_to_what_p_can_give():
    assert renyi_divergence([1.0, 0.0], [0.25, 0.75], 0) == pytest.approx(math.log(4))


def test_randomised_response_costs_what_its_divergence_is():
    epsilon, k = 1.3, 5
    low = 1 / (math.exp(epsilon) + k - 1)
    p, q = np.full((2, k), low)
    p[0] = q[1] = math.exp(epsilon) * low
    for order in (1.5, 4.0, 30.0):
        expected = rdp(RandomizedResponseEvent(epsilon, k), [order])[0]
        assert renyi_divergence(p, q, order) == pytest.approx(expected, rel=1e-12)


weights = st.lists(st.floats(0, 1), min_size=4, max_size=4).filter(lambda w: sum(w) > 0.1)


@settings(deadline=None, max_examples=60)
@given(weights, weights, st.floats(0, 20), st.floats(0, 20))
def test_divergence_rises_with_the_order_and_is_not_negative(p, q, a, b):
    p, q = np.array(p) / sum(p), np.array(q) / sum(q)
    low, high = (renyi_divergence(p, q, order) for order in sorted((a, b)))
    assert 0 <= low <= high * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(
    ("p", "q", "order", "message"),
    [
        ([0.5, 0.6], [0.5, 0.5], 2, "p must be probabilities"),
        ([0.5, 0.5], [1.5, -0.5], 2, "q must be probabilities"),
        ([math.nan, 1.0], [0.5, 0.5], 2, "p must be probabilities"),
        ([], [], 2, "p must be probabilities"),
        ([0.5, 0.5], [1.0], 2, "shapes"),
        ([0.5, 0.5], [0.5, 0.5], -1, "order=-1"),
        ([0.5, 0.5], [0.5, 0.5], math.nan, "order=nan"),
        ([0.5, 0.5], [0.5, 0.5], "2", "order='2'"),
    ],
)
def test_bad_input(p, q, order, message):
    with pytest.raises(ValueError, match=message):
        renyi_divergence(p, q, order)
