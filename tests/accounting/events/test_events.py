"""Events: facts that survive JSON, refuse nonsense, and have the published costs."""

import dataclasses
import math

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import gammaln
from scipy.stats import norm

from skprivacy import accounting, mechanisms
from skprivacy.accounting import (
    ApproxDPEvent,
    ComposedEvent,
    GaussianEvent,
    GNMaxEvent,
    LaplaceEvent,
    PoissonSampledEvent,
    RepeatedEvent,
    epsilon_of,
)
from skprivacy.accounting.accountants import delta_of, rdp_delta, rdp_epsilon
from skprivacy.accounting.event import NoLossDistributionError
from skprivacy.accounting.events import (
    DiscreteGaussianEvent,
    ExponentialEvent,
    LNMaxEvent,
    LogisticEvent,
    NonPrivateEvent,
    PrivateSelectionEvent,
    RandomizedResponseEvent,
    SmoothGaussianEvent,
    VoteThresholdEvent,
)
from skprivacy.accounting.events.gnmax import gnmax_rdp
from skprivacy.accounting.pld.distribution import pld
from skprivacy.accounting.renyi import rdp

from .test_stored_events import EVENTS

oracle = pytest.importorskip(
    "dp_accounting.pld.privacy_loss_distribution", reason="compares with dp_accounting"
)


def has_both(event):
    """Whether there is a Renyi bound and a pair that is not itself a bound from another noise."""
    try:
        pair = event.dominating_pairs("zero_out")[0]  # streams have a pair under this relation
        return not pair.loose and bool(np.isfinite(rdp(event, [2.0], "zero_out")[0]))
    except TypeError:
        return False


BOTH = [event for event in EVENTS if has_both(event)]


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_events_are_frozen_and_cost_something(event):
    for field in dataclasses.fields(event):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(event, field.name, 1.0)
    assert (rdp(event, [1.5, 4.0, 30.0], "zero_out") > 0).all()


