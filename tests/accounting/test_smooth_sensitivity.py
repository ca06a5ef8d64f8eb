"""How far a data-dependent cost moves with the data: formulas against all histograms there are."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from skprivacy.accounting import ComposedEvent, GaussianEvent, GNMaxEvent, RepeatedEvent
from skprivacy.accounting.event import flatten
from skprivacy.accounting.events import SmoothGaussianEvent, VoteThresholdEvent
from skprivacy.accounting.events.gnmax import vote_curve
from skprivacy.accounting.renyi import rdp
from skprivacy.accounting.smooth_sensitivity import smoothed_cost, sum_sensitivities


def local_sensitivity(event, order, distances):
    bounds = [(n, part.local_bound(order)) for part, n in flatten(event).items()]
    return sum_sensitivities([(n, bound) for n, bound in bounds if bound], np.asarray(distances))


@pytest.mark.parametrize(
    ("sigma", "classes", "order", "regular"),
    [(20.0, 10, 25.0, False), (30.0, 10, 30.0, False), (40.0, 10, 10.0, True), (0.5, 3, 1.5, True)],
)
def test_the_conditions_are_checked(sigma, classes, order, regular):
    curve = vote_curve(sigma, classes, order)
    assert curve.meets_conditions is regular
    x = np.linspace(curve.x0 - 10, curve.x0, 20_000)
    largest = (curve(x + curve.vote) - curve(x)).max()
    assert largest <= curve.largest_change * (1 + 1e-9)
    # taken on trust, the formula would miss the largest change where the conditions fail
    trusted = curve.top - curve(curve.x1)
    assert (trusted < 0.9 * largest) is not regular


def histograms(n, m):
    for bars in itertools.combinations(range(n + m - 1), m - 1):
        ends = (-1, *bars, n + m - 1)
        yield tuple(b - a - 1 for a, b in itertools.pairwise(ends))


def apart(u, v):
    return sum(abs(a - b) for a, b in zip(u, v, strict=True)) // 2


@pytest.mark.everyday(3)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("n", "m", "sigma", "order"),
    [
        (9, 3, 0.5, 1.5),
        (9, 3, 1.0, 3.0),
        (14, 2, 1.5, 2.0),
        (7, 4, 0.8, 2.0),
        (8, 3, 2.0, 1.2),
        (8, 3, 0.7, 12.0),
        (9, 3, 2.0, 2.5),  # the conditions fail
    ],
)
def test_no_histogram_within_reach_changes_more(n, m, sigma, order):
    """Exhaustive search over all votes, as published and as smoothed, and over all distances."""
    every = list(histograms(n, m))
    cost = np.array([smoothed_cost(GNMaxEvent(sigma, v), order, 0.1).cost for v in every])
    for v, c in zip(every, cost, strict=True):
        assert c >= rdp(GNMaxEvent(sigma, v), [order])[0] * (1 - 1e-12)
    between = np.array([[apart(u, v) for v in every] for u in every])
    steps = np.abs(cost[:, None] - cost) * (between <= 1)
    exact = steps.max(axis=1)
    reached = np.array(
        [local_sensitivity(GNMaxEvent(sigma, v), order, np.arange(n + 1)) for v in every]
    )
    for i in range(len(every)):
        for d in range(n + 1):
            assert exact[between[i] <= d].max() <= reached[i, d] * (1 + 1e-9) + 1e-300
    # what is smooth: one vote away it differs by a factor of e^smoothness at most
    for b in (0.05, 0.7):
        sensitivity = (np.exp(-b * np.arange(n + 1)) * reached).max(axis=1)
        ratio = sensitivity[:, None] / sensitivity
        assert (ratio[between <= 1] <= math.exp(b) * (1 + 1e-9)).all()
        one = smoothed_cost(GNMaxEvent(sigma, every[3]), order, b).sensitivity
        assert one == pytest.approx(sensitivity[3])


@pytest.mark.parametrize(
    ("votes", "order", "smoothness"),
    [
        # the largest changes are at more votes, and at wider gaps, than there are teachers
        (lambda v: VoteThresholdEvent(1.187, v, threshold=0.2), 10.0, 0.268),
        (lambda v: VoteThresholdEvent(1.0, v, threshold=5.0), 12.0, 0.01),
        (lambda v: GNMaxEvent(1.0, v), 14.0, 0.01),
        (lambda v: GNMaxEvent(1.0, v), 3.0, 0.05),
    ],
)
def test_one_vote_changes_the_sensitivity_by_no_more_than_the_smoothness(votes, order, smoothness):
    for n, m in [(10, 2), (7, 3)]:
        found = {v: smoothed_cost(votes(v), order, smoothness) for v in histograms(n, m)}
        for u, v in itertools.permutations(found, 2):
            if apart(u, v) == 1:
                one, other = found[u].sensitivity, found[v].sensitivity
                assert one <= math.exp(smoothness) * other * (1 + 1e-9)
                assert abs(found[u].cost - found[v].cost) <= one * (1 + 1e-9)


@pytest.mark.parametrize("threshold", [3.0, 7.5, 20.0])
def test_no_count_within_reach_changes_a_threshold_test_more(threshold):
    sigma, order = 1.0, 1.6
    cost = [rdp(VoteThresholdEvent(sigma, (c, 0), threshold), [order])[0] for c in range(41)]
    change = np.abs(np.diff(cost))
    for c in range(8, 31):
        votes = VoteThresholdEvent(sigma, (c, *[1] * (40 - c)), threshold)
        found = local_sensitivity(votes, order, np.arange(6))
        for d in range(6):
            assert found[d] == pytest.approx(change[c - d - 1 : c + d + 1].max(), abs=1e-300)


def test_sums_over_queries_and_ignores_what_is_public():
    one, other = GNMaxEvent(0.5, (10, 0, 0)), VoteThresholdEvent(1.0, (9, 0), 3.0)
    both = ComposedEvent((RepeatedEvent(one, 3), other, GaussianEvent(2.0), GNMaxEvent(4.0)))
    d = np.arange(5)
    np.testing.assert_allclose(
        local_sensitivity(both, 1.5, d),
        3 * local_sensitivity(one, 1.5, d) + local_sensitivity(other, 1.5, d),
    )
    cost = smoothed_cost(both, 1.5, 0.1).cost
    public = rdp(ComposedEvent((GaussianEvent(2.0), GNMaxEvent(4.0))), [1.5])[0]
    votes = 3 * smoothed_cost(one, 1.5, 0.1).cost + smoothed_cost(other, 1.5, 0.1).cost
    assert cost == pytest.approx(public + votes)
    assert smoothed_cost(GaussianEvent(2.0), 3.0, 0.1) == (pytest.approx(3 / 8), 0.0)


def test_votes_of_certain_and_of_divided_teachers():
    sure = local_sensitivity(GNMaxEvent(40.0, (5000, 0)), 10.0, [0])[0]
    assert sure < 1e-300
    torn = local_sensitivity(GNMaxEvent(40.0, (100, 100)), 10.0, np.arange(200))
    assert torn[0] < 1e-12  # constant thereabouts
    assert torn[-1] == vote_curve(40.0, 2, 10.0).largest_change
    assert (np.diff(torn) >= 0).all()


@pytest.mark.parametrize(("b", "z", "lift"), [(0.02, 3.0, 0.0), (0.02, 3.0, 7.0), (0.1, 1.0, 2.0)])
def test_the_release_covers_every_pair_of_normal_distributions(b, z, lift):
    a = np.array([1.1, 2.0, 4.0])
    bound = rdp(SmoothGaussianEvent(z, b, lift), a)
    x = np.linspace(-60 * z, 60 * z, 8001)
    for r in np.exp(np.linspace(-b, b, 41)):  # the spreads' ratio
        apart = min(1, r) + lift * abs(r - 1)
        log_p, log_q = norm.logpdf(x, 0, z), norm.logpdf(x, apart, r * z)
        logs = a[:, None] * log_p + (1 - a)[:, None] * log_q + math.log(x[1] - x[0])
        assert (logsumexp(logs, axis=1) / (a - 1) <= bound * (1 + 1e-9)).all()
    published = a * math.exp(2 * b) / z**2 + (-np.log(1 - 2 * a * b) / 2 + a * b) / (a - 1)
    if lift == 0:
        assert (bound <= published).all()
    assert np.isinf(rdp(SmoothGaussianEvent(z, b, lift), [1 / -math.expm1(-2 * b) + 0.01]))[0]


@pytest.mark.parametrize(
    ("votes", "sigma", "order"),
    [((0, 35, 0, 132, 0), 0.35475, 30.89), ((0, 1, 86, 15), 0.53348, 19.21)],
)
def test_costs_that_fall_slowly_are_followed_to_their_end(votes, sigma, order):
    """With little noise and a large order they reach further than was looked at."""
    here = GNMaxEvent(sigma, votes=votes)
    bound = float(local_sensitivity(here, order, 0))
    top, second = np.argsort(votes)[::-1][:2]
    for step in (-1, 1):
        moved = list(votes)
        moved[top] += step
        moved[second] -= step
        there = GNMaxEvent(sigma, votes=tuple(moved))
        change = abs(smoothed_cost(here, order, 0.1).cost - smoothed_cost(there, order, 0.1).cost)
        assert change <= bound
