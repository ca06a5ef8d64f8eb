"""Exponential mechanism and report-noisy-max: exact distributions, privacy, planted bugs."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skprivacy.accounting import events
from skprivacy.mechanisms import Exponential, ReportNoisyMax, SecureRandom

pytestmark = pytest.mark.heavy

SCORES = [3.0, 1.0, 0.0, 2.5]
N = 4000


def exponential_law(scores, epsilon, sensitivity=1.0):
    weights = np.exp(epsilon * (np.array(scores) - max(scores)) / (2 * sensitivity))
    return weights / weights.sum()


def permute_and_flip_law(scores, epsilon, sensitivity=1.0):
    """By enumeration of all orders, the definition of McKenna and Sheldon."""
    accept = np.exp(epsilon * (np.array(scores) - max(scores)) / (2 * sensitivity))
    law = np.zeros(len(scores))
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        left = 1.0
        for r in order:
            law[r] += left * accept[r] / len(orders)
            left *= 1 - accept[r]
    return law


LAWS = {Exponential: exponential_law, ReportNoisyMax: permute_and_flip_law}


def draw(mechanism, scores, n, seed=0):
    random = SecureRandom(seed)
    return np.array([mechanism.release(scores, random) for _ in range(n)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", LAWS)
def test_monotonic_scores_need_half_the_noise(kind):
    counts = np.bincount(draw(kind(1.0, 1.0, monotonic=True), SCORES, N), minlength=4)
    assert stats.chisquare(counts, LAWS[kind](SCORES, 2.0) * N).pvalue > 1e-4


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-50, 50), st.floats(-1, 1)), min_size=2, max_size=5),
    st.sampled_from([0.1, 1.0, 5.0]),
)
def test_rounding_is_paid_for(pairs, epsilon):
    """The coins' exponents in units of the scale move by at most epsilon / 2 a candidate."""
    seen = []

    class Spy(Exponential):
        def _select(self, behind, scale, random):
            seen.append(behind / scale)
            return 0

    scores = np.array([a for a, _ in pairs])
    Spy(epsilon, 1.0).release(scores, SecureRandom())
    Spy(epsilon, 1.0).release(scores + [b for _, b in pairs], SecureRandom())
    # behind = best - score: each of the two moves by epsilon / 2 at most.
    assert np.abs(seen[0] - seen[1]).max() <= epsilon * (1 + 1e-12)


@pytest.mark.parametrize("kind", LAWS)
def test_edge_cases(kind):
    random = SecureRandom()
    assert kind(1.0, 1.0).release([4.0], random) == 0
    assert kind(1.0, 1.0).release([-np.inf, 0.0, -np.inf], random) == 1
    assert kind(1.0, 1.0).release([0.0, np.inf], random) == 1
    assert kind(1.0, 1.0).release([1e300, -1e300], random) == 0
    assert kind(50.0, 1e-3).release([1e9, 1e9 + 1], random) == 1
    assert kind(1.5, 1.0).event == getattr(events, f"{kind.__name__}Event")(1.5)
    assert isinstance(kind(1.0, 1.0).release([1.0, 2.0], random), int)
