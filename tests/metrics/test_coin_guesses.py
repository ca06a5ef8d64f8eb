"""Bounds from guesses of coins: golden numbers, exact errors, interference, tightness."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from scipy import stats

from skprivacy.metrics import bound_from_guesses
from skprivacy.metrics.coin_guesses import (
    best_n_guesses,
    default_guess_sizes,
    default_n_guesses,
    epsilon_from_guesses,
    guess_top_scores,
    inverse_gaussian_curve,
    inverse_line_curve,
    refutes_curve,
)

ALPHA = 0.05


@pytest.mark.parametrize(
    ("counts", "bound", "epsilon", "within"),
    [
        ((400, 400, 280), "gaussian", 1.3382, 1e-4),
        ((2000, 2000, 1383), "gaussian", 1.3054, 1e-4),
        ((2000, 200, 180), "gaussian", 2.6578, 1e-4),
        ((10000, 500, 470), "gaussian", 3.2735, 1e-4),
        ((10000, 2500, 2136), "product", 4.1371, 1.3e-3),
        ((10000, 10000, 6915), "product", 4.1592, 1e-4),
        ((1000, 250, 214), "product", 3.6327, 1.3e-3),
    ],
)
def test_golden_numbers(counts, bound, epsilon, within):
    n_coins, guesses, right = counts
    found = bound_from_guesses(right, guesses, n_coins, bound=bound, delta=1e-5)
    assert found.epsilon == pytest.approx(epsilon, abs=within)


def law_of_refutation(inverse, guesses, n_coins):
    """Return for every count whether it refutes the curve."""
    return np.array(
        [refutes_curve(right, guesses, n_coins, inverse, ALPHA) for right in range(guesses + 1)]
    )


@pytest.mark.parametrize("n", [173, 1000])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
def test_randomised_response_is_refuted_with_at_most_alpha_exactly(n, epsilon):
    """Its counts are binomial, so that the probability of an error is a sum, without chance."""
    wrong = law_of_refutation(inverse_line_curve(epsilon, 0.0), n, n)
    right = 1 / (1 + math.exp(-epsilon))
    assert 0 < stats.binom(n, right).pmf(np.arange(n + 1))[wrong].sum() <= ALPHA
    # Half the epsilon would be refuted far more often: the test can fail.
    if epsilon >= 1 and n == 1000:
        wrong = law_of_refutation(inverse_line_curve(epsilon / 2, 0.0), n, n)
        assert stats.binom(n, right).pmf(np.arange(n + 1))[wrong].sum() > 0.9


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_independent_gaussian_noise_is_refuted_with_at_most_alpha_exactly(mu):
    right = stats.binom(500, stats.norm.cdf(mu / 2)).pmf(np.arange(501))
    assert right[law_of_refutation(inverse_gaussian_curve(mu), 500, 500)].sum() <= ALPHA


@pytest.mark.slow
def test_canaries_that_share_one_coin_break_the_product_bound_alone():
    """With probability .8 all coins go through randomised response of epsilon 1, else none do.

    The curve of that mixture has its corner at (.269, .8 * .731 + .2 * .269), below the Gaussian
    one, so mu = 1 is true.
    """
    told = 1 / (1 + math.e)
    assert 0.8 * (1 - told) + 0.2 * told < stats.norm.cdf(stats.norm.ppf(told) + 1)
    n = 1000
    counts = np.arange(n + 1)
    law = 0.8 * stats.binom(n, 1 - told).pmf(counts) + 0.2 * stats.binom(n, 0.5).pmf(counts)

    def refuted(**asked):  # mu = 1 is epsilon 4.3772 at this delta
        return law[[count for count in counts[480:790] if shows(int(count), asked) > 4.3772]].sum()

    def shows(count, asked):
        return bound_from_guesses(count, n, n, delta=1e-5, **asked).epsilon

    assert refuted(bound="product") > 0.6  # so it must not be the default
    assert refuted(bound="gaussian") <= ALPHA
    assert refuted() <= ALPHA
    assert law[law_of_refutation(inverse_gaussian_curve(1.0), n, n)].sum() <= ALPHA


def test_coins_that_share_one_outcome_count_as_one():
    """A mechanism of epsilon 1 reveals the majority of all coins: guesses stand or fall together.

    It tells 1 + o(1) coins, however many there are; independence would refute it at once.
    """
    n, runs, random = 400, 2000, np.random.default_rng(0)
    refuted = law_of_refutation(inverse_line_curve(1.0, 0.0), n, n)
    ones = random.binomial(n, 0.5, size=runs)
    told = np.where(random.random(runs) < 1 / (1 + math.exp(-1)), ones > n / 2, ones <= n / 2)
    right = np.where(told, ones, n - ones)
    assert stats.binom(runs, ALPHA).sf(refuted[right].sum() - 1) > 1e-6


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_scores_that_say_nothing_are_right_half_the_time(value):
    """Coins sorted as results hold them; scores all tied, or of two values at random."""
    random = np.random.default_rng(1)
    coins = np.r_[np.ones(1000, bool), np.zeros(1000, bool)]
    for scores in (np.full(2000, value), (random.random(2000) < 0.3) * 1.0):
        chosen, guess = guess_top_scores(scores, 500, random)
        assert len(set(chosen.tolist())) == 500
        right = int((guess == coins[chosen]).sum())
        assert stats.binomtest(right, 500).pvalue > 1e-6


def test_guesses_chosen_after_the_counts_would_break_the_bound():
    """The planted bug: the best of many numbers of guesses, at epsilon 0. One number is right."""
    random = np.random.default_rng(2)
    n, runs = 200, 400
    refused = {g: law_of_refutation(inverse_line_curve(0.0, 0.0), g, n) for g in range(5, n + 1, 5)}
    fixed = best = 0
    for _ in range(runs):
        coins, scores = random.random(n) < 0.5, random.normal(size=n)
        chosen, guess = guess_top_scores(scores, n, random)
        right = np.cumsum(guess == coins[chosen])
        shown = {g: refused[g][right[g - 1]] for g in refused}
        fixed += shown[50]
        best += any(shown.values())
    assert stats.binom(runs, ALPHA).sf(fixed - 1) > 1e-6
    assert stats.binom(runs, ALPHA).sf(best - 1) < 1e-6


@cache
def shown(right, guesses, n_coins, bound, delta):
    return bound_from_guesses(right, guesses, n_coins, bound=bound, delta=delta).epsilon


def right_guesses(scores_of, n_coins, guesses, random):
    """Return how many guesses of an attack's scores are right."""
    coins = random.random(n_coins) < 0.5
    chosen, guess = guess_top_scores(scores_of(coins, random), guesses, random)
    return int((guess == coins[chosen]).sum())


