"""Privacy loss distributions: never below the truth, and hardly above it."""

import dataclasses
import math
from functools import reduce

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from skprivacy.accounting import (
    ApproxDPEvent,
    ComposedEvent,
    Event,
    GaussianEvent,
    PoissonSampledEvent,
    RepeatedEvent,
)
from skprivacy.accounting.accountants import rdp_epsilon
from skprivacy.accounting.event import NoLossDistributionError
from skprivacy.accounting.events import NonPrivateEvent
from skprivacy.accounting.pld import compose as engine
from skprivacy.accounting.pld.distribution import pld
from skprivacy.accounting.pld.pairs import GaussianPair
from skprivacy.accounting.pld.saddle_point import Group, saddle_point
from skprivacy.accounting.pld.sampled_pairs import Removed
from skprivacy.accounting.work_limit import closed_form_work

from .rounding import PAIRS, curve, lattice_curve

oracle = pytest.importorskip(
    "dp_accounting.pld.privacy_loss_distribution", reason="compares with dp_accounting"
)

CLOSE = 1e-3  # the promised accuracy, upwards


def sgd(q, z, steps):
    return RepeatedEvent(PoissonSampledEvent(q, GaussianEvent(z)), steps)


@pytest.mark.parametrize(
    ("q", "z", "steps", "published"),
    [
        (0.01, 4.0, 10_000, 0.94700),
        (256 / 60_000, 1.1, 14_062, 2.38169),
        (256 / 60_000, 1.3, 3_515, 0.86446),
        (256 / 60_000, 0.7, 10_546, 5.63945),
        (0.01, 1.0, 10_000, 6.18771),
        (0.004, 0.6, 15_000, 10.38475),
        (0.04, 1.5, 2_250, 6.7688),  # 6.777 at dp-accounting's default, coarse grid
    ],
)
def test_published_epsilons(q, z, steps, published):
    # The published digits are themselves upper bounds of a grid, rounded.
    assert published * (1 - 2e-5) <= pld(sgd(q, z, steps)).epsilon(1e-5) <= published * (1 + CLOSE)


@pytest.mark.everyday(2)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("q", "z", "steps", "delta"),
    [
        (0.2, 2.0, 50, 1e-5),
        (0.3, 0.8, 2, 1e-5),
        (0.9, 5.0, 20, 1e-3),
        (1e-3, 0.5, 2_000, 1e-6),  # a heavy tail: a few large losses among many tiny ones
        (1e-4, 0.4, 300, 1e-7),
        (0.01, 1.0, 1_000, 1e-12),
    ],
)
def test_between_the_optimistic_and_the_pessimistic_oracle(q, z, steps, delta):
    grid = {"sampling_prob": q, "value_discretization_interval": 1e-4}
    below = {"use_connect_dots": False, "pessimistic_estimate": False}
    upper = oracle.from_gaussian_mechanism(z, **grid)
    lower = oracle.from_gaussian_mechanism(z, **grid, **below)
    ours = pld(sgd(q, z, steps)).epsilon(delta)
    assert lower.self_compose(steps).get_epsilon_for_delta(delta) < ours
    assert ours < upper.self_compose(steps).get_epsilon_for_delta(delta) * (1 + CLOSE)


def mixture(q, z, direction):
    """Return P's density, the loss, and the exact delta of one step at any real epsilon."""

    def base(x):
        return mp.npdf(x, 0, z)

    def mixed(x):
        return (1 - q) * mp.npdf(x, 0, z) + q * mp.npdf(x, 1, z)

    def base_above(x):
        return mp.ncdf(-x / z)

    def mixed_above(x):
        return (1 - q) * base_above(x) + q * mp.ncdf((1 - x) / z)

    def point(ratio):  # where mixed/base has the given value
        inside = (ratio - (1 - q)) / q
        return z**2 * mp.log(inside) + mp.mpf(1) / 2 if inside > 0 else -mp.inf

    if direction == "remove":

        def delta(eps):
            x = point(mp.exp(eps))
            return mixed_above(x) - mp.exp(eps) * base_above(x)

        return mixed, lambda x: mp.log(mixed(x) / base(x)), delta

    def delta(eps):
        x = point(mp.exp(-eps))
        return (1 - base_above(x)) - mp.exp(eps) * (1 - mixed_above(x))

    return base, lambda x: mp.log(base(x) / mixed(x)), delta


