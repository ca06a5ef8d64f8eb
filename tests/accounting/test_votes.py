"""Votes without a look at them: closed forms for all noise."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from skprivacy.accounting import GNMaxVote, LNMaxVote, Repeated, VoteThreshold, epsilon_of, pld, rdp

NOISE = [0.3, 1.0, 7.0, 40.0, 300.0]


def gaussian_delta(sensitivity, sigma, epsilon):
    mu = sensitivity / sigma
    below = norm.logcdf(-mu / 2 - epsilon / mu)
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + below)


def check_distribution(make, sensitivity):
    """The curve of one query, and of ten, is that of Gaussian noise at this L2 sensitivity."""
    for sigma in NOISE:
        for count in (1, 10):
            event = Repeated(make(sigma), count)
            apart = sensitivity * math.sqrt(count)
            for share in (0.0, 0.5, 2.0):  # of the spread of the loss, where delta is not too small
                epsilon = share * apart / sigma
                exact = gaussian_delta(apart, sigma, epsilon)
                assert pld(event).delta(epsilon) == pytest.approx(exact, rel=1e-9)
                if exact < 0.99:  # near 1 the last digits of delta decide
                    assert epsilon_of(event, exact) == pytest.approx(epsilon, rel=1e-6, abs=1e-9)


def test_a_vote_moves_two_counts_by_one_each():
    check_distribution(GNMaxVote, math.sqrt(2))


def test_the_largest_count_moves_by_one():
    check_distribution(VoteThreshold, 1.0)


@pytest.mark.parametrize("sigma", NOISE)
def test_renyi_of_votes_is_that_of_gaussian_noise(sigma):
    orders = np.array([1.5, 2.0, 10.0])
    np.testing.assert_allclose(rdp(GNMaxVote(sigma), orders), orders * 2 / (2 * sigma**2))
    np.testing.assert_allclose(rdp(VoteThreshold(sigma), orders), orders / (2 * sigma**2))


@pytest.mark.parametrize("scale", NOISE)
def test_laplace_votes_are_pure(scale):
    assert epsilon_of(LNMaxVote(scale), 0.0) == pytest.approx(2 / scale)
