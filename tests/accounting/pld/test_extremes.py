"""Where numbers leave their comfortable range: found by attacking the accountants."""

import math
import tracemalloc

import numpy as np
import pytest

from skprivacy.accounting import (
    ComposedEvent,
    GaussianEvent,
    GNMaxEvent,
    PoissonSampledEvent,
    PrivacyGuarantee,
    RepeatedEvent,
    calibrate_noise_multiplier,
    epsilon_of,
)
from skprivacy.accounting import renyi as _renyi
from skprivacy.accounting.accountants import rdp_epsilon
from skprivacy.accounting.pld.compose import ComposedLoss
from skprivacy.accounting.pld.distribution import pld
from skprivacy.accounting.renyi import rdp

from ..test_renyi import renyi_by_quadrature

pytestmark = pytest.mark.heavy


def sampled(q, z, count):
    return RepeatedEvent(PoissonSampledEvent(q, GaussianEvent(z)), count)


PARTS = (0.0013, 39.4, 351476), (0.39858, 0.20679, 58195), (0.99999434, 3.6034, 119201)
ENORMOUS = [
    (sampled(0.5, 0.2, 10**5), 1e-15),
    (sampled(0.999, 0.5, 10**5), 1e-15),
    (sampled(0.1, 0.2, 10**6), 1e-12),
    (sampled(0.9, 1.0, 10**6), 1e-15),
    (ComposedEvent(tuple(sampled(*part) for part in PARTS)), 1.58e-15),
]


# The best Renyi order of such a loss is the least there is.
@pytest.mark.everyday(2)
@pytest.mark.filterwarnings("ignore:The best Renyi order")
@pytest.mark.parametrize(("event", "delta"), ENORMOUS)
def test_enormous_epsilon_is_finite(event, delta):
    epsilon = epsilon_of(event, delta)
    renyi = rdp_epsilon(event, delta)
    # So far out the two bounds differ by per cents: both are about the mean of the loss.
    assert 0.9 * renyi < epsilon <= renyi


@pytest.mark.slow
@pytest.mark.parametrize(("event", "delta"), ENORMOUS[:3])
def test_far_below_the_window_delta_is_one(event, delta):
    loss = pld(event)
    for epsilon in (0.0, 100.0, 0.1 * loss.epsilon(delta)):
        assert loss.delta(epsilon) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("q", "z", "order"), [(1.0, 1.0, 64), (1.0, 0.7, 1000), (0.999, 1.0, 30)])
def test_renyi_of_replacement_sees_the_far_peak(q, z, order):
    truth = renyi_by_quadrature(order, q, z, "replace_one")
    event = PoissonSampledEvent(q, GaussianEvent(z))
    found = float(rdp(event, np.array([float(order)]), "replace_one")[0])
    assert truth * (1 - 1e-9) <= found <= truth * (1 + 1e-6)


def test_a_withheld_epsilon_is_not_derived_either():
    guarantee = PrivacyGuarantee(GNMaxEvent(40.0, votes=(200.0, 30.0, 20.0)), 1e-6)
    for derive in (lambda: guarantee.group(2), guarantee.as_replace_one):
        with pytest.raises(ValueError, match="withheld"):
            derive()


def test_the_curve_is_one_for_every_epsilon_below_a_certain_loss():
    assert math.isclose(pld(sampled(1.0, 0.01, 100)).delta(1000.0), 1.0)


def test_a_curve_that_passes_below_the_window_is_followed_there():
    """The line of the first cell, drawn on to the left, lies below the curve: epsilon came out as
    0, or the logarithm of a negative number was asked for."""
    composed = ComposedLoss(
        loss=np.array([5.0, 6.0, 7.0]), mass=np.array([0.5, 0.3, 0.2]),
        theta=0.0, log_mgf=0.0, infinity=0.0, error=0.0,
    )  # fmt: skip
    for delta in (0.99, 0.9, 0.5, 0.4, 0.37, 0.3):
        assert composed.delta(composed.epsilon(delta)) == pytest.approx(delta, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_tiny_noise_needs_little_memory(relation):
    """A sample drawn less often than delta needs no noise."""
    event = sampled(1e-6, 1e-9, 2)
    tracemalloc.start()
    assert 0 <= epsilon_of(event, 1e-2, relation) < 1e-3
    assert epsilon_of(event, 1e-9, relation) > 1e6
    assert tracemalloc.get_traced_memory()[1] < 1e9
    tracemalloc.stop()


@pytest.mark.slow
def test_loose_target_is_calibrated():
    noise = calibrate_noise_multiplier(lambda z: sampled(1e-6, z, 2), epsilon=5.0, delta=1e-2)
    assert epsilon_of(sampled(1e-6, noise, 2), 1e-2) <= 5.0


@pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
@pytest.mark.parametrize("noise", [1e-15, 1e-5, 1e-3, 1e15])
def test_every_order_has_an_answer_for_extreme_noise(noise, relation):
    """A quadrature with a node for every trace of the noise would take 300 GiB."""
    event = PoissonSampledEvent(0.01, GaussianEvent(noise))
    costs = rdp(event, np.array([1.01, 1.5, 2.0, 3.7, 64.0, 1000.5]), relation)
    assert np.isfinite(costs).all()
    assert (np.diff(costs) >= 0).all()


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("order", [1.3, 2.5, 17.5])
def test_the_bound_for_little_noise_is_one(order, relation, monkeypatch):
    event = PoissonSampledEvent(0.1, GaussianEvent(0.2))
    exact = rdp(event, [order], relation)
    monkeypatch.setattr(_renyi, "_MAX_NODES", 0)
    assert exact < rdp(event, [order], relation)
