"""Poisson sampling: every subset with its own probability."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from skprivacy.mechanisms import PoissonSampler, SecureRandom


def subset_pvalue(draw, n, rate, trials=20_000):
    """Compare how often each of the 2**n subsets comes out with independent inclusion."""
    counts = np.zeros(2**n)
    for _ in range(trials):
        counts[int((2 ** draw()).sum())] += 1
    size = np.array([bin(s).count("1") for s in range(2**n)])
    law = rate**size * (1 - rate) ** (n - size)
    return stats.chisquare(counts, law * trials).pvalue


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("rate", [0.15, 0.5, 0.8])
def test_every_subset_has_its_probability(rate):
    random, sampler = SecureRandom(seed=1), PoissonSampler(rate)
    assert subset_pvalue(lambda: sampler.draw(4, random), 4, rate) > 1e-4


@pytest.mark.heavy
def test_planted_fixed_size_batches_are_caught():
    rng = np.random.default_rng(0)
    assert subset_pvalue(lambda: rng.choice(4, 2, replace=False), 4, 0.5) < 1e-12


def test_inclusion_counts_and_pairs():
    n, rate, steps = 300, 0.1, 2000
    random, sampler = SecureRandom(seed=2), PoissonSampler(rate)
    member = np.zeros((steps, n))
    for row in member:
        row[sampler.draw(n, random)] = 1
    for counts, trials in ((member.sum(0), steps), (member.sum(1), n)):
        spread = ((counts - trials * rate) ** 2).sum() / (trials * rate * (1 - rate))
        assert 1e-4 < stats.chi2(len(counts)).sf(spread) < 1 - 1e-4
    pairs = np.corrcoef(member.T)[np.triu_indices(n, 1)] * np.sqrt(steps)
    # 44,850 correlations of standard deviation 1, were all pairs independent.
    assert abs(pairs.mean()) < 0.03
    assert 0.97 < pairs.std() < 1.03
    assert np.abs(pairs).max() < 6.5


@pytest.mark.parametrize("rate", [1e-9, 1e-4, 0.3, 1.0])
@pytest.mark.parametrize("n", [0, 1, 7, 100_000])
def test_indices_are_sorted_distinct_and_in_range(n, rate):
    drawn = PoissonSampler(rate).draw(n, SecureRandom())
    assert (np.diff(drawn) > 0).all()
    assert not drawn.size or (drawn[0] >= 0 and drawn[-1] < n)
    if rate == 1.0:
        assert drawn.size == n


def test_a_large_draw_has_the_right_size():
    n, rate = 10**7, 0.01
    drawn = PoissonSampler(rate).draw(n, SecureRandom(seed=3))
    assert stats.binomtest(drawn.size, n, rate).pvalue > 1e-4
    assert stats.kstest(drawn / n, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, np.nan])
def test_rate(rate):
    with pytest.raises(ValueError, match="rate="):
        PoissonSampler(rate)
