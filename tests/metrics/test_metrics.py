"""Golden numbers, brute force and null calibration of the metrics."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, t
from sklearn.metrics import roc_auc_score

from skprivacy.metrics import auc, epsilon_lower_bound, evidence, rates, tpr_at_fpr
from skprivacy.metrics.rates import advantage, auc_interval, clopper_pearson, roc

from .scores import responses


def null_pair(seed, n=100, levels=None):
    rng = np.random.default_rng(seed)
    draw = rng.normal(size=(2, n))
    return np.round(draw * levels) if levels else draw


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((500, 1000, 10, 1000), 3.24200),
        ((990, 1000, 500, 1000), 3.24200),  # few false negatives: the mirror image
        ((1000, 1000, 0, 1000), 5.60058),
    ],
)
def test_epsilon_golden(counts, expected):
    assert epsilon_of_counts(*counts, delta=1e-5) == pytest.approx(expected, abs=6e-6)


def epsilon_of_counts(hits, n_in, false, n_out, delta=0.0, alpha=0.05):
    """Return the bound at one threshold (Nasr et al. 2021), as evidence computes it."""
    tpr, fpr = clopper_pearson(hits, n_in, alpha)[0], clopper_pearson(false, n_out, alpha)[1]
    return evidence.epsilon_of_rates(tpr, fpr, delta)


@pytest.mark.parametrize("alpha", [1e-100, 1e-16, 2e-12, 0.05, 0.9])
@pytest.mark.parametrize(("k", "n"), [(0, 1000), (1, 1000), (10, 1000), (990, 1000), (9, 10**4)])
def test_clopper_pearson_is_right_far_in_the_tails(k, n, alpha):
    """At alpha=2e-12 the betaincinv of scipy 1.11 was off by 4e-4, to the unsafe side too.

    An end near 1 is itself rounded, which its tail shows; within half a unit, to 1.
    """
    for hits in (k, n - k):
        low, high = clopper_pearson(hits, n, alpha)
        assert (low > 0) == (hits > 0)
        if hits:
            tail = mpmath.betainc(hits, n - hits + 1, 0, low, regularized=True)
            assert float(tail) == pytest.approx(alpha / 2, rel=2e-3, abs=0)
        if hits < n:
            gap = max(1 - high, 2**-53)
            tail = float(mpmath.betainc(n - hits, hits + 1, 0, gap, regularized=True))
            if high == 1:
                assert tail > alpha / 2
            else:
                rounding = (n - hits) * 2**-53 / gap
                assert tail == pytest.approx(alpha / 2, rel=2e-3 + rounding, abs=0)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: clopper_pearson(3, 2), "between 0 and n=2"),
        (lambda: clopper_pearson(0, 0), "at least 1"),
        (lambda: clopper_pearson(1, 2, 0), "alpha=0"),
        (lambda: tpr_at_fpr([1.0], [0.0], 0), "fpr=0"),
        (lambda: auc([], [1.0]), "scores_in"),
        (lambda: auc([1.0], [np.nan]), "scores_out"),
        (lambda: auc([1.0], [np.inf]), "infinite"),
        (lambda: auc(["a"], [1.0]), "numbers"),
        (lambda: auc([[1.0]], [1.0]), "shape"),
    ],
)
def test_bad_input_is_named(call, word):
    with pytest.raises(ValueError, match=word):
        call()


@pytest.mark.parametrize("levels", [None, 2])
@pytest.mark.parametrize("seed", range(5))
def test_auc_matches_scikit_learn(seed, levels):
    members, others = null_pair(seed, 37, levels)
    others = others[:23]
    truth = np.r_[np.ones(37), np.zeros(23)]
    assert auc(members, others) == pytest.approx(roc_auc_score(truth, np.r_[members, others]))


@pytest.mark.parametrize("levels", [None, 2])
@pytest.mark.parametrize("spread", [1, 20])
def test_auc_interval_matches_its_definition(levels, spread):
    # spread 20: DeLong's variance is the larger one, for continuous scores
    members, others = null_pair(3, 40, levels)
    others = others[:25] * spread - 0.5
    area = (np.sign(members[:, None] - others[None]) / 2 + 0.5).mean()
    difference = np.r_[members, -1e9, 1e9][:, None] - np.r_[others, -1e9, 1e9][None]
    wins = np.sign(difference) / 2 + 0.5
    delong = wins.mean(1).var(ddof=1) / 42 + wins.mean(0).var(ddof=1) / 27
    largest = wins.var() * (1 / 42 + 1 / 27) / 2
    assert (delong > largest) == (spread == 20 and levels is None)
    mean = wins.mean()
    variance_per_unit = max(delong, largest) / (mean * (1 - mean))
    for edge in auc_interval(members, others):
        distance = (area - edge) ** 2 / (edge * (1 - edge) * variance_per_unit)
        assert np.sqrt(distance) == pytest.approx(t.ppf(0.975, 26))


@pytest.mark.parametrize(
    ("members", "others"),
    [
        ([2, 3, 4], [1, 1, 0]),
        ([1, 1, 0], [2, 3, 4]),
        ([1, 1], [1, 1]),
        ([1], [1, 2, 0]),
        ([1], [0]),
    ],
)
def test_auc_interval_never_collapses(members, others):
    low, high = auc_interval(members, others)
    assert 0 <= low <= auc(members, others) <= high <= 1
    assert high - low > 0.1


def test_an_error_probability_that_rounding_takes_from_one_has_an_interval():
    """1 - 1e-16 / 2 is 1, of which the quantile is infinite."""
    wide, narrow = (auc_interval(range(10, 30), range(20), alpha=a) for a in (1e-16, 1e-12))
    assert 0.0 <= wide[0] < narrow[0] < narrow[1] < wide[1] <= 1.0


def test_nan_is_an_error_and_never_an_interval(monkeypatch):
    """Clamped by Python's min and max it was (0, 1), or an epsilon of 0, without a word."""
    monkeypatch.setattr(rates, "stdtrit", lambda df, p: np.nan)
    with pytest.raises(ArithmeticError, match=r"around an area of 0\.875"):
        auc_interval([3, 2], [2, 1])
    monkeypatch.setattr(rates, "betaincinv", lambda a, b, p: a * np.nan)
    with pytest.raises(ArithmeticError, match="betaincinv"):
        clopper_pearson(3, 10)
    with pytest.raises(ArithmeticError, match="betaincinv"):
        epsilon_lower_bound(range(10, 30), range(20))


