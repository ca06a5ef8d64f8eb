"""Groups of records: never below what they can lose, and as tight as each event allows."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import norm

from skprivacy.accounting import (
    ApproxDPEvent,
    ComposedEvent,
    Event,
    GaussianEvent,
    GNMaxEvent,
    LaplaceEvent,
    PoissonSampledEvent,
    PrivacyBudget,
    PrivacyGuarantee,
    RepeatedEvent,
    VoteBlockEvent,
    calibrate_noise_multiplier,
    epsilon_of,
)
from skprivacy.accounting.accountants import delta_of
from skprivacy.accounting.events import (
    BandedFactorizationEvent,
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    ExponentialEvent,
    LogisticEvent,
    NonPrivateEvent,
    PrivateSelectionEvent,
    RandomizedResponseEvent,
    ReportNoisyMaxEvent,
    SampledGroupEvent,
    SmoothGaussianEvent,
)
from skprivacy.accounting.events.mixtures import MixtureEvent
from skprivacy.accounting.group_privacy import group_epsilon
from skprivacy.accounting.pld.pairs import pair_from_curve, symmetric_pairs
from skprivacy.accounting.pld.sampled_pairs import MixedGaussians
from skprivacy.accounting.renyi import rdp
from skprivacy.accounting.work_limit import closed_form_work

from .events.test_mixtures import hockey_stick

GRID = np.linspace(-40, 60, 40_001)


def binomial(k, q):
    return [math.comb(k, j) * q**j * (1 - q) ** (k - j) for j in range(k + 1)]


def mixed(k, q, z, sign=1):
    density = sum(w * norm.pdf(GRID, sign * j, z) for j, w in enumerate(binomial(k, q)))
    return density * (GRID[1] - GRID[0])


def neighbours(k, q, z, relation):
    """Return the densities of one step for a group that is there and one that is not."""
    out = norm.pdf(GRID, 0, z) * (GRID[1] - GRID[0])
    return mixed(k, q, z), mixed(k, q, z, -1) if relation == "replace_one" else out


@pytest.mark.parametrize("relation", ["add_remove", "zero_out", "replace_one", "label"])
@pytest.mark.parametrize(("k", "q", "z"), [(1, 0.3, 1.0), (2, 0.05, 0.8), (5, 0.3, 2.0)])
def test_one_step_is_the_mixture_of_gaussians(k, q, z, relation):
    single = PrivacyGuarantee(PoissonSampledEvent(q, GaussianEvent(z)), 1e-5, relation)
    pair = neighbours(k, q, z, "replace_one" if relation == "label" else relation)
    for epsilon in (0.0, 0.1, 0.7, 2.0):
        exact = max(hockey_stick(*pair, epsilon), hockey_stick(*pair[::-1], epsilon))
        claimed = single.group(k).delta(epsilon)
        # the quadrature has an error of the order of its step squared, at the kink
        assert claimed == pytest.approx(exact, rel=2e-5, abs=1e-13)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_no_directions_of_a_groups_contributions_cost_more(relation):
    """In the plane, by quadrature: contributions of norm at most 1 that point anywhere."""
    rng = np.random.default_rng(0)
    k, q, z = 3, 0.4, 0.9
    axis = np.linspace(-7, 7, 281)
    plane = np.array(np.meshgrid(axis, axis)).reshape(2, -1)
    size = (axis[1] - axis[0]) ** 2 / (2 * math.pi * z**2)

    def density(vectors):
        total = np.zeros(plane.shape[1])
        for chosen in itertools.product([False, True], repeat=k):
            weight = q ** sum(chosen) * (1 - q) ** (k - sum(chosen))
            centre = vectors[list(chosen)].sum(axis=0)
            square = ((plane - centre[:, None]) ** 2).sum(axis=0)
            total += weight * np.exp(-square / (2 * z**2))
        return total * size

    bound = PrivacyGuarantee(PoissonSampledEvent(q, GaussianEvent(z)), 1e-5, relation).group(k)
    for trial in range(12):
        u, v = rng.normal(size=(2, k, 2))
        u /= np.maximum(np.linalg.norm(u, axis=1), 1e-9)[:, None]
        v *= rng.random((k, 1)) / np.linalg.norm(v, axis=1)[:, None]
        if trial == 0:  # the worst case itself
            u, v = np.tile([1.0, 0.0], (k, 1)), np.tile([-1.0, 0.0], (k, 1))
        p = density(u)
        other = density(v if relation == "replace_one" else 0 * v)
        for epsilon in (0.0, 0.5, 1.5):
            worst = max(hockey_stick(p, other, epsilon), hockey_stick(other, p, epsilon))
            assert worst <= bound.delta(epsilon) * (1 + 5e-4)  # of the quadrature, at its kink
            if trial == 0:
                assert worst == pytest.approx(bound.delta(epsilon), rel=1e-3)


@pytest.mark.slow
def test_dp_accounting_agrees():
    theirs = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    k, q, z, steps = 4, 0.02, 1.2, 50
    loss = theirs.from_mixture_gaussian_mechanism(
        z, list(range(k + 1)), binomial(k, q), value_discretization_interval=2e-3
    ).self_compose(steps)
    ours = epsilon_of(RepeatedEvent(SampledGroupEvent(q, GaussianEvent(z), k), steps), 1e-5)
    assert ours == pytest.approx(loss.get_epsilon_for_delta(1e-5), rel=2e-3)


@pytest.mark.slow
def test_the_figures_of_an_epsilon_1_model():
    """Steps as DP-SGD takes for Adult's records: 14.4 for ten rows, 6.17 for five."""

    def steps(z):
        return RepeatedEvent(PoissonSampledEvent(256 / 32_561, GaussianEvent(z)), 3000)

    noise = calibrate_noise_multiplier(steps, epsilon=1.0, delta=1e-5)
    single = PrivacyGuarantee(steps(noise), 1e-5)
    assert single.group(5).epsilon() == pytest.approx(6.17, abs=0.01)
    assert single.group(10).epsilon() == pytest.approx(14.4, abs=0.05)
    # what follows from the curve alone is little more, where one line of it was 6.67 and nothing
    assert group_epsilon(single.event, 5, 1e-5, "add_remove") == pytest.approx(6.2, abs=0.02)
    assert group_epsilon(single.event, 10, 1e-5, "add_remove") == pytest.approx(14.6, abs=0.05)


