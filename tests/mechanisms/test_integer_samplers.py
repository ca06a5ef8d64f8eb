"""The exact samplers have exactly the distributions they are named for."""

import numpy as np
import pytest
from scipy import stats

from skprivacy.mechanisms import SecureRandom
from skprivacy.mechanisms.integer_samplers import (
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    discrete_logistic,
)

N = 200_000
SHAPES = {
    discrete_laplace: lambda k, s: np.exp(-np.abs(k) / s),
    discrete_gaussian: lambda k, s: np.exp(-(k**2) / (2.0 * s**2)),
    discrete_logistic: lambda k, s: np.cosh(k / (2.0 * s)) ** -2,
}


def chi2_pvalue(samples, shape, scale):
    span = np.arange(-60 * scale, 60 * scale + 1)
    pmf = shape(span.astype(float), scale)
    pmf /= pmf.sum()
    counts = np.bincount(samples + 60 * scale, minlength=len(span))
    common = pmf * len(samples) > 10
    observed = np.append(counts[common], counts[~common].sum())
    expected = np.append(pmf[common], pmf[~common].sum()) * len(samples)
    return stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue


@pytest.mark.everyday(2)
@pytest.mark.heavy
@pytest.mark.parametrize("scale", [1, 2, 7, 40])
@pytest.mark.parametrize("sampler", SHAPES, ids=lambda f: f.__name__)
def test_distribution(sampler, scale):
    samples = sampler(scale, N, SecureRandom(seed=scale))
    assert chi2_pvalue(samples, SHAPES[sampler], scale) > 1e-4


@pytest.mark.heavy
@pytest.mark.parametrize("sampler", SHAPES, ids=lambda f: f.__name__)
def test_the_test_has_power(sampler):
    """A scale that is 3% off, or one shape for another, would not pass."""
    samples = sampler(30, N, SecureRandom(seed=1))
    assert chi2_pvalue(samples, lambda k, s: SHAPES[sampler](k, 1.03 * s), 30) < 1e-6
    other = SHAPES[discrete_gaussian if sampler is not discrete_gaussian else discrete_laplace]
    assert chi2_pvalue(samples, other, 30) < 1e-6


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("sampler", "law"),
    [
        (discrete_laplace, stats.laplace),
        (discrete_gaussian, stats.norm),
        (discrete_logistic, stats.logistic),
    ],
)
@pytest.mark.parametrize("bits", [36, 53])
def test_large_scales_neither_overflow_nor_lose_shape(sampler, law, bits):
    scale = (1 << bits) + 12345
    samples = sampler(scale, N, SecureRandom(seed=bits)) / scale
    assert stats.kstest(samples, law.cdf).pvalue > 1e-4


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 5), (1, 3), (5, 5), (7, 2), (2**60, 3)])
def test_bernoulli_exp(numerator, denominator):
    drawn = bernoulli_exp(np.full(N, numerator), denominator, SecureRandom(seed=2))
    expected = np.exp(-numerator / denominator)
    assert stats.binomtest(int(drawn.sum()), N, expected).pvalue > 1e-4


def test_bernoulli_exp_takes_each_numerator_by_itself():
    numerators = np.repeat([0, 1, 2, 4], N // 4)
    drawn = bernoulli_exp(numerators, 2, SecureRandom(seed=3)).reshape(4, -1).mean(axis=1)
    np.testing.assert_allclose(drawn, np.exp([0, -0.5, -1, -2]), atol=0.012)


@pytest.mark.heavy
@pytest.mark.parametrize("sampler", SHAPES, ids=lambda f: f.__name__)
def test_samples_are_independent(sampler):
    """Rejection fills gaps in order: no correlation between neighbours may come of it."""
    assert sampler(5, 0, SecureRandom()).shape == (0,)
    x = sampler(1 << 20, N, SecureRandom(seed=4)).astype(float)
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 5 / np.sqrt(N)
