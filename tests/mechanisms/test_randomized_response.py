"""Randomised response."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skprivacy.accounting.events import RandomizedResponseEvent
from skprivacy.mechanisms import RandomizedResponse, SecureRandom
from skprivacy.mechanisms.selection import RandomizedResponseWithPrior


@pytest.mark.heavy
@settings(max_examples=300, deadline=None)
@given(st.floats(1e-6, 100), st.integers(2, 1000))
def test_the_coin_is_exactly_private(epsilon, k):
    """In exact arithmetic the likelihood ratio of a report never exceeds e^epsilon."""
    truth = Fraction(RandomizedResponse(epsilon, k).truth_probability)
    lie = (1 - truth) / (k - 1)
    assert lie > 0
    bound = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 10**14))  # of exp itself
    assert truth / lie <= bound
    assert lie / truth <= bound


def test_who_holds_no_candidate_reports_any():
    """Every row of the channel, that of outsiders included, is within e^epsilon of every other."""
    n, k, epsilon = 100_000, 4, 1.5
    mechanism = RandomizedResponseWithPrior(epsilon, k)
    outside = mechanism.release(np.full(n, -1), SecureRandom(seed=1))
    assert stats.chisquare(np.bincount(outside, minlength=k)).pvalue > 1e-4
    inside = mechanism.release(np.full(n, 2), SecureRandom(seed=2))
    law = np.full(k, 1 / (math.exp(epsilon) + k - 1))
    law[2] *= math.exp(epsilon)
    assert stats.chisquare(np.bincount(inside, minlength=k), law * n).pvalue > 1e-4
    assert max((1 / k) / law.min(), law.max() / (1 / k)) < math.exp(epsilon)


def test_edge_cases():
    mechanism, random = RandomizedResponse(1.0, 3), SecureRandom()
    assert mechanism.release(np.empty((0, 2), int), random).shape == (0, 2)
    assert mechanism.release([[0, 1], [2, 2]], random).shape == (2, 2)
    assert mechanism.event == RandomizedResponseEvent(1.0, 3)