# For one pure event the best order is infinite, and the grid ends.
@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:The best Renyi order")
@pytest.mark.parametrize("event", BOTH, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("count", [1, 12])
def test_loss_distributions_are_tighter_than_renyi(event, count):
    repeated = RepeatedEvent(event, count)
    renyi = rdp_epsilon(repeated, 1e-6, "zero_out")
    assert 0 < pld(repeated, "zero_out").epsilon(1e-6) <= renyi * (1 + 1e-3)


@pytest.mark.parametrize("event", BOTH, ids=lambda e: type(e).__name__)
def test_renyi_of_the_pair_itself(event):
    """The moments of the dominating pair are the Renyi bound, or below it."""
    loss, p, _ = event.dominating_pairs("zero_out")[0].sketch()
    for a in (1.5, 3.0, 8.0):
        moment = np.log((p * np.exp((a - 1) * loss)).sum()) / (a - 1)
        assert moment <= rdp(event, [a], "zero_out")[0] * (1 + 2e-3)


@pytest.mark.parametrize("t", [0.01, 0.7, 5.0, 80.0])
def test_logistic_curve_is_the_closed_form(t):
    for eps in (0.0, 0.3 * t, 0.9 * t):
        exact = mp.expm1((eps - t) / 2) ** 2 / -mp.expm1(-t)
        assert pld(LogisticEvent(1 / t)).delta(eps) == pytest.approx(float(exact), rel=1e-9)
    assert pld(LogisticEvent(1 / t)).delta(0.0) == pytest.approx(math.tanh(t / 4))
    assert pld(LogisticEvent(1 / t)).delta(t) == 0
    assert pld(LogisticEvent(1 / t)).epsilon(0.0) == pytest.approx(t)


@pytest.mark.parametrize("make", [LaplaceEvent, LogisticEvent], ids=["laplace", "logistic"])
def test_one_coordinate_dominates_every_split_of_its_shift(make):
    for t, share in [(0.5, 0.5), (1.0, 0.1), (3.0, 0.3), (6.0, 0.5)]:
        whole = pld(make(1 / t))
        split = pld(ComposedEvent((make(1 / (share * t)), make(1 / ((1 - share) * t)))))
        for eps in np.linspace(0, 0.95 * t, 6):
            assert split.delta(eps) <= whole.delta(eps) * (1 + 1e-3) + 1e-12


@pytest.mark.parametrize(
    ("scale", "count", "q"),
    [(2.0, 30, 1.0), (1.0, 5, 1.0), (2.0, 100, 0.1), (5.0, 15, 0.9999999), (1.0, 3, 0.4)],
)
def test_laplace_between_the_optimistic_and_the_pessimistic_oracle(scale, count, q):
    grid = {"value_discretization_interval": 2e-5, "use_connect_dots": False, "sampling_prob": q}
    theirs = (
        oracle.from_laplace_mechanism(scale, pessimistic_estimate=above, **grid)
        for above in (False, True)
    )
    lower, upper = (loss.self_compose(count).get_epsilon_for_delta(1e-6) for loss in theirs)
    event = LaplaceEvent(scale) if q == 1 else PoissonSampledEvent(q, LaplaceEvent(scale))
    assert lower <= pld(RepeatedEvent(event, count)).epsilon(1e-6) <= upper * (1 + 1e-3)


def test_an_unbounded_loss_has_no_pure_epsilon():
    with pytest.raises(ValueError, match="unbounded"):
        pld(DiscreteGaussianEvent(3.0)).epsilon(0.0)


def test_exponential_covers_every_choice_between_two():
    """Any pair of distributions whose log ratio has a range of epsilon stays below the bounds."""
    epsilon, rng = 1.3, np.random.default_rng(1)
    for _ in range(60):
        q = rng.dirichlet(np.ones(5) * rng.choice([0.2, 1.0, 5.0]))
        tilt = np.exp(rng.uniform(0, epsilon, size=5))
        if rng.uniform() < 0.5:
            tilt = np.where(rng.uniform(size=5) < 0.5, 1.0, math.exp(epsilon))
        p = q * tilt / (q @ tilt)
        for eps in (0.0, 0.4, 1.0):
            attained = np.maximum(p - math.exp(eps) * q, 0).sum()
            assert attained <= pld(ExponentialEvent(epsilon)).delta(eps) + 1e-12
        for a in (1.5, 4.0, 20.0):
            attained = np.log((p**a * q ** (1 - a)).sum()) / (a - 1)
            assert attained <= rdp(ExponentialEvent(epsilon), [a])[0] * (1 + 1e-12)
    assert (rdp(ExponentialEvent(epsilon), [2, 9]) <= np.array([2, 9]) * epsilon**2 / 8).all()


def test_gnmax_golden_numbers():
    cost = [rdp(GNMaxEvent(40.0, v), [10])[0] for v in ((200, 30, 20), (240, 5, 5), (100, 90, 60))]
    np.testing.assert_allclose(cost, [7.446275358e-4, 1.752697699e-5, 0.00625], rtol=1e-9)
    assert rdp(GNMaxEvent(40.0), [10])[0] == 0.00625
    # one vote for certain costs nothing, and no bound is above the data-independent one
    assert rdp(GNMaxEvent(0.1, (1e6, 0)), [1.5])[0] == 0
    assert (gnmax_rdp(-1e-3, 40.0, np.array([2.0, 50.0])) == np.array([2.0, 50.0]) / 1600).all()


def test_lnmax_golden_numbers():
    cost = rdp(LNMaxEvent(20.0, (200, 30, 20)), [2, 9, 20])
    np.testing.assert_allclose(cost, [1.83721e-4, 2.25510e-4, 3.52164e-4], rtol=5e-6)
    published = 4 * 100 * 0.05**2 + 2 * 0.05 * math.sqrt(2 * 100 * math.log(1e5))
    assert published == pytest.approx(5.79853, abs=1e-5)
    # The published bound is 4 T g^2 where the same moments give 2 T g^2 at the best order.
    orders = np.linspace(1.5, 60, 4000)
    moments = rdp(RepeatedEvent(LNMaxEvent(20.0), 100), orders) + math.log(1e5) / (orders - 1)
    assert moments.min() == pytest.approx(published - 2 * 100 * 0.05**2, rel=1e-4)


def test_threshold_is_gnmax_at_root_two_sigma():
    sure = VoteThresholdEvent(10.0, (300.0, 0.0), 100.0)
    assert rdp(sure, [4])[0] < rdp(VoteThresholdEvent(10.0), [4])[0] == pytest.approx(4 / 200)
    unsure = VoteThresholdEvent(10.0, (100.0, 0.0), 100.0)
    assert rdp(unsure, [4])[0] == pytest.approx(4 / 200)


def test_a_private_cost_stays_private():
    event = ComposedEvent((GaussianEvent(1.0), RepeatedEvent(GNMaxEvent(40.0, (123.0, 45.0)), 2)))
    assert event.data_dependent
    assert not ComposedEvent((GNMaxEvent(40.0),)).data_dependent
    assert "123" not in repr(event)
    with pytest.raises(ValueError, match="private data"):
        event.to_dict()
    with pytest.raises(NoLossDistributionError, match="data-dependent"):
        pld(event)


@pytest.mark.parametrize("eta", [-0.5, 0.0, 1.0, 5.0])
@pytest.mark.parametrize("gamma", [0.01, 0.6])
def test_private_selection_counts_its_trials(eta, gamma):
    """The mean of the truncated negative binomial, by summing its probabilities."""
    k = np.arange(1, 20_000)
    weight = np.exp(gammaln(k + eta) - gammaln(k + 1) + k * np.log1p(-gamma))
    mean = (k * weight).sum() / weight.sum()
    selection = PrivateSelectionEvent(GaussianEvent(1.0), eta, gamma)
    assert selection.expected_trials == pytest.approx(mean)


@pytest.mark.parametrize("eta", [0.0, 1.0, 3.0])
def test_private_selection_is_its_formula_for_gaussian_noise(eta):
    z, gamma, a = 4.0, 0.2, 6.0
    best = math.sqrt(2 * z * z * math.log(1 / gamma))  # minimises (l-1)/(2 z^2) + ln(1/gamma)/l
    choice = (best - 1) / (2 * z * z) + math.log(1 / gamma) / best
    event = PrivateSelectionEvent(GaussianEvent(z), eta, gamma)
    expected = a / (2 * z * z) + (1 + eta) * choice + math.log(event.expected_trials) / (a - 1)
    assert expected <= rdp(event, [a])[0] <= expected * (1 + 1e-3)


def best_of_many(z, eta, gamma, sign):
    """Return densities of the best of K normal numbers, of mean 0 and of mean 1, on a grid."""
    x = np.linspace(-9 * z, 1 + 9 * z, 40_001)
    out = []
    for mean in (0, 1):
        worse = norm.cdf(sign * (x - mean) / z)
        weight = (1 - (1 - gamma) * worse) ** (-eta - 1)  # in proportion to f'(u)
        density = norm.pdf(x, mean, z) * weight
        out.append(density / density.sum())
    return out


@pytest.mark.parametrize("z", [0.7, 4.0])
@pytest.mark.parametrize(("eta", "gamma"), [(1.0, 0.1), (0.0, 0.02), (-0.5, 0.3), (4.0, 0.5)])
def test_private_selection_of_normal_numbers_stays_below_its_curve(z, eta, gamma):
    """The privacy curve by quadrature, in both directions, whichever end of the scale is best."""
    event = PrivateSelectionEvent(GaussianEvent(z), eta, gamma)
    epsilons = np.linspace(0, 3 / z, 13)
    bound = np.array([pld(event).delta(float(e)) for e in epsilons])
    for sign in (1, -1):
        p, q = best_of_many(z, eta, gamma, sign)
        for one, other in [(p, q), (q, p)]:
            exact = [np.maximum(one - math.exp(e) * other, 0).sum() for e in epsilons]
            assert (exact <= bound * (1 + 1e-6) + 1e-13).all()
    assert bound[-1] < 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("eta", "gamma"), [(1.0, 0.1), (0.0, 0.01), (5.0, 0.3)])
