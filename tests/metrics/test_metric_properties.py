"""What must hold for every sample of scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skprivacy.metrics import (
    advantage,
    auc,
    auc_interval,
    clopper_pearson,
    epsilon_from_counts,
    epsilon_lower_bound,
    roc,
    tpr_at_fpr,
)
from skprivacy.metrics import (
    rates as _rates,
)

samples = st.lists(st.integers(-5, 5), min_size=1, max_size=30)
shares = st.floats(0.01, 0.99)


@pytest.mark.heavy
@given(samples, samples)
def test_only_the_order_of_scores_counts(members, others):
    moved = np.exp(members), np.exp(others)
    assert auc(*moved) == auc(members, others)
    assert advantage(*moved) == advantage(members, others)
    assert auc_interval(*moved) == auc_interval(members, others)
    assert epsilon_lower_bound(*moved) == epsilon_lower_bound(members, others)
    assert roc(*moved)[0].tolist() == roc(members, others)[0].tolist()


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


@pytest.mark.heavy
@given(samples, samples)
def test_roc_runs_from_0_to_1(members, others):
    fpr, tpr, cuts = roc(members, others)
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)
    assert (np.diff(fpr) >= 0).all()
    assert (np.diff(tpr) >= 0).all()
    assert (np.diff(cuts) < 0).all()


@given(st.integers(1, 500), st.data())
def test_intervals_hold_the_rate_and_mirror(n, data):
    k = data.draw(st.integers(0, n))
    low, high = clopper_pearson(k, n)
    assert low <= k / n <= high
    assert clopper_pearson(n - k, n) == pytest.approx((1 - high, 1 - low))


@pytest.mark.heavy
@given(st.integers(1, 300), st.integers(1, 300), st.data())
def test_epsilon_grows_with_hits_and_falls_with_false_alarms(n_in, n_out, data):
    hits, false = data.draw(st.integers(0, n_in)), data.draw(st.integers(0, n_out))
    epsilon = epsilon_from_counts(hits, n_in, false, n_out)
    assert 0 <= epsilon < np.inf
    if hits < n_in:
        assert epsilon_from_counts(hits + 1, n_in, false, n_out) >= epsilon
    if false < n_out:
        assert epsilon_from_counts(hits, n_in, false + 1, n_out) <= epsilon
    assert epsilon_from_counts(hits, n_in, false, n_out, delta=0.1) <= epsilon


@pytest.mark.heavy
@given(st.lists(st.integers(0, 40), min_size=1), st.sampled_from([1e-9, 0.05, 0.5]))
def test_ends_are_those_of_the_interval(hits, alpha):
    low, high = clopper_pearson(hits, 40, alpha)
    assert np.array_equal(low, _rates.low_rates(np.array(hits), 40, alpha))
    assert np.array_equal(high, _rates.high_rates(np.array(hits), 40, alpha))


@pytest.mark.heavy
@given(samples, samples)
def test_roc_counts_scores_at_or_above_each_threshold(members, others):
    false, true, cuts = roc(members, others)
    assert cuts.tolist() == [np.inf, *sorted({*members, *others}, reverse=True)]
    assert true.tolist() == [np.mean(np.array(members) >= cut) for cut in cuts]
    assert false.tolist() == [np.mean(np.array(others) >= cut) for cut in cuts]