def gaussian_scores(mu):
    return lambda coins, random: mu * coins + random.normal(size=len(coins))


def bounds(scores_of, n_coins, guesses, bound, delta, runs=100):
    random = np.random.default_rng(3)
    counts = [right_guesses(scores_of, n_coins, guesses, random) for _ in range(runs)]
    return np.array([shown(right, guesses, n_coins, bound, delta) for right in counts])


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("mu", "n", "general", "apart"),
    [
        (1.0, 200, 2.2, 3.2),
        pytest.param(1.0, 1000, 2.6, 3.9, marks=pytest.mark.slow),
        pytest.param(1.0, 5000, 2.9, 4.1, marks=pytest.mark.slow),
        (2.0, 200, 5.2, 8.2),
        pytest.param(2.0, 1000, 5.8, 9.2, marks=pytest.mark.slow),
        pytest.param(2.0, 5000, 6.5, 9.6, marks=pytest.mark.slow),
    ],
)
def test_gaussian_noise_is_bounded_tightly(mu, n, general, apart):
    scores, guesses = gaussian_scores(mu), default_n_guesses(2 * n)
    found = bounds(scores, 2 * n, guesses, "gaussian", 1e-5)
    truth = {1.0: 4.377, 2.0: 10.0}[mu]
    assert np.median(found) >= general
    assert stats.binom(len(found), ALPHA).sf((found > truth).sum() - 1) > 1e-6
    assert np.median(bounds(scores, 2 * n, 3 * n // 2, "product", 1e-5)) >= apart


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 0.915), (4.0, 3.718)])
def test_randomised_response_is_bounded_tightly(epsilon, least):
    """As tightly as can be: no test of a coin refutes more than the binomial one."""

    def scores(coins, random):
        return np.where(random.random(len(coins)) < 1 / (1 + math.exp(-epsilon)), coins, ~coins) * 1

    found = bounds(scores, 2000, 2000, "approximate", 0.0)
    usual = int(stats.binom(2000, 1 / (1 + math.exp(-epsilon))).median())
    assert shown(usual, 2000, 2000, "approximate", 0.0) >= least
    assert np.median(found) >= 0.98 * least  # guesses of two-valued scores lose next to nothing
    assert stats.binom(len(found), ALPHA).sf((found > epsilon).sum() - 1) > 1e-6


