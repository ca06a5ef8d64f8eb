"""A data-dependent cost that may be published."""

import math

import numpy as np
import pytest
from scipy import stats

from skprivacy.accounting import (
    ComposedEvent,
    GaussianEvent,
    GNMaxEvent,
    PrivacyBudget,
    RepeatedEvent,
    epsilon_of,
)
from skprivacy.accounting.events import LNMaxEvent, VoteThresholdEvent
from skprivacy.accounting.renyi import rdp
from skprivacy.accounting.smooth_sensitivity import smoothed_cost
from skprivacy.ensemble import sanitized_cost
from skprivacy.exceptions import BudgetExceededError, PrivacyWarning
from skprivacy.mechanisms import SecureRandom
from skprivacy.mechanisms.special_noise import SmoothGaussian

from ..mechanisms.chance import CONFIDENCE

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
