"""Vote analysis: published numbers, the costs of queries, and costs that may be published."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from skprivacy.accounting import (
    ComposedEvent,
    GaussianEvent,
    GNMaxEvent,
    LaplaceEvent,
    PrivacyBudget,
    RepeatedEvent,
    epsilon_of,
)
from skprivacy.accounting.events import LNMaxEvent, VoteThresholdEvent
from skprivacy.accounting.renyi import rdp
from skprivacy.accounting.smooth_sensitivity import smoothed_cost
from skprivacy.ensemble import (
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    analyze_votes,
    sanitized_cost,
)
from skprivacy.exceptions import BudgetExceededError, PrivacyLeakWarning, PrivacyWarning
from skprivacy.mechanisms import SecureRandom
from skprivacy.mechanisms.special_noise import SmoothGaussian

from ..mechanisms.chance import CONFIDENCE


def random_votes(n, n_classes=10, teachers=250, seed=0):
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(n_classes, 0.2), size=n)
    return np.array([rng.multinomial(teachers, p) for p in share])


@pytest.mark.parametrize(
    ("aggregator", "events"),
    [
        (GNMax(40.0), lambda v: [GNMaxEvent(40.0, v)]),
        (LNMax(20.0), lambda v: [LNMaxEvent(20.0, v)]),
        (
            ConfidentGNMax(200.0, 300, threshold_noise=150.0, noise=40.0),
            lambda v: [VoteThresholdEvent(150.0, v, 200.0), GNMaxEvent(40.0, v)],
        ),
    ],
)
def test_a_matrix_costs_what_its_rows_cost_one_by_one(aggregator, events):
    votes = random_votes(60)
    found = analyze_votes(votes, aggregator)
    for counts, dependent, independent in zip(
        votes, found.dependent, found.independent, strict=True
    ):
        known = [rdp(event, found.orders) for event in events(tuple(counts.tolist()))]
        np.testing.assert_allclose(dependent, sum(known), rtol=1e-9)
        plain = [type(event)(event.noise_multiplier) for event in events(None)]
        np.testing.assert_allclose(
            independent, sum(rdp(event, found.orders) for event in plain), rtol=1e-9
        )
    assert (found.dependent <= found.independent * (1 + 1e-12)).all()


def test_the_published_numbers_of_single_queries():
    """Papernot et al. 2018, sigma 40, order 10; and LNMax of scale 20 at orders 2, 9 and 20."""
    votes = [[200, 30, 20], [240, 5, 5], [100, 90, 60]]
    found = analyze_votes(votes, GNMax(40.0), moments=9)
    assert found.dependent[:, -1] == pytest.approx(
        [7.446275358e-4, 1.752697699e-5, 0.00625], rel=1e-8
    )
    laplace = analyze_votes(votes[:1], LNMax(20.0), moments=19)
    at = [list(laplace.orders).index(a) for a in (2, 9, 20)]
    assert laplace.dependent[0, at] == pytest.approx([1.83721e-4, 2.25510e-4, 3.52164e-4], rel=1e-5)


def script_moments(votes, gamma, n_moments=8):
    """Return the sum of log moments as the published script takes them, one query at a time."""
    total = np.zeros(n_moments)
    for counts in votes:
        gaps = gamma * (counts.max() - np.delete(counts, counts.argmax()))
        q = sum((gap + 2) / (4 * math.exp(gap)) for gap in gaps)
        cost = 2 * gamma
        for i, order in enumerate(range(1, n_moments + 1)):
            bounds = [cost**2 / 2 * order * (order + 1), cost * order]
            if 0 < q < 1 / (1 + math.exp(cost)):
                good = (1 - q) * ((1 - q) / (1 - math.exp(cost) * q)) ** order
                bounds.append(math.log(good + q * math.exp(cost * order)))
            total[i] += min(bounds)
    return total


def test_the_script_of_the_paper_prints_the_same_epsilon():
    votes = random_votes(100)
    moments = script_moments(votes, 0.1)
    found = analyze_votes(votes, LNMax(10.0), moments=8, conversion="classic")
    with pytest.warns(PrivacyLeakWarning):
        private = found.private_epsilon()
    printed = (moments - math.log(1e-5)) / np.arange(1, 9)
    assert private == pytest.approx(printed.min(), rel=1e-12)
    assert private < found.epsilon()


@pytest.mark.parametrize(
    ("n_queries", "delta", "quoted"), [(1000, 1e-6, 26.6226), (100, 1e-5, 5.79853)]
)
def test_the_first_paper_quotes_strong_composition(n_queries, delta, quoted):
    """SVHN and MNIST: Laplace noise of gamma .05, whatever the votes."""
    votes = np.tile([125, 125], (n_queries, 1))
    found = analyze_votes(votes, LNMax(20.0), delta=delta, conversion="strong")
    assert found.epsilon() == pytest.approx(quoted, abs=5e-5)
    assert found.epsilon(10) < found.epsilon()
    # It is a bound, far above the proof for as many answers at a pure cost of .1 each.
    proved = epsilon_of(RepeatedEvent(LaplaceEvent(10.0), n_queries), delta)
    assert proved < analyze_votes(votes, LNMax(20.0), delta=delta).epsilon() < found.epsilon()
    with pytest.raises(ValueError, match="does not use votes"):
        found.private_epsilon()


def test_the_private_epsilon_is_only_told_with_a_warning():
    votes = np.tile([240, 5, 5], (100, 1))
    found = analyze_votes(votes, GNMax(40.0))
    with pytest.warns(PrivacyLeakWarning, match="do not publish"):
        private = found.private_epsilon()
    assert private < found.epsilon()
    assert str(private)[:6] not in repr(found)
    assert "dependent" not in repr(found)


def test_the_first_queries_and_those_without_an_answer():
    votes = random_votes(100)
    confident = ConfidentGNMax(200.0, 300, threshold_noise=150.0, noise=40.0)
    everything = analyze_votes(votes, confident)
    tests = analyze_votes(votes, confident, answered=np.zeros(100, bool))
    epsilons = [everything.epsilon(n) for n in (1, 50, 100)]
    assert epsilons == sorted(epsilons)
    assert epsilons[-1] == everything.epsilon()
    cost = tests.independent.sum(axis=0)
    a = tests.orders
    expected = np.min(cost + np.log1p(-1 / a) - np.log(a * 1e-5) / (a - 1))
    assert tests.epsilon() == pytest.approx(expected)
    assert tests.epsilon() < everything.epsilon()


@pytest.mark.parametrize(
    ("votes", "params", "named"),
    [
        ([1, 2, 3], {}, "shape"),
        ([[1.0, math.nan]], {}, "finite counts"),
        ([[1, -1]], {}, "finite counts"),
        ([[0.8, 0.2]], {}, "not shares"),
        ([[1, 2]], {"delta": 0.0}, "delta"),
        ([[1, 2]], {"moments": 0}, "moments"),
        ([[1, 2]], {"conversion": "loose"}, "conversion"),
        ([[1, 2]], {"conversion": "strong"}, "is for LNMax"),
        ([[1, 2]], {"conversion": "strong", "aggregator": LNMax(9.0), "moments": 8}, "moments=8"),
        ([[1, 2]], {"aggregator": InteractiveGNMax(9.0, 3, noise=9.0)}, "no data-dependent cost"),
        ([[1, 2]], {"answered": [True, False]}, "answered"),
        ([[1, 2]], {"aggregator": GNMax()}, "aggregator"),
    ],
)
def test_bad_input_is_named(votes, params, named):
    with pytest.raises(ValueError, match=named):
        analyze_votes(votes, **{"aggregator": GNMax(40.0), **params})


VOTES = RepeatedEvent(GNMaxEvent(40.0, votes=(220, 20, 10)), 1000)


def test_publishes_less_than_the_worst_case_and_hides_the_votes():
    published = sanitized_cost(VOTES, 6.0)
    independent = epsilon_of(RepeatedEvent(GNMaxEvent(40.0), 1000), 1e-5)
    assert published.epsilon(1e-5) < independent + 1  # typically 3.2 against 4.98
    assert "220" not in repr(published)
    assert "sanitised" in repr(published)
    assert published.release.to_dict()["type"] == "SmoothGaussian"


def test_its_epsilon_counts_the_votes_the_release_and_the_conversion():
    published = sanitized_cost(VOTES, 6.0)
    own = rdp(published.release, [6.0])[0]
    assert own > 0.1
    total = published.renyi + own + math.log(5 / 6) - math.log(6e-5) / 5
    assert published.epsilon(1e-5) == pytest.approx(total)


@pytest.mark.slow
def test_is_as_reliable_as_it_says_and_noisy_as_it_says():
    value = smoothed_cost(VOTES, 6.0, 0.04)
    z, lift = 5.0, 5.0 * 1.2815515655446004  # the ninetieth percentile
    mechanism = SmoothGaussian(z, 0.04, lift, upper=100.0)
    random = SecureRandom(seed=1)
    found = np.array([mechanism.release(value, random) for _ in range(2000)])
    inside = (found[found > 0] - value.cost) / value.sensitivity  # what is below 0 is cut off
    assert stats.binomtest(int((found >= value.cost).sum()), 2000, 0.9).pvalue > CONFIDENCE
    cut = -(value.cost / value.sensitivity + lift) / z
    law = stats.truncnorm(cut, math.inf, loc=lift, scale=z)
    assert stats.kstest(inside, law.cdf).pvalue > CONFIDENCE
    assert (found % mechanism.grid == 0).all()
    assert (found <= 100.0).all()


def test_the_worst_case_is_the_most_that_is_published():
    torn = RepeatedEvent(GNMaxEvent(40.0, votes=(130, 120)), 1000)
    upper = rdp(RepeatedEvent(GNMaxEvent(40.0), 1000), [6.0])[0]
    for _ in range(20):
        assert 0 <= sanitized_cost(torn, 6.0).renyi <= upper


def test_the_release_is_charged_before_the_votes_are_looked_at():
    budget = PrivacyBudget(epsilon=3.0, delta=1e-5)
    event = ComposedEvent((GNMaxEvent(40.0, (200, 50)), VoteThresholdEvent(80.0, (200, 50), 150.0)))
    published = sanitized_cost(event, 6.0, noise_multiplier=12.0, budget=budget)
    assert list(budget.entries()["event"]) == [published.release]
    assert budget.spent() > 0
    poor = PrivacyBudget(epsilon=0.01, delta=1e-5)
    with pytest.raises(BudgetExceededError):
        sanitized_cost(event, 6.0, budget=poor)
    with (
        pytest.warns(PrivacyWarning, match="noise_seed"),
        pytest.raises(ValueError, match="proved"),
    ):
        sanitized_cost(event, 6.0, budget=budget, noise_seed=1)


def test_a_seed_makes_it_an_estimate():
    with pytest.warns(PrivacyWarning, match="noise_seed=3"):
        one = sanitized_cost(VOTES, 6.0, noise_seed=3)
    with pytest.warns(PrivacyWarning, match="noise_seed=3"):
        two = sanitized_cost(VOTES, 6.0, noise_seed=3)
    assert one == two
    assert "estimate" in repr(one)
    assert "seed" not in repr(one)
    fresh = {sanitized_cost(VOTES, 6.0) for _ in range(9)}
    assert len(fresh) > 1  # one in 266 is cut off at 0, where it may meet another


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"order": 1.0}, ValueError, "order"),
        ({"alpha": 0.5}, ValueError, "alpha=0.5"),
        ({"alpha": 0.0}, ValueError, "alpha=0.0"),
        ({"noise_multiplier": -1.0}, ValueError, "noise_multiplier=-1.0"),
        ({"event": LNMaxEvent(4.0, (10, 0))}, TypeError, "LNMaxEvent"),
    ],
)
def test_bad_values(arguments, error, message):
    with pytest.raises(error, match=message):
        sanitized_cost(**({"event": VOTES, "order": 6.0} | arguments))
    with pytest.raises(ValueError, match="delta=0"):
        sanitized_cost(ComposedEvent((GaussianEvent(2.0), VOTES)), 6.0).epsilon(0.0)