@pytest.mark.parametrize("wrong", [lambda a, b, p: a * np.nan, lambda a, b, p: 1 - p])
def test_ends_on_the_wrong_side_of_a_rate_are_an_error(monkeypatch, wrong):
    """Whoever needs one end of an interval cannot compare it with the other."""
    monkeypatch.setattr(rates, "betaincinv", wrong)
    monkeypatch.setattr(rates, "betainccinv", lambda a, b, p: wrong(a, b, 1 - p))
    for ends in (rates.low_rates, rates.high_rates):
        with pytest.raises(ArithmeticError, match="betaincinv"):
            ends(np.array([5, 3, 5]), 10, 0.05)


def test_planted_ranks_of_an_old_scipy_are_caught(monkeypatch):
    """Before scipy 1.13 ``rankdata`` gave NaN for a sample that holds both infinities."""
    right = rates._share_below

    def wrong(scores, others):
        return right(scores, others) * (np.nan if np.isinf(scores).any() else 1.0)

    monkeypatch.setattr(rates, "_share_below", wrong)
    with pytest.raises(ArithmeticError, match="around an area of"):
        auc_interval([3, 2], [2, 1])


def test_operating_point_against_brute_force():
    members, others = null_pair(1, 200, 3)
    for target in (0.005, 0.01, 0.1, 0.5, 0.99):
        point = tpr_at_fpr(members, others, target)
        cuts = [*np.unique(np.r_[members, others]), np.inf]
        allowed = [cut for cut in cuts if (others >= cut).mean() <= target]
        assert point.threshold == min(allowed)
        assert point.tpr == (members >= point.threshold).mean()
        assert point.realised_fpr == (others >= point.threshold).mean()
        assert point.realised_fpr <= target


def test_ties_are_counted_and_never_interpolated():
    point = tpr_at_fpr(np.zeros(500), np.zeros(500), 0.1)
    assert point.tpr == point.realised_fpr == 0
    assert point.ties == 1000
    assert point.refused is None


def test_too_few_non_members_are_refused():
    assert tpr_at_fpr(np.ones(50), np.zeros(99), 0.01).refused is not None
    assert tpr_at_fpr(np.ones(50), np.zeros(100), 0.01).refused is None
    assert tpr_at_fpr(np.ones(50), np.zeros(1000), 0.001).refused is None


def test_advantage():
    assert advantage([1, 2], [1, 2]) == 0
    assert advantage([2, 3], [0, 1]) == 1
    assert advantage([0, 1], [2, 3]) == 0