def test_many_records_are_rounded_up_and_never_down():
    event = GaussianEvent(3.0)
    for k in (64, 100, 1000):
        rounded = SampledGroupEvent(0.03, event, k)
        weights = tuple(w for w in binomial(k, 0.03) if w > 0)
        shifts = tuple(float(j) for j in range(len(weights)))
        exact = MixedGaussians(3.0, weights, shifts, (0.0,) * len(weights))
        for epsilon in (0.5, 3.0):
            p, q = exact.masses(np.array([epsilon]))
            delta = p[1] - math.exp(epsilon) * q[1]
            assert delta * (1 - 1e-9) <= delta_of(rounded, epsilon) <= 1.02 * delta


def test_renyi_bounds_are_the_moments_of_the_pair():
    for relation in ("add_remove", "replace_one"):
        event = SampledGroupEvent(0.2, GaussianEvent(1.5), 4)
        logs = [np.log(np.maximum(p, 1e-320)) for p in neighbours(4, 0.2, 1.5, relation)]
        for order in (1.5, 2.0, 7.0):
            exact = max(
                math.log(np.exp(order * p + (1 - order) * q)[p > -600].sum()) / (order - 1)
                for p, q in (logs, logs[::-1])
            )
            assert rdp(event, [order], relation)[0] == pytest.approx(exact, rel=1e-7)


