"""Bounds and p-values hold for scores with ties of every kind, at every number of records."""

import itertools

import numpy as np
import pytest
from scipy.stats import binom, false_discovery_control, multinomial

from skprivacy.metrics import auc, epsilon_lower_bound
from skprivacy.metrics.evidence import mean_lower_bound
from skprivacy.metrics.rates import (
    auc_interval,
    auc_p_value,
    benjamini_hochberg,
    clopper_pearson,
    holm,
)

from .scores import responses

pytestmark = pytest.mark.heavy

SIZES = range(20, 6001, 47)


def most(runs, alpha):
    """Return what is exceeded less than once in a million by events of probability ``alpha``."""
    return binom.isf(1e-6, runs, alpha)


@pytest.mark.everyday(1)
@pytest.mark.parametrize("ratio", [1, 2])
def test_constant_scores_refute_nothing(ratio):
    shown = [epsilon_lower_bound(np.zeros(n), np.zeros(n // ratio), alpha=0.5) for n in SIZES]
    assert max(shown) == 0


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.05, 0.5])
@pytest.mark.parametrize("rate", [0.03, 0.5])
def test_two_valued_nulls_refute_no_more_than_alpha(rate, alpha):
    rng = np.random.default_rng(0)
    wrong = sum(
        epsilon_lower_bound(*(rng.random((2, n)) < rate).astype(float), alpha=alpha) > 0
        for n in SIZES
    )
    assert wrong <= most(len(SIZES), alpha)


def test_randomised_response_is_shown_nearly_as_bad_as_it_is():
    rng = np.random.default_rng(2)
    shown = [epsilon_lower_bound(*responses(rng, 1000, 1.0)) for _ in range(100)]
    assert np.median(shown) > 0.8


@pytest.mark.parametrize("n", [1, 2, 7, 20])
@pytest.mark.parametrize("alpha", [0.01, 0.2])
def test_mean_bound_is_exact_enough_for_wins_losses_and_ties(n, alpha):
    """The probability of every outcome of n pairs, for a grid of their probabilities."""
    won, tied = (np.array(v) for v in zip(*_outcomes(n), strict=True))
    bounds = np.array([mean_lower_bound(m, n, alpha) for m in np.arange(2 * n + 1) / (2 * n)])
    of_outcome = bounds[2 * won + tied]
    steps = np.linspace(0, 1, 11)
    for win, tie in itertools.product(steps, steps):
        if win + tie <= 1 + 1e-12:
            lose = max(0.0, 1 - win - tie)
            chance = multinomial.pmf(np.c_[won, tied, n - won - tied], n, [win, tie, lose])
            assert chance[of_outcome > win + tie / 2 + 1e-9].sum() <= alpha


def _outcomes(n):
    return ((won, tied) for won in range(n + 1) for tied in range(n + 1 - won))


@pytest.mark.parametrize("n", [200, 1000, 5000])
@pytest.mark.parametrize("rate", [0.55, 0.75, 0.98])
def test_mean_bound_is_nearly_as_sharp_as_one_for_coins_alone(n, rate):
    coins = float(clopper_pearson(rate * n, n, 0.05)[0])
    assert coins - 0.45 * np.sqrt(rate * (1 - rate) / n) < mean_lower_bound(rate, n, 0.025) <= coins


def test_mean_bound_of_ones_is_that_of_clopper_and_pearson():
    assert mean_lower_bound(1.0, 300, 0.02) == pytest.approx(0.02 ** (1 / 300))
    assert mean_lower_bound(0.0, 300, 0.02) == 0


@pytest.mark.parametrize("draw", ["normal", "integers"])
def test_area_bound_holds_for_an_average_over_all_pairs(draw):
    """Small samples and a large alpha, where a wrong tail shows."""
    rng, above = np.random.default_rng(3), 0
    for _ in range(500):
        if draw == "normal":
            members, others = rng.normal(size=(2, 12))
        else:
            members, others = rng.integers(0, 3, (2, 12)).astype(float)
        above += mean_lower_bound(auc(members, others), 12, 0.3) > 0.5
    assert above <= most(500, 0.3)


def test_members_that_score_low_are_found_too():
    rng = np.random.default_rng(4)
    low, high = rng.normal(size=1000), rng.normal(size=1000) + 2
    shown = epsilon_lower_bound(low, high, delta=1e-5)
    assert shown == pytest.approx(epsilon_lower_bound(high, low, delta=1e-5), rel=0.15)
    assert shown > 2
    a_little = epsilon_lower_bound(low, low[::-1] * 0.5 + high * 0.5)
    assert a_little > 0.3


# ---------------------------------------------------------------- p-values


def test_adjusted_p_values_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.5]).tolist() == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert benjamini_hochberg([0.01, 0.04, 0.03, 0.5]).tolist() == pytest.approx(
        [0.04, 0.16 / 3, 0.16 / 3, 0.5]
    )
    assert holm([0.4, 0.9]).tolist() == [0.8, 0.9]
    assert holm([]).size == benjamini_hochberg([]).size == 0


def test_false_discovery_is_that_of_scipy():
    p = np.random.default_rng(0).random(200) ** 2
    assert benjamini_hochberg(p) == pytest.approx(false_discovery_control(p))


@pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
def test_nan_p_values_do_not_count(adjust):
    found = adjust([0.01, np.nan, 0.02])
    assert np.isnan(found[1])
    assert found[[0, 2]].tolist() == adjust([0.01, 0.02]).tolist()


@pytest.mark.parametrize("alpha", [0.3, 0.05, 0.002])
def test_the_p_value_of_an_area_agrees_with_its_interval(alpha):
    rng = np.random.default_rng(0)
    for shift in np.linspace(0, 1.5, 40):
        scores = rng.normal(shift, 1, 40).round(1), rng.normal(0, 1, 25).round(1)
        low = auc_interval(*scores, alpha=alpha)[0]
        assert (low > 0.5) is (auc_p_value(*scores) < alpha / 2)


DRAWS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "coin": lambda rng, n: rng.integers(0, 2, n),
    "rare": lambda rng, n: rng.random(n) < 0.02,
    "common": lambda rng, n: rng.random(n) < 0.98,
    "constant": lambda rng, n: np.zeros(n),
    "heavy": lambda rng, n: rng.standard_cauchy(n),
}


@pytest.mark.parametrize("sizes", [(5, 5), (5, 1000), (40, 5), (60, 60)])
@pytest.mark.parametrize("draw", DRAWS)
def test_auc_of_one_half_is_rejected_at_most_at_alpha(draw, sizes):
    """Deep in the tail, where the tests of many groups are decided."""
    rng, runs = np.random.default_rng(0), 1500
    p = np.array([auc_p_value(*(DRAWS[draw](rng, n) for n in sizes)) for _ in range(runs)])
    for alpha in (0.2, 0.05, 0.01, 0.002):
        assert (p <= alpha).sum() <= binom.isf(1e-6, runs, alpha)
