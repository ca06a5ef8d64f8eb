"""The analysis of a vote matrix: golden numbers, one query at a time, and the script's ways."""

from __future__ import annotations

import math

import numpy as np
import pytest

from skprivacy.accounting import GNMaxEvent, LaplaceEvent, RepeatedEvent, epsilon_of
from skprivacy.accounting.events import LNMaxEvent, VoteThresholdEvent
from skprivacy.accounting.renyi import rdp
from skprivacy.ensemble import (
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    analyze_votes,
)
from skprivacy.exceptions import PrivacyLeakWarning


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
