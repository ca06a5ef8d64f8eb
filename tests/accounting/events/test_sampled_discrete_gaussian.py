"""Poisson-sampled discrete Gaussian noise: the Renyi bound against sums over the whole grid."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp

from skprivacy.accounting import GaussianEvent, PoissonSampledEvent, RepeatedEvent
from skprivacy.accounting.accountants import rdp_epsilon
from skprivacy.accounting.events import DiscreteGaussianEvent
from skprivacy.accounting.pld.distribution import pld
from skprivacy.accounting.renyi import rdp

pytestmark = pytest.mark.heavy

MOVES = {"one": (1,), "three": (3,), "two integers": (1, 1), "two, not equal": (2, -1)}


def renyi(order, rate, sigma, move):
    """Both directions, (1-q) Q + q P from Q and back, by summing over all integers that count."""
    reach = math.ceil(12 * sigma) + (order + 1) * max(map(abs, move))
    axes = np.meshgrid(*[np.arange(-reach, reach + 1)] * len(move), indexing="ij", sparse=True)
    log_q = sum(-(x**2) / (2 * sigma**2) for x in axes)
    log_p = sum(-((x - m) ** 2) / (2 * sigma**2) for x, m in zip(axes, move, strict=True))
    log_q, log_p = log_q - logsumexp(log_q), log_p - logsumexp(log_p)
    mixture = np.logaddexp(np.log1p(-rate) + log_q, math.log(rate) + log_p)
    return [
        logsumexp(order * a + (1 - order) * b) / (order - 1)
        for a, b in ((mixture, log_q), (log_q, mixture))
    ]


def bound(order, rate, sigma, move, factor=1.0):
    norm = math.hypot(*move)
    event = DiscreteGaussianEvent(factor * sigma, norm, len(move))
    return rdp(PoissonSampledEvent(rate, event), [order])[0]


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
def test_moment_is_the_sum_over_the_grid(rate, sigma, move):
    for order in (2, 3, 8, 16):
        removed, added = renyi(order, rate, sigma, MOVES[move])
        found = bound(order, rate, sigma, MOVES[move])
        # The sum loses digits of small divergences, being a logarithm of 1 + little.
        assert found == pytest.approx(removed, rel=1e-7, abs=1e-12)
        assert added <= found * (1 + 1e-9) + 1e-12
        if removed > 1e-9:  # noise a thousandth larger would show
            assert bound(order, rate, sigma, MOVES[move], 1.001) < removed
    for order in (1.1, 1.5, 4.7):
        assert max(renyi(order, rate, sigma, MOVES[move])) <= bound(order, rate, sigma, MOVES[move])


def test_epsilon_is_close_to_that_of_the_loss_distribution_and_of_continuous_noise():
    many = RepeatedEvent(PoissonSampledEvent(0.01, DiscreteGaussianEvent(4.0)), 10_000)
    smooth = RepeatedEvent(PoissonSampledEvent(0.01, GaussianEvent(4.0)), 10_000)
    found = rdp_epsilon(many, 1e-5)
    assert pld(many).epsilon(1e-5) < found
    assert found == pytest.approx(rdp_epsilon(smooth, 1e-5), rel=2e-4)  # the best order is 17.2
    in_many = RepeatedEvent(
        PoissonSampledEvent(0.01, DiscreteGaussianEvent(6.0, 1.5, 1000)), 10_000
    )
    assert rdp_epsilon(in_many, 1e-5) == found


def test_replaced_records_are_refused_but_for_a_sample_of_everybody():
    event = DiscreteGaussianEvent(3.0, 2)
    with pytest.raises(TypeError, match=r"relation='replace_one'.*Use 'add_remove'"):
        rdp(PoissonSampledEvent(0.5, event), [2.0], "replace_one")
    everybody = rdp(PoissonSampledEvent(1.0, event), [2.0], "replace_one")
    assert everybody == rdp(DiscreteGaussianEvent(3.0, 4), [2.0])
