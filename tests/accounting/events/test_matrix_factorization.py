"""Streams under correlated noise: their sensitivities by brute force, and their cost."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy.linalg import toeplitz

from skprivacy.accounting import (
    ComposedEvent,
    GaussianEvent,
    PoissonSampledEvent,
    RepeatedEvent,
    epsilon_of,
)
from skprivacy.accounting.accountants import zcdp
from skprivacy.accounting.event import NoLossDistributionError
from skprivacy.accounting.events import BandedFactorizationEvent, TreeAggregationEvent
from skprivacy.accounting.events.matrix_factorization import (
    running_sum_error,
    square_root_band,
    step_deviation,
)
from skprivacy.accounting.pld.distribution import pld
from skprivacy.accounting.renyi import rdp

SHAPES = [(1, 1), (7, 1), (8, 1), (1, 5), (3, 4), (5, 3), (4, 8), (6, 2)]


def banded_matrix(coefficients, n):
    column = np.r_[coefficients, np.zeros(max(0, n - len(coefficients)))][:n]
    return toeplitz(column, np.zeros(n))


def tree_matrix(n):
    """Sums over 2^l steps that some running sum is put together from, by the definition."""
    rows = set()
    for t in range(1, n + 1):
        start = 0
        for level in reversed(range(t.bit_length())):
            if t >> level & 1:
                rows.add((start, start + 2**level))
                start += 2**level
    C = np.zeros((len(rows), n))
    for row, (start, stop) in enumerate(sorted(rows, key=lambda r: r[1])):
        C[row, start:stop] = 1.0
    return C


def brute_force(C, steps_per_epoch, epochs, dimension=3):
    """The longest C u over all batches, aligned and random contributions of norm 1."""
    rng = np.random.default_rng(0)
    longest = 0.0
    for batch in range(steps_per_epoch):
        places = batch + steps_per_epoch * np.arange(epochs)
        longest = max(longest, np.linalg.norm(C[:, places].sum(1)))
        for _ in range(30):
            u = rng.normal(size=(epochs, dimension))
            u /= np.linalg.norm(u, axis=1, keepdims=True)
            assert np.linalg.norm(C[:, places] @ u) <= longest * (1 + 1e-12)
        for signs in product([-1, 0, 1], repeat=min(epochs, 5)):
            assert np.linalg.norm(C[:, places[: len(signs)]] @ signs) <= longest * (1 + 1e-12)
    return longest


@pytest.mark.parametrize(("steps_per_epoch", "epochs"), SHAPES)
@pytest.mark.parametrize("band", [1, 2, 4, 50])
def test_banded_sensitivity_is_that_of_the_worst_contributions(steps_per_epoch, epochs, band):
    coefficients = square_root_band(200, 1, most=band)
    event = BandedFactorizationEvent(1.0, steps_per_epoch, epochs, coefficients)
    expected = brute_force(banded_matrix(coefficients, event.n_steps), steps_per_epoch, epochs)
    assert event.sensitivity == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("steps_per_epoch", "epochs"), [*SHAPES, (13, 3), (16, 1), (2, 9)])
def test_tree_sensitivity_is_that_of_the_worst_contributions(steps_per_epoch, epochs):
    event = TreeAggregationEvent(1.0, steps_per_epoch, epochs)
    expected = brute_force(tree_matrix(event.n_steps), steps_per_epoch, epochs)
    assert event.sensitivity == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("steps_per_epoch", "epochs"), [(2, 4), (3, 3), (4, 3), (5, 2)])
@pytest.mark.parametrize("band", [1, 2, 4, 50])
def test_banded_sensitivity_holds_for_any_order_that_keeps_the_distance(
    steps_per_epoch, epochs, band
):
    event = BandedFactorizationEvent(
        1.0, steps_per_epoch, epochs, square_root_band(99, 1, most=band)
    )
    C = banded_matrix(event.coefficients, event.n_steps)
    longest = max(
        np.linalg.norm(C[:, list(places)].sum(1))
        for count in range(1, epochs + 1)
        for places in combinations(range(event.n_steps), count)
        if min(np.diff(places), default=steps_per_epoch) >= steps_per_epoch
    )
    assert longest == pytest.approx(event.sensitivity, rel=1e-12)


EVENTS = [
    BandedFactorizationEvent(3.0, 20, 2, (1.0, 0.5, 0.375)),
    TreeAggregationEvent(3.0, 20, 2),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize(("relation", "factor"), [("zero_out", 1.0), ("replace_one", 2.0)])
def test_the_cost_is_that_of_one_gaussian_release(event, relation, factor):
    equal = GaussianEvent(3.0 / (factor * event.sensitivity))
    assert epsilon_of(event, 1e-5, relation) == pytest.approx(epsilon_of(equal, 1e-5), rel=1e-12)
    assert rdp(event, [2, 8], relation) == pytest.approx(rdp(equal, [2, 8]))
    assert zcdp(event, relation) == pytest.approx(zcdp(equal))
    both = ComposedEvent((event, RepeatedEvent(PoissonSampledEvent(0.01, GaussianEvent(1.0)), 100)))
    assert pld(both, relation).epsilon(1e-5) > epsilon_of(event, 1e-5, relation)


def test_without_correlation_it_is_the_composition_of_its_steps():
    alone = BandedFactorizationEvent(3.0, 4, 6)
    assert alone.sensitivity == pytest.approx(np.sqrt(6))
    expected = epsilon_of(RepeatedEvent(GaussianEvent(3.0), 6), 1e-5)
    assert epsilon_of(alone, 1e-5, "zero_out") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_one_record_more_is_not_covered(event):
    for of in (epsilon_of, zcdp):
        with pytest.raises(NoLossDistributionError, match="zero_out"):
            of(event, *([1e-5] if of is epsilon_of else []), relation="add_remove")
    with pytest.raises(NoLossDistributionError, match="others in the stream"):
        rdp(event, [2], "add_remove")


@pytest.mark.parametrize("n", [5, 64, 300])
@pytest.mark.parametrize("band", [1, 3, 16])
def test_error_of_running_sums_and_of_steps(n, band):
    coefficients = np.asarray(square_root_band(10**4, 1, most=64)[:band])
    steps = np.linalg.inv(banded_matrix(coefficients, n))
    sums = np.tril(np.ones((n, n))) @ steps
    for found, noise in ((running_sum_error, sums), (step_deviation, steps)):
        expected = np.sqrt((noise**2).sum(1).mean())
        assert found(coefficients, n) == pytest.approx(expected, rel=1e-9)