def test_a_group_that_is_always_sampled_is_one_gaussian():
    group = SampledGroupEvent(1.0, GaussianEvent(6.0), 3)
    for relation, noise in (("add_remove", 2.0), ("label", 1.0)):
        expected = epsilon_of(GaussianEvent(noise), 1e-5)
        assert epsilon_of(group, 1e-5, relation) == pytest.approx(expected)


# ---- discrete mechanisms, whose outcomes can all be counted


def test_randomised_responses_of_a_group_are_all_outcomes_of_theirs():
    event = RandomizedResponseEvent(0.8)
    single = PrivacyGuarantee(RepeatedEvent(event, 2), 1e-3, "replace_one")
    high = 1 / (1 + math.exp(-0.8))
    for k in (2, 3):  # each of k records gives two responses
        outcomes = np.array(list(itertools.product([0, 1], repeat=2 * k)))
        p = np.where(outcomes, high, 1 - high).prod(axis=1)
        q = np.where(outcomes, 1 - high, high).prod(axis=1)
        for epsilon in (0.0, 0.5, 1.7):
            assert single.group(k).delta(epsilon) == pytest.approx(hockey_stick(p, q, epsilon))


@pytest.mark.parametrize("k", [2, 5])
def test_integer_noise_moves_by_as_many_steps(k):
    x = np.arange(-400, 401)
    gaussian, laplace = np.exp(-(x**2) / 72.0), np.exp(-abs(x) / 5.0)
    for event, weights in (
        (DiscreteGaussianEvent(6.0), gaussian),
        (DiscreteLaplaceEvent(5.0), laplace),
    ):
        p = weights / weights.sum()
        for epsilon in (0.0, 0.3, 0.9):
            exact = hockey_stick(np.roll(p, k), p, epsilon)
            claimed = PrivacyGuarantee(event, 1e-6).group(k).delta(epsilon)
            assert claimed == pytest.approx(exact, rel=1e-6, abs=1e-13)


# ---- from the curve alone


@dataclass(frozen=True)
class _Curve(Event, tag="tests.Curve"):
    """A release of which some points of the privacy curve are known."""

    epsilons: tuple
    deltas: tuple
    work = closed_form_work

    def dominating_pairs(self, relation):
        return symmetric_pairs(pair_from_curve(np.array(self.epsilons), np.array(self.deltas)))


def test_steps_along_a_gaussian_curve_are_exact():
    for k in (2, 5):
        exact = epsilon_of(GaussianEvent(10.0 / k), 1e-6)
        assert exact <= group_epsilon(GaussianEvent(10.0), k, 1e-6, "add_remove") < 1.001 * exact


@pytest.mark.slow
def test_steps_are_never_below_a_chain_of_discrete_mechanisms():
    """Walk k = 3 steps between random distributions, and take the curve of every step."""
    rng = np.random.default_rng(1)
    epsilons, k = np.linspace(0, 3, 200), 3
    for _ in range(5):
        chain = [rng.dirichlet(np.ones(6) * 4) for _ in range(k + 1)]
        steps = list(itertools.pairwise(chain))
        curve = [
            max(hockey_stick(*pair, e) for p, q in steps for pair in ((p, q), (q, p)))
            for e in epsilons
        ]
        worst = _Curve(tuple(epsilons), tuple(curve))
        for delta in (1e-3, 0.05):
            found = group_epsilon(worst, k, delta, "add_remove")
            assert hockey_stick(chain[0], chain[-1], found) <= delta * (1 + 1e-9)


def test_steps_are_at_most_those_along_one_line():
    event, delta = SmoothGaussianEvent(30.0, 0.001), 1e-5
    for k in (2, 4):
        lines = (
            k * e
            for e in np.linspace(0.01, 2, 300)
            if delta_of(event, e) * math.expm1(k * e) / math.expm1(e) <= delta
        )
        assert group_epsilon(event, k, delta, "zero_out") <= min(lines) * (1 + 1e-6)
    assert group_epsilon(event, 101, delta, "zero_out") > 101 * epsilon_of(event, delta) * 0.9