@pytest.mark.everyday(2)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("q", "z", "steps", "eps"),
    [
        *((*qz, steps, eps) for qz in [(0.01, 1.0), (0.3, 0.6), (0.9, 3.0)] for steps in (1, 2)
          for eps in (0.05, 1.0)),
        (3.1086e-4, 1.4482, 2, 4.0515e-3),  # a first plan's delta is a thousand times the true one
        (7.6311e-5, 1.2546, 2, 5.4828e-3),
        (0.0041, 0.363, 2, 0.372),
        (1.9e-4, 0.34, 2, 0.0037),
        (1e-4, 0.4, 2, 5.0),
        (0.3, 0.6, 2, 10.0),
    ],
)  # fmt: skip
def test_against_quadrature(q, z, steps, eps):
    """delta_2(e) = E[delta_1(e - L)]: exact for two steps, in 30 digits."""
    exact = 0
    with mp.workdps(30):
        for direction in ("remove", "add"):
            density, loss, delta = mixture(mp.mpf(q), mp.mpf(z), direction)
            if steps == 1:
                exact = max(exact, delta(mp.mpf(eps)))
                continue
            points = [-25 * z, *np.linspace(-6 * z, 1 + 6 * z, 14), 1 + 25 * z]
            both = mp.quad(lambda x: density(x) * delta(eps - loss(x)), points)  # noqa: B023
            exact = max(exact, both)
        ours = pld(sgd(q, z, steps)).delta(eps)
        # 1e-3 is promised of epsilon; delta is steeper
        assert exact * (1 - mp.mpf(10) ** -12) <= ours <= exact * (1 + 3 * CLOSE) + 1e-15


@pytest.mark.parametrize("delta", [0.3, 1e-2, 1e-5, 1e-12, 1e-50])
@pytest.mark.parametrize(("z", "count"), [(1.0, 2), (5.0, 30), (100.0, 10_000), (3000.0, 100_000)])
def test_the_engine_against_the_closed_form(z, count, delta):
    """Many Gaussians composed step by step must come out as the one Gaussian that they are."""
    groups = [Group(GaussianPair(z), count)]
    plan = saddle_point(groups, log_delta=math.log(delta))
    ours = engine.compose(
        groups, plan, 3e-4 * max(plan.epsilon * plan.slope, 0.01), lambda c: c.epsilon(delta)
    ).epsilon(delta)
    exact = pld(GaussianEvent(z / math.sqrt(count))).epsilon(delta)
    assert exact * (1 - 1e-9) <= ours <= exact * (1 + CLOSE) + 1e-9


@pytest.mark.parametrize("count", [1, 2, 7, 60])
@pytest.mark.parametrize("eps0", [0.05, 1.0])
def test_randomised_response_is_binomial(count, eps0):
    """Kairouz, Oh and Viswanath: the exact optimal composition of pure DP."""
    p = math.exp(eps0) / (1 + math.exp(eps0))
    wins = np.arange(count + 1)
    losses = (2 * wins - count) * eps0
    event = RepeatedEvent(ApproxDPEvent(eps0), count)
    for eps in np.linspace(0, count * eps0, 7)[:-1]:
        exact = (binom.pmf(wins, count, p) * np.maximum(1 - np.exp(eps - losses), 0)).sum()
        assert exact * (1 - 1e-9) <= pld(event).delta(eps) <= exact * (1 + 2e-3) + 1e-15
    assert pld(event).delta(count * eps0) == 0
    assert pld(event).epsilon(0.0) == pytest.approx(count * eps0)