def test_private_selection_by_its_curve_is_cheaper_than_by_renyi(eta, gamma):
    run = RepeatedEvent(PoissonSampledEvent(0.01, GaussianEvent(2.0)), 500)
    event = PrivateSelectionEvent(run, eta, gamma)
    one, best = pld(run), pld(event)
    assert one.epsilon(1e-5) < best.epsilon(1e-5) < 0.85 * rdp_epsilon(event, 1e-5)
    assert epsilon_of(event, 1e-5) == best.epsilon(1e-5)
    # the theorem at one point, with the drift solved for independently
    drift = brentq(lambda e: (1 - gamma) * one.delta(e) - gamma * math.expm1(e), 1e-3, 5)
    expected = one.epsilon(1e-5 / event.expected_trials) + (eta + 1) * drift
    assert expected * (1 - 1e-3) <= best.epsilon(1e-5) <= expected * 1.04
    twice = pld(ComposedEvent((event, run)))
    assert best.epsilon(1e-5) < twice.epsilon(1e-5) < best.epsilon(1e-5) + one.epsilon(1e-5)


def test_private_selection_of_pure_and_of_unprotected_runs():
    event = PrivateSelectionEvent(ApproxDPEvent(0.4))
    assert pld(event).epsilon(0.0) <= 1.2  # Liu and Talwar 2019: three times one run
    assert epsilon_of(PrivateSelectionEvent(NonPrivateEvent()), 1e-5) == math.inf
    for run in (NonPrivateEvent(), GaussianEvent(0.01)):
        with pytest.raises(NoLossDistributionError, match="too large"):
            pld(PrivateSelectionEvent(run))
    assert 5000 < epsilon_of(PrivateSelectionEvent(GaussianEvent(0.01)), 1e-5) < math.inf


