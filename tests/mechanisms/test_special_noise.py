"""Noise of a uniform direction and a Gamma radius: its law, its cost and its size."""

import numpy as np
import pytest
from scipy import stats

from skprivacy.mechanisms import KNorm, Laplace, SecureRandom

from .chance import check_claim

pytestmark = pytest.mark.heavy

SIZES = [1, 2, 3, 8, 65]  # both parities of size + 1


def draws(mechanism, size, n, value=0.0, seed=0):
    random = SecureRandom(seed)
    return np.array([mechanism.release(np.full(size, value), random) for _ in range(n)]) - value


def check_law(noise, scale):
    """The norm is Gamma(size), the direction uniform, and each knows nothing of the other."""
    n, size = noise.shape
    norms = np.linalg.norm(noise, axis=1)
    assert stats.kstest(norms, stats.gamma(size, scale=scale).cdf).pvalue > 1e-4
    if size == 1:
        assert stats.kstest(noise[:, 0], stats.laplace(scale=scale).cdf).pvalue > 1e-4
        return
    cosines = noise[:, 0] / norms  # of a uniform direction (1 + cosine) / 2 is Beta
    half = (size - 1) / 2
    assert stats.kstest((1 + cosines) / 2, stats.beta(half, half).cdf).pvalue > 1e-4
    unit = noise / norms[:, None]
    second = np.linalg.norm(unit.T @ unit / n - np.eye(size) / size)
    assert second < 6 * np.sqrt(1 / n)
    assert abs(stats.spearmanr(norms, np.abs(cosines)).statistic) < 5 / np.sqrt(n)


@pytest.mark.everyday(2)
@pytest.mark.parametrize("size", SIZES)
def test_noise_has_the_declared_law(size):
    check_law(draws(KNorm(0.7, 3.0), size, 800, value=-17.25), 2.1)


@pytest.mark.parametrize("size", [2, 65])
def test_gaussian_noise_of_that_size_is_caught(size):
    """Every number has its variance, but the norm does not."""
    scale = np.sqrt(size + 1)
    noise = scale * np.random.default_rng(0).normal(size=(4000, size))
    with pytest.raises(AssertionError):
        check_law(noise, 1.0)


@pytest.mark.slow
def test_the_variance_is_as_predicted_and_half_of_laplace():
    mechanism, size = KNorm(0.5, 2.0), 640
    noise = draws(mechanism, size, 300)
    assert noise.var() == pytest.approx(mechanism.std_of(size) ** 2, rel=0.02)
    ratio = (Laplace(0.5, 2.0 * np.sqrt(size)).std / mechanism.std_of(size)) ** 2
    assert ratio == pytest.approx(2 * size / (size + 1), rel=1e-5)


def loss(noise, moved):
    """Return the privacy loss of outputs, in units of epsilon, for a value moved by a vector."""
    return np.linalg.norm(noise - moved, axis=-1) - np.linalg.norm(noise, axis=-1)


def check_pure(share=1.0):
    """In two dimensions the loss, the best test of neighbours, reaches epsilon."""
    random, epsilon, moved = SecureRandom(0), 1.5, np.array([1.0, 0.0])
    mechanism = KNorm(share / epsilon, 1.0)

    def sample(value, n):
        noisy = np.array([mechanism.release(value, random) for _ in range(n)])
        return loss(noisy, moved)

    def claim(e):
        return 1e-9 + max(0.0, (np.exp(epsilon) - np.exp(e)) / (np.exp(epsilon) + 1))

    check_claim(sample, np.zeros(2), moved, claim, (0.5, 1.5), 2000)


def test_is_pure_and_too_little_noise_is_caught():
    check_pure()
    with pytest.raises(AssertionError, match="claimed"):
        check_pure(0.3)