@pytest.mark.heavy
def test_mixed_composition_against_the_oracle():
    many = RepeatedEvent(ApproxDPEvent(0.1), 5)
    event = ComposedEvent((sgd(0.02, 1.0, 400), sgd(0.1, 3.0, 50), GaussianEvent(2.0), many))
    grid = {"value_discretization_interval": 2e-4}
    flip = 2 / (1 + math.exp(0.1))
    theirs = (
        oracle.from_gaussian_mechanism(1.0, sampling_prob=0.02, **grid).self_compose(400),
        oracle.from_gaussian_mechanism(3.0, sampling_prob=0.1, **grid).self_compose(50),
        oracle.from_gaussian_mechanism(2.0, **grid),
        oracle.from_randomized_response(flip, 2, **grid).self_compose(5),
    )
    ours = pld(event).epsilon(1e-6)
    reference = reduce(lambda one, two: one.compose(two), theirs).get_epsilon_for_delta(1e-6)
    assert reference * (1 - 2e-4) <= ours <= reference * (1 + CLOSE)


def test_replace_one_is_the_worst_case_of_its_family():
    expected = pld(GaussianEvent(1 / math.sqrt(3))).epsilon(1e-5)
    assert pld(sgd(1.0, 2.0, 3), "replace_one").epsilon(1e-5) == pytest.approx(expected)
    single = pld(sgd(0.1, 1.0, 50)).epsilon(1e-5)
    assert single < pld(sgd(0.1, 1.0, 50), "replace_one").epsilon(1e-5)
    with pytest.raises(NoLossDistributionError, match="replace_one"):
        pld(PoissonSampledEvent(0.1, ApproxDPEvent(1.0)), "replace_one")


def test_zero_out_is_add_remove_under_poisson_sampling():
    event = sgd(0.02, 1.2, 300)
    assert pld(event, "zero_out").epsilon(1e-5) == pld(event).epsilon(1e-5)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("step", "tail"), [(0.1, 1e-9), (0.007, 1e-3)])
def test_connecting_the_dots_meets_the_curve_at_every_dot(name, step, tail):
    """On the grid the two curves agree, but for the tail; between its points ours is above."""
    pair = PAIRS[name]
    lattice = engine._connect_the_dots(pair, step, tail)
    assert lattice.mass.sum() + lattice.infinity == pytest.approx(1, abs=1e-12)
    cut = lattice.infinity - pair.infinity
    assert cut <= 1.3 * tail  # about tail is what was asked for
    for eps in [0.0, 3 * step, 7 * step, 0.61, 0.955]:
        exact, ours = curve(pair, eps), lattice_curve(lattice, eps)
        assert ours >= exact - 1e-13
        if abs(eps / step - round(eps / step)) < 1e-9:
            assert ours <= exact + cut + tail + 1e-11
    coarse = engine._coarsen(lattice)
    assert coarse.mass.sum() == pytest.approx(lattice.mass.sum(), abs=1e-12)
    kept = [c.mass @ np.exp(-c.loss) for c in (lattice, coarse)]
    assert kept[0] == pytest.approx(kept[1], rel=1e-12)


@pytest.mark.parametrize("delta", [0.2, 1e-3, 1e-9])
def test_loss_above_the_window_is_counted_as_infinite(delta):
    groups = [Group(GaussianPair(1.0), 10)]  # together N(5, 10)
    plan = saddle_point(groups, log_delta=math.log(delta))
    lattices = [engine._connect_the_dots(groups[0].pair, 0.01, 1e-14)]
    _, high, beyond = engine._find_window(groups, lattices, plan)
    lost = norm.sf((high - 5) / math.sqrt(10))
    assert 0 < lost <= beyond <= 1e-4 * delta
    assert engine._transform(groups, lattices, plan).infinity >= beyond