NULL_RUNS = 200
# A valid bound exceeds 0 with probability at most alpha. Two Clopper-Pearson ends make it far more
# careful than that at small alpha, which hides mistakes; at alpha = 0.5 they show.
ALLOWED = {0.05: binom.ppf(0.999, NULL_RUNS, 0.05), 0.5: binom.ppf(0.999, NULL_RUNS, 0.5)}


def null_failures(bound, alpha):
    return sum(bound(*null_pair(seed, 300), alpha=alpha) > 0 for seed in range(NULL_RUNS))


@pytest.mark.heavy
def test_planted_best_of_many_thresholds_is_caught():
    def uncorrected(members, others, alpha):
        both = evidence._bound_all_rates(members, others, np.r_[members, others], alpha)
        return evidence.epsilon_of_rates(*both, 0.0).max()

    assert null_failures(uncorrected, 0.5) > ALLOWED[0.5]


def of_threshold(members, others, alpha):
    found = evidence.gather_evidence(members, others, delta=0.0, alpha=2 * alpha)
    return evidence.Evidence(found.points, 0.0).epsilon(0.0)


def of_area(members, others, alpha):
    area = evidence.bound_area(members, others, alpha)
    return evidence.Evidence((), area).epsilon(0.0)


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("bound", "alpha"),
    [(of_threshold, 0.5), (epsilon_lower_bound, 0.5), (epsilon_lower_bound, 0.05)],
)
def test_null_scores_show_no_epsilon(bound, alpha):
    """Tested on the half of the records that chose it, a threshold would show some."""
    assert null_failures(bound, alpha) <= ALLOWED[alpha]


@pytest.mark.heavy
def test_planted_point_estimates_are_caught(monkeypatch):
    def point(k, n, alpha):
        return np.clip(k / n, 1 / n, 1 - 1 / n)

    monkeypatch.setattr(evidence, "low_rates", point)
    monkeypatch.setattr(evidence, "high_rates", point)
    assert null_failures(epsilon_lower_bound, 0.05) > ALLOWED[0.05]


def coverage_failures(interval, draw, n_in, n_out, area, runs=250):
    failures = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        low, high = interval(draw[0](rng, n_in), draw[1](rng, n_out))
        failures += not low <= area <= high
    return failures


def normal(rng, n):
    return rng.normal(size=n)


def shifted(rng, n):
    return rng.normal(1.0, size=n)  # an area of Phi(1 / sqrt(2)) against normal scores


def rare(rng, n):
    return (rng.random(n) < 0.03).astype(float)


def extreme(rng, n):
    return rng.choice([-9.0, 9.0], n)


# 0.05 misses expected; more than 24 of 250 has probability < 2e-3
@pytest.mark.heavy
@pytest.mark.parametrize("sizes", [(60, 60), (10, 200), (200, 40), (500, 500)])
@pytest.mark.parametrize(
    ("draw", "area"),
    [
        ((normal, normal), 0.5),
        ((rare, rare), 0.5),
        ((extreme, normal), 0.5),
        ((shifted, normal), 0.7602499),
    ],
)
def test_auc_interval_covers_the_true_area(draw, area, sizes):
    assert coverage_failures(auc_interval, draw, *sizes, area) <= 24


@pytest.mark.heavy
def test_auc_interval_is_a_little_conservative_without_ties():
    # of 1000 runs, 95% coverage would pass with probability < 1e-3
    assert coverage_failures(auc_interval, (normal, normal), 100, 100, 0.5, runs=1000) <= 30


def overstated(bound, alpha):
    return sum(bound(*response_of(seed, 400, 1.0), alpha=alpha) > 1 for seed in range(NULL_RUNS))


def response_of(seed, n, epsilon):
    return responses(np.random.default_rng(seed), n, epsilon)


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("bound", "alpha"),
    [(epsilon_lower_bound, 0.05), (epsilon_lower_bound, 0.5), (of_threshold, 0.5), (of_area, 0.05)],
)
def test_no_bound_exceeds_a_true_epsilon(bound, alpha):
    assert overstated(bound, alpha) <= ALLOWED[alpha]


def test_slight_leakage_of_many_records_is_found_by_the_auc():
    # at epsilon 0.5 no threshold shows much; every pair shows a little
    found = [epsilon_lower_bound(*response_of(seed, 2000, 0.5)) for seed in range(20)]
    assert np.median(found) > 0.35
    rng = np.random.default_rng(0)
    members, others = rng.normal(0.3, 1, 1500), rng.normal(size=1500)  # AUC 0.58
    assert epsilon_lower_bound(members, others) > 0.2