def power(guesses, n_coins, mu, truth):
    """Return how often a claim of ``mu`` is refuted where ``truth`` is true."""
    refuted = law_of_refutation(inverse_gaussian_curve(mu), guesses, n_coins)
    random, scores = np.random.default_rng(4), gaussian_scores(truth)
    return sum(refuted[right_guesses(scores, n_coins, guesses, random)] for _ in range(100))


@pytest.mark.heavy
@pytest.mark.parametrize(("mu", "n_coins", "least"), [(1.0, 1000, 95), (2.0, 2000, 90)])
def test_the_number_of_guesses_refutes_a_claim_of_half_the_truth(mu, n_coins, least):
    """So few as are best for a bound refute nothing at mu = 2."""
    assert (
        power(best_n_guesses(n_coins, inverse_gaussian_curve(mu), ALPHA), n_coins, mu, 2 * mu)
        >= least
    )
    assert power(default_n_guesses(2000), 2000, 2.0, 4.0) < 10


def test_no_number_of_guesses_is_best_if_none_refutes():
    assert best_n_guesses(100, inverse_gaussian_curve(6.0), ALPHA) is None
    assert default_n_guesses(100) == 49


def test_half_of_the_coins_are_guessed_where_few_may_all_be_right():
    assert default_guess_sizes(10_000) == (490, 5_000)
    assert default_guess_sizes(50) == (35,)


def test_the_better_of_two_bounds_is_wrong_in_at_most_alpha():
    # The bound without assumptions errs rarely, so the test is of the Bonferroni share alone: the
    # right guesses of a Gaussian mechanism with mu = 1, of true epsilon 4.38 at delta 1e-5.
    random, n, wrong = np.random.default_rng(0), 400, 0
    few, half = default_guess_sizes(n)
    for _ in range(200):
        coins = random.random(n) < 0.5
        scores = coins + random.normal(size=n)
        chosen, guess = guess_top_scores(scores, half, random)
        right = np.cumsum(guess == coins[chosen])
        bounds = [
            bound_from_guesses(
                int(right[size - 1]), size, n, bound="gaussian", delta=1e-5, alpha=0.2 / 2
            ).epsilon
            for size in (few, half)
        ]
        wrong += max(bounds) > 4.38
    assert stats.binom(200, 0.2).sf(wrong - 1) > 1e-6


def test_bound_is_near_the_exact_bound():
    for right, guesses, n_coins in [(1964, 2000, 2000), (180, 200, 2000), (100, 100, 1000)]:
        ours = bound_from_guesses(right, guesses, n_coins, delta=1e-5).epsilon
        theirs = epsilon_from_guesses(right, guesses, n_coins, delta=1e-5)
        assert ours == pytest.approx(theirs, rel=0.02)


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize(("guesses", "n_coins"), [(2000, 2000), (200, 2000), (60, 400)])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-3])
def test_the_sharper_theorem_is_chosen_by_what_is_fixed_before(guesses, n_coins, delta):
    """The larger one after looking would be wrong too often; one of the two is used throughout."""
    whole, exact, used = [], [], []
    for right in range(guesses * 6 // 10, guesses + 1, max(1, guesses // 20)):
        curve = [
            refutes_curve(right, guesses, n_coins, inverse_line_curve(e, delta), ALPHA)
            for e in (0.3, 1.0, 3.0)
        ]
        found = bound_from_guesses(right, guesses, n_coins, delta=delta).epsilon
        used.append(found)
        exact.append(epsilon_from_guesses(right, guesses, n_coins, delta=delta))
        whole.append([found >= e - 1e-6 for e in (0.3, 1.0, 3.0)] == curve)
    assert used == exact or all(whole)
    assert (used == exact) if delta == 0 else True


@pytest.mark.parametrize("bound", ["approximate", "gaussian", "product"])
def test_no_right_guess_gives_a_bound_of_zero(bound):
    for guesses in (50, 100):
        assert bound_from_guesses(0, guesses, 100, bound=bound, delta=1e-5).epsilon == 0
        assert bound_from_guesses(guesses // 2, guesses, 100, bound=bound, delta=1e-5).epsilon == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"right": 11}, "in this order"),
        ({"guesses": 0, "right": 0}, "at least 1"),
        ({"bound": "best"}, "bound='best'"),
        ({"bound": "gaussian"}, "delta=1e-5"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        bound_from_guesses(**({"right": 5, "guesses": 10, "n_coins": 20} | arguments))