@pytest.mark.parametrize("t", [0.05, 1.0, 4.0])
def test_logistic_noise_is_dominated_by_normal_noise_in_any_dimension(t):
    bound = pld(LogisticEvent(1 / t, norm=2))
    for share in (0.0, 0.1, 0.5):
        a, b = t * math.sqrt(1 - share), t * math.sqrt(share)
        parts = tuple(LogisticEvent(1 / s) for s in (a, b) if s)
        split = pld(ComposedEvent(parts))
        for eps in np.linspace(0, 0.9 * t, 5):
            assert split.delta(eps) <= bound.delta(eps) * (1 + 1e-9) + 1e-15
    many = pld(RepeatedEvent(LogisticEvent(10 / t), 100))  # a hundred equal coordinates
    assert many.epsilon(1e-6) <= bound.epsilon(1e-6) * (1 + 1e-3)


def test_the_better_of_both_where_a_distribution_is_a_bound_only():
    event = RepeatedEvent(LogisticEvent(10.0, norm=2), 20)
    assert epsilon_of(event, 1e-3) == pld(event).epsilon(1e-3) < rdp_epsilon(event, 1e-3)
    assert epsilon_of(event, 1e-9) == rdp_epsilon(event, 1e-9) < pld(event).epsilon(1e-9)
    assert delta_of(event, 0.0) == pld(event).delta(0.0) < rdp_delta(event, 0.0)
    assert pld(RepeatedEvent(PoissonSampledEvent(0.1, LogisticEvent(2.0, norm=2)), 5)).loose
    assert not pld(RepeatedEvent(PoissonSampledEvent(0.1, LogisticEvent(2.0)), 5)).loose
    # no Renyi bound is known of the second part
    mixed = ComposedEvent(
        (event, PoissonSampledEvent(0.5, PoissonSampledEvent(0.2, LaplaceEvent(3.0))))
    )
    assert epsilon_of(mixed, 1e-5) == pld(mixed).epsilon(1e-5)


@pytest.mark.parametrize("gamma", [0.5, 0.05])
def test_private_selection_bounds_a_real_one(gamma):
    """The best of K coins, K geometric: its exact divergence stays below the bound."""
    epsilon = 0.4
    high = 1 / (1 + math.exp(-epsilon))

    def lowest(p):  # the probability that all K coins show the lower side
        return gamma * p / (1 - (1 - gamma) * p)

    p, q = lowest(high), lowest(1 - high)
    for first, second in [(p, q), (q, p)]:
        for a in (1.5, 4.0, 12.0):
            moment = first**a * second ** (1 - a) + (1 - first) ** a * (1 - second) ** (1 - a)
            bound = rdp(PrivateSelectionEvent(ApproxDPEvent(epsilon), 1.0, gamma), [a])[0]
            assert math.log(moment) / (a - 1) <= bound


@pytest.mark.parametrize(
    "event",
    [LaplaceEvent(2.0), ApproxDPEvent(0.5), RandomizedResponseEvent(0.5, 3), ExponentialEvent(0.5)],
    ids=lambda e: type(e).__name__,
)
def test_a_sample_of_a_pure_mechanism_is_amplified(event):
    sampled = PoissonSampledEvent(0.1, event)
    pure = math.log1p(0.1 * math.expm1(0.5))
    assert pld(sampled).epsilon(0.0) == pytest.approx(pure)
    assert rdp(sampled, [1e4])[0] == pytest.approx(pure, rel=1e-2)
    many = RepeatedEvent(sampled, 200)
    assert pld(many).epsilon(1e-6) <= rdp_epsilon(many, 1e-6)
    with pytest.raises(TypeError, match="replace_one"):
        rdp(sampled, [2], "replace_one")


def test_events_and_mechanisms_share_no_name():
    assert not set(accounting.__all__) & set(mechanisms.__all__)


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int16, np.int32, np.float16])
def test_no_number_overflows(kind):
    """Twice a hundred releases of a hundred are twenty thousand, also if numpy counts in bytes."""
    count = kind(100)
    if kind is not np.float16:
        many = RepeatedEvent(RepeatedEvent(ApproxDPEvent(0.1), count), count)
        assert epsilon_of(many, 0.0) == pytest.approx(1000.0)
    for event in (GaussianEvent(count), SmoothGaussianEvent(count, kind(1)), ApproxDPEvent(count)):
        assert not [value for value in vars(event).values() if isinstance(value, np.generic)]
    assert rdp(GaussianEvent(count), [2.0]) == pytest.approx(1e-4)
