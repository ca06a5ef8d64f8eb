"""Votes without a look at them: closed forms for all noise and all numbers of moved votes."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from skprivacy.accounting import GNMaxEvent, RepeatedEvent, epsilon_of
from skprivacy.accounting.events import LNMaxEvent, VoteThresholdEvent
from skprivacy.accounting.pld.distribution import pld
from skprivacy.accounting.renyi import rdp

NOISE = [0.3, 1.0, 7.0, 40.0, 300.0]


def gaussian_delta(sensitivity, sigma, epsilon):
    mu = sensitivity / sigma
    below = norm.logcdf(-mu / 2 - epsilon / mu)
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon + below)


@pytest.mark.parametrize(
    ("make", "sensitivity"), [(GNMaxEvent, math.sqrt(2)), (VoteThresholdEvent, 1.0)]
)
def test_the_curve_is_that_of_gaussian_noise(make, sensitivity):
    """A moved vote changes two counts by one, and the largest count by one."""
    for sigma in NOISE:
        for count in (1, 10):
            event = RepeatedEvent(make(sigma), count)
            apart = sensitivity * math.sqrt(count)
            for share in (0.0, 0.5, 2.0):  # of the spread of the loss, where delta is not too small
                epsilon = share * apart / sigma
                exact = gaussian_delta(apart, sigma, epsilon)
                assert pld(event).delta(epsilon) == pytest.approx(exact, rel=1e-9)
                if exact < 0.99:  # near 1 the last digits of delta decide
                    assert epsilon_of(event, exact) == pytest.approx(epsilon, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("sigma", NOISE)
def test_renyi_of_votes_is_that_of_gaussian_noise(sigma):
    orders = np.array([1.5, 2.0, 10.0])
    np.testing.assert_allclose(rdp(GNMaxEvent(sigma), orders), orders * 2 / (2 * sigma**2))
    np.testing.assert_allclose(rdp(VoteThresholdEvent(sigma), orders), orders / (2 * sigma**2))


@pytest.mark.parametrize("make", [GNMaxEvent, LNMaxEvent, VoteThresholdEvent])
def test_moved_votes_cost_as_one_with_less_noise(make):
    orders = np.array([1.5, 2.0, 10.0])
    for moved in (2, 3):
        for sigma in NOISE:
            event, alike = make(sigma, moved=moved), make(sigma / moved)
            np.testing.assert_array_equal(rdp(event, orders), rdp(alike, orders))
            assert event.dominating_pairs("replace_one") == alike.dominating_pairs("replace_one")
            assert event.zcdp("replace_one") == alike.zcdp("replace_one")


def exact_renyi(p, q, order):
    return logsumexp(order * np.log(p) + (1 - order) * np.log(q)) / (order - 1)


def winners(votes, sigma):
    """Return the probability that each class wins, by quadrature."""
    nodes = np.linspace(min(votes) - 12 * sigma, max(votes) + 12 * sigma, 4001)
    law = norm.pdf(nodes, np.reshape(votes, (-1, 1)), sigma) * (nodes[1] - nodes[0])
    below = norm.cdf(nodes, np.reshape(votes, (-1, 1)), sigma)
    others = [np.delete(below, j, axis=0).prod(axis=0) for j in range(len(votes))]
    return (law * others).sum(axis=1)  # the trapezoidal rule: nothing is left at the ends


@pytest.mark.parametrize("moved", [1, 2, 3])
def test_data_dependent_bound_holds_for_all_neighbours(moved):
    """Exact divergences of arg-maxima of two and three classes, with up to three moved votes."""
    orders = np.array([1.5, 2.0, 6.0])
    for sigma in (1.0, 4.0):
        for votes in ((12, 9, 3), (20, 4, 4), (30, 0), (14, 13)):
            cost = rdp(GNMaxEvent(sigma, votes, moved=moved), orders)
            assert (cost <= rdp(GNMaxEvent(sigma, moved=moved), orders)).all()
            p = winners(votes, sigma)
            for a in range(len(votes)):
                for b in range(len(votes)):
                    neighbour = list(votes)
                    neighbour[a] -= moved
                    neighbour[b] += moved
                    q = winners(neighbour, sigma)
                    exact = [exact_renyi(p, q, order) for order in orders]
                    assert (exact <= cost + 1e-9).all()


@pytest.mark.parametrize("offset", [None, (4.0, 30.0, 0.5)])
@pytest.mark.parametrize("moved", [1, 2])
def test_a_threshold_test_of_known_votes_holds_for_all_neighbours(moved, offset):
    orders = np.array([1.5, 2.0, 6.0])
    for sigma in (1.0, 4.0):
        for threshold in (-3.0, 5.0, 15.0):
            for votes in ((12.0, 9.0, 3.0), (30.0, 0.0, 0.0)):
                event = VoteThresholdEvent(sigma, votes, threshold, offset, moved=moved)
                cost = rdp(event, orders)
                largest = max(np.subtract(votes, offset or 0.0))
                for change in (-moved, moved):
                    u = np.array([largest, largest + change]) - threshold
                    p, q = (np.array([norm.cdf(x / sigma), norm.sf(x / sigma)]) for x in u)
                    exact = [exact_renyi(p, q, order) for order in orders]
                    assert (exact <= cost + 1e-9).all()


def test_votes_less_offset_may_be_negative():
    """The student expects more votes for each class than there are."""
    less = VoteThresholdEvent(10.0, (30.0, 20.0), -60.0, (100.0, 100.0))
    assert rdp(less, [2.0]) == rdp(VoteThresholdEvent(10.0, (30.0, 20.0), 40.0), [2.0])
    assert rdp(less, [2.0]) != rdp(VoteThresholdEvent(10.0, (30.0, 20.0), -60.0), [2.0])