@pytest.mark.parametrize("delta", [0.0, 0.01, 0.3])
def test_epsilon_of_an_area_is_the_one_that_allows_it(delta):
    fpr = (np.arange(200_000) + 0.5) / 200_000
    curve = np.minimum(np.exp(0.7) * fpr + delta, 1 - np.exp(-0.7) * (1 - delta - fpr))
    area = np.minimum(curve, 1).mean()
    assert evidence.Evidence((), area).epsilon(delta) == pytest.approx(0.7, abs=1e-4)


# ---------------------------------------------------------------- for every sample of scores

samples = st.lists(st.integers(-5, 5), min_size=1, max_size=30)
some = settings(max_examples=40)
shares = st.floats(0.01, 0.99)


@some
@pytest.mark.heavy
@given(samples, samples)
def test_only_the_order_of_scores_counts(members, others):
    moved = np.exp(members), np.exp(others)
    assert auc(*moved) == auc(members, others)
    assert advantage(*moved) == advantage(members, others)
    assert auc_interval(*moved) == auc_interval(members, others)
    assert epsilon_lower_bound(*moved) == epsilon_lower_bound(members, others)
    assert roc(*moved)[0].tolist() == roc(members, others)[0].tolist()


@some
@pytest.mark.heavy
@given(samples, samples)
def test_swapping_sides_or_signs_mirrors_the_area(members, others):
    assert auc(others, members) == pytest.approx(1 - auc(members, others))
    flipped = auc([-s for s in members], [-s for s in others])
    assert flipped == pytest.approx(1 - auc(members, others))
    low, high = auc_interval(members, others)
    mirrored = auc_interval(others, members)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-9)
    assert 0 <= low <= auc(members, others) <= high <= 1


@some
@pytest.mark.heavy
@given(samples, samples, shares, shares)
def test_operating_points_keep_their_promise(members, others, one, two):
    points = [tpr_at_fpr(members, others, fpr) for fpr in sorted((one, two))]
    for point in points:
        if point.refused is None:
            assert point.realised_fpr <= point.fpr + 1e-9
            assert point.interval[0] <= point.tpr <= point.interval[1]
    if points[0].refused is None:
        assert points[0].tpr <= points[1].tpr  # a larger rate finds no fewer


@given(st.integers(1, 500), st.data())
def test_intervals_hold_the_rate_and_mirror(n, data):
    k = data.draw(st.integers(0, n))
    low, high = clopper_pearson(k, n)
    assert low <= k / n <= high
    assert clopper_pearson(n - k, n) == pytest.approx((1 - high, 1 - low))


@some
@pytest.mark.heavy
@given(st.integers(1, 300), st.integers(1, 300), st.data())
def test_epsilon_grows_with_hits_and_falls_with_false_alarms(n_in, n_out, data):
    hits, false = data.draw(st.integers(0, n_in)), data.draw(st.integers(0, n_out))
    epsilon = epsilon_of_counts(hits, n_in, false, n_out)
    assert 0 <= epsilon < np.inf
    if hits < n_in:
        assert epsilon_of_counts(hits + 1, n_in, false, n_out) >= epsilon
    if false < n_out:
        assert epsilon_of_counts(hits, n_in, false + 1, n_out) <= epsilon
    assert epsilon_of_counts(hits, n_in, false, n_out, delta=0.1) <= epsilon
    assert epsilon_of_counts(hits, n_in, false, n_out, alpha=0.001) <= epsilon


@pytest.mark.heavy
@given(st.lists(st.integers(0, 40), min_size=1), st.sampled_from([1e-9, 0.05, 0.5]))
def test_ends_are_those_of_the_interval(hits, alpha):
    low, high = clopper_pearson(hits, 40, alpha)
    assert np.array_equal(low, rates.low_rates(np.array(hits), 40, alpha))
    assert np.array_equal(high, rates.high_rates(np.array(hits), 40, alpha))


@some
@pytest.mark.heavy
@given(samples, samples)
def test_roc_counts_scores_at_or_above_each_threshold(members, others):
    false, true, cuts = roc(members, others)
    assert cuts.tolist() == [np.inf, *sorted({*members, *others}, reverse=True)]
    assert true.tolist() == [np.mean(np.array(members) >= cut) for cut in cuts]
    assert false.tolist() == [np.mean(np.array(others) >= cut) for cut in cuts]
