"""A bound over many splits holds, and is steadier than a bound from one split."""

import numpy as np
import pytest
from scipy.stats import binom

from skprivacy.metrics import epsilon_lower_bound
from skprivacy.metrics import evidence as _evidence
from skprivacy.metrics.evidence import Rates, multi_split_bound

from .scores import responses

pytestmark = pytest.mark.heavy


def gaussian(seed, n=1000, shift=1.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n) + shift, rng.normal(size=n)


def wrong(runs=200, alpha=0.2, **asked):
    rng = np.random.default_rng(0)
    found = [
        multi_split_bound(*responses(rng, 60, 0.5), alpha=alpha, random_state=run, **asked)
        for run in range(runs)
    ]
    return sum(epsilon > 0.5 for epsilon in found), binom.isf(1e-6, runs, alpha)


@pytest.mark.slow
def test_many_splits_exceed_the_truth_with_at_most_alpha():
    above, most = wrong(n_splits=10)
    assert above <= most


@pytest.mark.parametrize(("n_splits", "counts"), [(1, 1), (2, 1), (5, 3), (20, 10)])
def test_half_of_the_splits_must_agree(monkeypatch, n_splits, counts):
    """The third of five, the tenth of twenty: what half of them at least reach."""
    shown = iter(np.random.default_rng(0).permutation(n_splits) + 1.0)
    asked = []

    def points(members, others, *, delta, alpha, rng):
        asked.append(alpha)
        return (Rates(0.5, 0.5 * np.exp(-next(shown))),)

    monkeypatch.setattr(_evidence, "bound_split_rates", points)
    found = multi_split_bound(*gaussian(0, 60, 0.0), alpha=0.2, n_splits=n_splits)
    assert found == pytest.approx(n_splits + 1 - counts)
    assert asked == [0.05] * n_splits  # a quarter: half for the area, and half again by Markov


def test_many_splits_are_steadier_than_one():
    data = gaussian(1, 400, shift=2.0)
    one = [epsilon_lower_bound(*data, delta=1e-5, random_state=s) for s in range(10)]
    many = [multi_split_bound(*data, delta=1e-5, random_state=s) for s in range(10)]
    assert np.std(many) < np.std(one) / 2
    assert np.mean(many) > np.mean(one) - 0.5


def test_direction_and_few_records():
    members, others = gaussian(2, shift=2.0)
    assert multi_split_bound(others, members) > 1
    assert multi_split_bound([1.0], others) == 0
