"""Renyi accounting against the published numbers, dp-accounting and quadrature in mpmath."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skprivacy.accounting import (
    ApproxDPEvent,
    ComposedEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledEvent,
    RepeatedEvent,
)
from skprivacy.accounting.accountants import rdp_delta, rdp_epsilon
from skprivacy.accounting.events import LogisticEvent, NonPrivateEvent
from skprivacy.accounting.renyi import rdp
from skprivacy.accounting.work_limit import closed_form_work
from skprivacy.exceptions import PrivacyWarning

peer = pytest.importorskip("dp_accounting.rdp", reason="compares with dp_accounting")

# sampling rate, noise, steps, epsilon at 1e-5 by the classic and by the tight conversion
ORACLES = [
    (0.01, 4.0, 10_000, 1.2586, 1.03549),
    (256 / 60_000, 1.1, 14_062, 3.0083, 2.59656),
    (256 / 60_000, 1.3, 3_515, 1.1921, 0.95443),
    (256 / 60_000, 0.7, 10_546, 7.1013, 6.31946),
    (0.04, 1.5, 2_250, None, 7.32911),
]


def sgd(q, z, steps):
    return RepeatedEvent(PoissonSampledEvent(q, GaussianEvent(z)), steps)


@pytest.mark.parametrize(("q", "z", "steps", "classic", "tight"), ORACLES)
def test_published_epsilons(q, z, steps, classic, tight):
    orders = np.array(peer.rdp_privacy_accountant.DEFAULT_RDP_ORDERS, dtype=float)
    values = rdp(sgd(q, z, steps), orders)
    if classic is not None:
        assert (values + math.log(1e5) / (orders - 1)).min() == pytest.approx(classic, rel=2e-4)
    on_their_grid = values + np.log1p(-1 / orders) - np.log(orders * 1e-5) / (orders - 1)
    # Where their best order is fractional they are up to 3e-4 too high; see below.
    assert tight * (1 - 3e-4) < on_their_grid.min() < tight + 6e-6
    # Our grid is finer, so that ours may be a little smaller; it cannot be larger.
    ours = rdp_epsilon(sgd(q, z, steps), 1e-5)
    assert tight * (1 - 1e-3) < ours < tight + 6e-6


def renyi_by_quadrature(a, q, z, relation):
    with mp.workdps(40):
        a, q, z = mp.mpf(a), mp.mpf(q), mp.mpf(z)

        def p(x):
            return (1 - q) * mp.npdf(x, 0, z) + q * mp.npdf(x, 1, z)

        def base(x):
            far = mp.npdf(x, -1, z) if relation == "replace_one" else mp.npdf(x, 0, z)
            return (1 - q) * mp.npdf(x, 0, z) + q * far

        points = {-30 * z - 1, -12 * z, -4 * z, mp.mpf(0), mp.mpf(1), 4 * z, a, a + 30 * z}
        if relation == "replace_one":  # the far peak
            points |= {2 * a - 1, 2 * a - 1 + 30 * z}
        moment = mp.quad(lambda x: p(x) ** a * base(x) ** (1 - a), sorted(points))
        return mp.log(moment) / (a - 1)


@pytest.mark.everyday(4)
@pytest.mark.heavy
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("order", [1.01, 3.7, 6.0])
@pytest.mark.parametrize(
    ("q", "z"), [(0.01, 1.0), (1e-6, 0.5), (0.5, 0.3), (0.3, 20.0), (1.0, 2.0)]
)
def test_never_below_the_quadrature_nor_far_above(order, q, z, relation):
    exact = renyi_by_quadrature(order, q, z, relation)
    ours = rdp(PoissonSampledEvent(q, GaussianEvent(z)), [order], relation)[0]
    assert exact * (1 - 1e-15) <= ours <= exact * (1 + 1e-8)


@pytest.mark.everyday(2)
@pytest.mark.heavy
@pytest.mark.parametrize("shift", [1e-4, 0.019, 0.021, 1.0, 30.0])
def test_logistic_against_quadrature_and_its_zcdp_bound(shift):
    with mp.workdps(30):
        for a in (1.5, 4, 9):

            def density(x):
                return mp.exp(-abs(x)) / (1 + mp.exp(-abs(x))) ** 2

            moment = mp.quad(
                lambda x, a=a: density(x - shift) ** a * density(x) ** (1 - a),
                [-100, -10, 0, shift / 2, shift, shift + 10, shift + 100],
            )
            exact = mp.log(moment) / (a - 1)
            ours = rdp(LogisticEvent(1 / shift), [a])[0]
            assert float(abs(ours / exact - 1)) < 1e-6
            assert ours <= rdp(LogisticEvent(1 / shift, norm=2), [a])[0] * (1 + 1e-9)


@pytest.mark.parametrize("scale", [0.3, 1.0, 25.0])
def test_laplace_against_quadrature(scale):
    for a in (1.3, 2, 17):
        exact = mp.quad(
            lambda x, a=a: mp.exp(-a * abs(x - 1) / scale - (1 - a) * abs(x) / scale) / (2 * scale),
            [-60 * scale, 0, 1, 1 + 60 * scale],
        )
        exact = float(mp.log(exact) / (a - 1))
        assert rdp(LaplaceEvent(scale), [a])[0] == pytest.approx(exact, rel=1e-9)


def test_pure_dp_is_randomised_response():
    p = math.exp(2.0) / (1 + math.exp(2.0))
    exact = math.log(p**3 * (1 - p) ** -2 + (1 - p) ** 3 * p**-2) / 2
    assert rdp(ApproxDPEvent(2.0), [3])[0] == pytest.approx(exact, rel=1e-12)
    assert rdp(ApproxDPEvent(2.0), [1e6])[0] == pytest.approx(2.0, rel=1e-3)


def test_sampled_logistic_follows_the_gaussian_of_its_zcdp_and_rounds_orders_up():
    sampled = PoissonSampledEvent(0.1, LogisticEvent(2.0, norm=2))
    twin = PoissonSampledEvent(0.1, GaussianEvent(2.0 * math.sqrt(3)))
    np.testing.assert_allclose(rdp(sampled, [2, 9]), rdp(twin, [2, 9]))
    assert rdp(sampled, [2.5])[0] == rdp(sampled, [3])[0]


def test_failure_probability_is_paid_out_of_delta():
    event = ComposedEvent((GaussianEvent(3.0), RepeatedEvent(ApproxDPEvent(0.1, 1e-6), 4)))
    assert rdp_epsilon(event, 3e-6) == math.inf
    pure = ComposedEvent((GaussianEvent(3.0), RepeatedEvent(ApproxDPEvent(0.1), 4)))
    assert rdp_epsilon(event, 1e-5) > rdp_epsilon(pure, 1e-5)
    assert rdp_epsilon(event, 1e-5) == pytest.approx(rdp_epsilon(pure, 6e-6), rel=1e-5)


def test_delta_and_epsilon_are_inverse_where_the_order_is_shared():
    event = sgd(0.02, 1.0, 500)
    assert rdp_delta(event, rdp_epsilon(event, 1e-5)) == pytest.approx(1e-5, rel=1e-2)


@pytest.mark.heavy
@pytest.mark.parametrize("delta", [1e-300, 1e-12])
def test_small_deltas_stay_finite_and_ordered(delta):
    event = sgd(0.01, 1.0, 100)
    assert rdp_epsilon(event, 1e-5) < rdp_epsilon(event, delta) < math.inf


def test_edge_of_the_grid_warns():
    with pytest.warns(PrivacyWarning, match="edge of the grid"):
        rdp_epsilon(GaussianEvent(0.01), 0.5)
    with pytest.warns(PrivacyWarning, match="edge of the grid"):
        rdp_epsilon(GaussianEvent(1e5), 1e-5)


def test_undefined_is_infinite_and_unknown_raises():
    class Novel(Event):
        work = closed_form_work

    assert np.isinf(rdp(NonPrivateEvent(), [2])).all()
    assert np.isinf(rdp(ApproxDPEvent(1.0, 1e-9), [2])).all()
    assert np.isinf(rdp(GaussianEvent(1e-15), [1e300])).all()
    with pytest.raises(TypeError, match="Novel"):
        rdp(ComposedEvent((GaussianEvent(1.0), Novel())), [2])
    with pytest.raises(TypeError, match="Poisson sample of NonPrivate"):
        rdp(PoissonSampledEvent(0.5, NonPrivateEvent()), [2])


noises = st.floats(0.3, 20)
rates = st.floats(1e-6, 1)


@settings(deadline=None, max_examples=40)
@given(
    q=rates,
    z=noises,
    order=st.floats(1.01, 40),
    relation=st.sampled_from(["add_remove", "replace_one"]),
)
def test_monotone_in_noise_rate_and_order(q, z, order, relation):
    def at(q, z, order):
        return rdp(PoissonSampledEvent(q, GaussianEvent(z)), [order], relation)[0]

    value, slack = at(q, z, order), 1 + 1e-8
    assert 0 <= at(q, 1.1 * z, order) <= value * slack
    assert at(0.9 * q, z, order) <= value * slack
    assert value <= at(q, z, 1.1 * order) * slack