def test_a_bad_plan_only_costs_accuracy():
    """Loss outside the window wraps around or becomes infinite: never is it forgotten."""

    def sharp(composed):
        return math.log(composed.delta(plan.epsilon))

    groups = [Group(Removed(GaussianPair(1.0), 0.05), 200)]
    plan = saddle_point(groups, log_delta=math.log(1e-5))
    good = engine.compose(groups, plan, 1e-3, sharp).delta(plan.epsilon)
    for bad in (
        {"theta": plan.theta / 10},
        {"theta": plan.theta * 2},
        {"pull": plan.pull / 9, "push": plan.push / 9},
        {"pull": plan.pull * 9, "order": plan.order * 3},
        {"log_delta": plan.log_delta + 6},
        {"log_delta": plan.log_delta + 11, "epsilon": plan.epsilon / 4},
    ):
        composed = engine.compose(groups, dataclasses.replace(plan, **bad), 1e-3)
        assert composed.delta(plan.epsilon) > good * (1 - 1e-3)


def test_extremes():
    assert pld(NonPrivateEvent()).epsilon(0.5) == math.inf
    assert pld(ComposedEvent((NonPrivateEvent(), sgd(0.1, 1.0, 5)))).delta(3.0) == 1.0
    assert pld(ComposedEvent(())).epsilon(0.0) == 0.0
    assert pld(RepeatedEvent(GaussianEvent(1.0), 0)).delta(0.0) == 0.0
    assert pld(ApproxDPEvent(0.0, 1e-3)).epsilon(1e-3) == 0.0
    assert pld(ApproxDPEvent(1.0, 1e-3)).epsilon(1e-4) == math.inf
    assert pld(ApproxDPEvent(1.0, 1e-3)).epsilon(1e-3) == pytest.approx(1.0)
    assert pld(sgd(0.5, 0.05, 3)).epsilon(1e-5) > 400
    assert pld(GaussianEvent(1.0)).epsilon(0.99) == 0.0


def test_an_event_without_a_pair_has_no_distribution():
    class Novel(Event):
        work = closed_form_work

    with pytest.raises(NoLossDistributionError, match="Novel"):
        pld(Novel())


@pytest.mark.heavy
@settings(deadline=None, max_examples=6)
@given(
    q=st.floats(1e-4, 0.99),
    z=st.floats(0.6, 10),
    steps=st.integers(2, 3_000),
    log_delta=st.floats(-12, -2),
    relation=st.sampled_from(["add_remove", "replace_one"]),
)
@example(q=0.005, z=0.4, steps=2_000, log_delta=-6.0, relation="add_remove")
def test_monotone_consistent_and_below_renyi(q, z, steps, log_delta, relation):
    def epsilon(q=q, z=z, steps=steps, log_delta=log_delta):
        return pld(sgd(q, z, steps), relation).epsilon(10.0**log_delta)

    value, slack, tiny = epsilon(), 1 + CLOSE, 1e-7
    assert 0 <= epsilon(z=1.05 * z) <= value * slack + tiny
    assert epsilon(q=0.95 * q) <= value * slack + tiny
    assert epsilon(log_delta=log_delta / 1.05) <= value * slack + tiny
    assert value <= epsilon(steps=steps + 1 + steps // 20) * slack + tiny
    assert value <= rdp_epsilon(sgd(q, z, steps), 10.0**log_delta, relation) * slack + tiny
    # delta at that epsilon is what was asked for, up to the accuracy of both
    if value > 1e-3:
        assert pld(sgd(q, z, steps), relation).delta(value * 1.002) <= 10.0**log_delta


@pytest.mark.heavy
def test_curve_is_valid_at_every_point():
    distribution = pld(sgd(0.02, 1.0, 300))
    epsilons = np.linspace(0, 5, 40)
    curve = distribution.deltas(epsilons)
    assert (np.diff(curve) <= 0).all()
    sharp = np.array([distribution.delta(float(e)) for e in epsilons[::5]])
    assert (curve[::5] >= sharp * (1 - 1e-3)).all()
    np.testing.assert_allclose(curve[::5], sharp, rtol=3e-2)