def test_groups_without_an_event_use_the_chained_curve():
    private = PrivacyGuarantee(RepeatedEvent(PoissonSampledEvent(0.1, LaplaceEvent(2.0)), 5), 1e-6)
    grouped = private.group(3)
    chained = group_epsilon(private.event, 3, 1e-6, "add_remove")
    assert grouped.event == ApproxDPEvent(chained, 1e-6)
    assert private.epsilon() < grouped.epsilon() <= 3 * private.epsilon(1e-9)
    pure = PrivacyGuarantee(RepeatedEvent(PoissonSampledEvent(0.1, LaplaceEvent(2.0)), 5))
    assert pure.group(3).epsilon() == pytest.approx(3 * pure.epsilon())


# ---- every event


GROUPED = [
    (LaplaceEvent(10.0), LaplaceEvent(10 / 3)),
    (LogisticEvent(9.0, norm=2), LogisticEvent(3.0, norm=2)),
    (ApproxDPEvent(0.5), ApproxDPEvent(1.5)),
    (ApproxDPEvent(0.5, 0.4), NonPrivateEvent()),
    (NonPrivateEvent(), NonPrivateEvent()),
    (ExponentialEvent(0.5), ExponentialEvent(1.5)),
    (ReportNoisyMaxEvent(0.5), ReportNoisyMaxEvent(1.5)),
    (DiscreteLaplaceEvent(1.0, 100_000), ApproxDPEvent(300_000.0)),
    (BandedFactorizationEvent(6.0, 10, 2), BandedFactorizationEvent(2.0, 10, 2)),
    (GNMaxEvent(40.0, moved=2), GNMaxEvent(40.0, moved=6)),
    (VoteBlockEvent("gnmax", 40.0, 5), VoteBlockEvent("gnmax", 40.0, 5, moved=3)),
    *(
        (around(30.0), around(10.0))
        for around in (
            lambda z: PrivateSelectionEvent(GaussianEvent(z), 0.0, 0.3),
            lambda z: MixtureEvent((0.5, 0.5), (LaplaceEvent(z), GaussianEvent(z))),
            lambda z: ComposedEvent((RepeatedEvent(LaplaceEvent(z), 2), GaussianEvent(z))),
        )
    ),
    (
        PoissonSampledEvent(0.5, PoissonSampledEvent(0.2, GaussianEvent(3.0))),
        SampledGroupEvent(0.1, GaussianEvent(3.0), 3),
    ),
    (SampledGroupEvent(0.1, GaussianEvent(3.0), 2), SampledGroupEvent(0.1, GaussianEvent(3.0), 6)),
]


@pytest.mark.parametrize(("one", "three"), GROUPED, ids=lambda e: type(e).__name__)
def test_the_event_of_a_group(one, three):
    assert PrivacyGuarantee(one, 1e-6, "zero_out").group(3).event == three


def test_a_bound_on_rows_makes_a_guarantee_for_people(tmp_path):
    visits = PrivacyGuarantee(GaussianEvent(20.0), 1e-6, "zero_out", assumptions=("a",))
    patients = visits.group(4, unit="patient")
    assert patients.unit == "patient"
    assert patients.assumptions == ("a", "no patient has more than 4 records")
    assert visits.group(1, unit="patient").assumptions[-1] == "no patient has more than 1 record"
    homes = patients.group(2, unit="home")
    assert homes.assumptions[-1] == "no home has more than 2 values of patient"
    assert homes.epsilon() == pytest.approx(visits.group(8).epsilon())
    budget = PrivacyBudget(epsilon=5.0, delta=1e-6, relation="zero_out", unit="patient")
    with pytest.raises(ValueError, match=r"group\(k, unit='patient'\)"):
        budget.reserve(visits.event, unit=visits.unit)
    budget.reserve(patients.event, unit=patients.unit)
    assert budget.spent() == pytest.approx(patients.epsilon(), rel=1e-3)
    with pytest.raises(ValueError, match="unit='patient'"):
        patients.group(2, unit="patient")
