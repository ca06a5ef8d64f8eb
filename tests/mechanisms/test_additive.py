"""Laplace, Gaussian and logistic noise: shape, privacy, support, edge cases, exact samplers."""

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skprivacy.accounting import events
from skprivacy.accounting.calibration import analytic_noise_multiplier
from skprivacy.mechanisms import FloatGaussian, Gaussian, KNorm, Laplace, SecureRandom, additive
from skprivacy.mechanisms.additive import bernoulli_exp, discrete_gaussian, discrete_laplace
from skprivacy.mechanisms.float_noise import FloatLogistic
from skprivacy.mechanisms.rounded_gaussian import RoundedGaussian
from skprivacy.mechanisms.special_noise import Logistic, discrete_logistic

from ..accounting.events.test_votes import gaussian_delta

LAWS = {Laplace: stats.laplace, Gaussian: stats.norm, Logistic: stats.logistic}
KINDS = [Laplace, Gaussian, Logistic]
EVERY = [*KINDS, KNorm]  # whose law is tested in test_special_noise
N_SAMPLES = 200_000
SHAPES = {
    discrete_laplace: lambda k, s: np.exp(-np.abs(k) / s),
    discrete_gaussian: lambda k, s: np.exp(-(k**2) / (2.0 * s**2)),
    discrete_logistic: lambda k, s: np.cosh(k / (2.0 * s)) ** -2,
}


def sampler(mechanism, seed=0):
    random = SecureRandom(seed)
    return lambda value, n: mechanism.release(np.full(n, value), random)


@pytest.mark.parametrize("kind", KINDS)
def test_scale_and_deviation_are_those_of_the_law(kind):
    mechanism = kind(noise_multiplier=0.7, sensitivity=3.0)
    # A vector's scale is a little larger for its rounding; one number's is exact to 1e-6.
    assert mechanism.scale == pytest.approx(2.1, rel=2e-6)
    assert mechanism.std == pytest.approx(LAWS[kind](scale=2.1).std(), rel=1e-5)


# ---------------------------------------------------------------- the grid


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("kind", EVERY)
def test_neighbours_have_the_same_support(kind, monkeypatch):
    """On a coarse grid the support near the value can be listed: it is the same for both."""
    monkeypatch.setattr(additive, "_SCALE_BITS", 3)
    mechanism, random = kind(1.0, sensitivity=1.0), SecureRandom(seed=9)
    supports = [
        {mechanism.release(value, random) / mechanism.grid for _ in range(600)}
        for value in (0.1, 0.1 + 1 / math.pi, -0.7)
    ]
    window = set(range(-4, 5))
    assert all(window <= support for support in supports)
    assert all(x.is_integer() for support in supports for x in support)


def test_floating_point_noise_has_another_support_for_a_neighbour():
    """The planted bug: plain floating-point noise separates 0.1 from 1 / 3 by the lowest bits."""

    @dataclass(frozen=True)
    class Naive(Laplace):
        def _release(self, value, random):
            u = random.uniform(value.size) - 0.5
            return value - self.scale * np.sign(u) * np.log1p(-2 * np.abs(u))

    supports = [set(sampler(Naive(1.0, 1.0))(v, 1000).tolist()) for v in (0.1, 1 / 3)]
    grid = Laplace(1.0, 1.0).grid
    assert not any((x / grid).is_integer() for support in supports for x in support)
    assert not supports[0] & supports[1]


def steps_apart(mechanism, a, b):
    return np.rint(a / mechanism.grid) - np.rint(b / mechanism.grid)


@pytest.mark.heavy
@settings(max_examples=200, deadline=None)
@given(
    value=st.lists(st.floats(-100, 100), min_size=1, max_size=5),
    move=st.lists(st.floats(-1, 1), min_size=5, max_size=5),
    z=st.sampled_from([0.1, 1.0, 20.0]),
    bits=st.sampled_from([3, 8, 36]),
)
def test_rounding_is_paid_for(value, move, z, bits):
    """Loss of a discrete Laplace is steps / scale, exactly: it never exceeds 1 / z."""
    a = np.array(value)
    b = a + np.array(move[: len(a)])
    distance = np.abs(a - b).sum()
    if distance < 1e-3:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(additive, "_SCALE_BITS", bits)
        laplace = Laplace(z, sensitivity=distance * (1 + 1e-12))
        loss = np.abs(steps_apart(laplace, a, b)).sum() / laplace._scale_steps(len(a))
        assert loss <= 1 / z
        gaussian = Gaussian(z, sensitivity=np.linalg.norm(a - b) * (1 + 1e-12))
        shift = np.linalg.norm(steps_apart(gaussian, a, b)) / gaussian._scale_steps(len(a))
        assert shift <= 1 / z


def test_planted_unpaid_rounding_is_caught(monkeypatch):
    monkeypatch.setattr(additive, "_SCALE_BITS", 3)
    monkeypatch.setattr(Laplace, "_rounding", lambda self, size: 0.0)
    laplace = Laplace(1.0, sensitivity=1.0)
    a = np.full(40, laplace.grid * 0.49)  # 40 moves of 1 / 40 cross 40 edges of the grid
    loss = np.abs(steps_apart(laplace, a, a + 1 / 40)).sum() / laplace._scale_steps(40)
    assert loss > 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_large_values_are_added_exactly(kind):
    """Beyond 2**61 steps Python's integers take over; the noise must survive."""
    mechanism = kind(1.0, sensitivity=1.0)
    noise = sampler(mechanism, seed=5)(2.0**30, 1000) - 2.0**30
    assert np.abs(noise).max() < 40
    assert np.abs(noise).min() > 0
    assert noise.std() == pytest.approx(mechanism.std, rel=0.15)


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("dtype", [np.int64, np.uint64, object])
def test_whole_numbers_are_moved_no_further_apart(kind, dtype):
    """float64 rounds these two neighbours to numbers that are 256 apart."""
    mechanism, random = kind(1.0, sensitivity=1.0), SecureRandom()
    near = [mechanism.release(np.array(v, dtype), random) for v in (2**60 + 128, 2**60 + 129)]
    assert abs(near[0] - near[1]) < 200
    if dtype is not np.uint64:
        below = mechanism.release(np.array(-(2**60), dtype), random)
        assert below == pytest.approx(-(2.0**53), rel=1e-9)
    assert mechanism.release(np.array(2**40, dtype), random) == pytest.approx(2**40, abs=100)
    assert kind(1.0, 1.0).release(2**70, random) == pytest.approx(2.0**53, rel=1e-9)


@pytest.mark.parametrize("value", [np.longdouble(1), [Fraction(1, 3)], [Decimal(1)], "1", [1j]])
def test_numbers_that_would_be_rounded_are_refused(value):
    if np.asarray(value).dtype == np.float64:
        pytest.skip("long double is double here")
    with pytest.raises(ValueError, match="value has dtype"):
        Laplace(1.0, 1.0).release(value, SecureRandom())


# ---------------------------------------------------------------- edge cases


@pytest.mark.parametrize("kind", EVERY)
def test_shapes(kind):
    mechanism, random = kind(1.0, 1.0), SecureRandom()
    assert isinstance(mechanism.release(2, random), float)
    assert mechanism.release(np.zeros((3, 4)), random).shape == (3, 4)
    assert mechanism.release(np.zeros((0, 4)), random).shape == (0, 4)
    assert mechanism.release([1, 2, 3], random).shape == (3,)
    value = np.ones(3)
    mechanism.release(value, random)
    assert (value == 1).all()


@pytest.mark.parametrize("kind", EVERY)
def test_range_is_clipped_and_nan_refused(kind):
    mechanism = kind(1e-6, 1e-3, lower=-1.0, upper=2.0)
    released = mechanism.release([-np.inf, -5.0, 0.5, 7.0, np.inf], SecureRandom())
    np.testing.assert_allclose(released, [-1, -1, 0.5, 2, 2], atol=1e-6)
    with pytest.raises(ValueError, match="NaN"):
        mechanism.release([0.0, np.nan], SecureRandom())
    assert np.isfinite(kind(1.0, 1.0).release([np.inf, -np.inf], SecureRandom())).all()


@pytest.mark.parametrize("kind", [*EVERY, FloatGaussian, FloatLogistic, RoundedGaussian])
def test_no_noise_is_no_privacy(kind):
    mechanism = kind(0.0, 2.0)
    assert mechanism.event == events.NonPrivateEvent()
    value = np.array([0.5, 3.0])
    np.testing.assert_array_equal(mechanism.release(value, SecureRandom()), [0.5, 3.0])


def test_mechanisms_are_frozen_and_hashable():
    assert replace(Laplace(1.0, 1.0), sensitivity=2.0) == Laplace(1.0, 2.0)
    assert len({Gaussian(1.0, 1.0), Gaussian(1.0, 1.0)}) == 1
    with pytest.raises(AttributeError):
        Gaussian(1.0, 1.0).sensitivity = 0.1


def test_events():
    assert Laplace.calibrated(0.5, 3.0).event == events.LaplaceEvent(2.0)
    assert Logistic.calibrated(0.5, 3.0).event == events.LogisticEvent(2.0, 1)
    assert Logistic(2.0, 1.0, norm="l2").event == events.LogisticEvent(2.0, 2)
    assert KNorm.calibrated(0.5, 3.0).event == events.ApproxDPEvent(0.5)
    z = analytic_noise_multiplier(1.0, 1e-6)
    assert Gaussian.calibrated(1.0, 1e-6, 3.0).event == events.GaussianEvent(z)


# ---------------------------------------------------------------- calibration


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-3, 60.0), st.floats(1e-9, 0.5))
def test_analytic_gaussian_is_the_least(epsilon, delta):
    z = analytic_noise_multiplier(epsilon, delta)
    assert gaussian_delta(1.0, z, epsilon) <= delta * (1 + 1e-9)
    assert gaussian_delta(1.0, z * (1 - 1e-5), epsilon) > delta * (1 - 1e-9)


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
    samples = sampler(scale, N_SAMPLES, SecureRandom(seed=scale))
    assert chi2_pvalue(samples, SHAPES[sampler], scale) > 1e-4


@pytest.mark.heavy
@pytest.mark.parametrize("sampler", SHAPES, ids=lambda f: f.__name__)
def test_the_test_has_power(sampler):
    """A scale that is 3% off, or one shape for another, would not pass."""
    samples = sampler(30, N_SAMPLES, SecureRandom(seed=1))
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
    samples = sampler(scale, N_SAMPLES, SecureRandom(seed=bits)) / scale
    assert stats.kstest(samples, law.cdf).pvalue > 1e-4


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 5), (1, 3), (5, 5), (7, 2), (2**60, 3)])
def test_bernoulli_exp(numerator, denominator):
    drawn = bernoulli_exp(np.full(N_SAMPLES, numerator), denominator, SecureRandom(seed=2))
    expected = np.exp(-numerator / denominator)
    assert stats.binomtest(int(drawn.sum()), N_SAMPLES, expected).pvalue > 1e-4


def test_bernoulli_exp_takes_each_numerator_by_itself():
    numerators = np.repeat([0, 1, 2, 4], N_SAMPLES // 4)
    drawn = bernoulli_exp(numerators, 2, SecureRandom(seed=3)).reshape(4, -1).mean(axis=1)
    np.testing.assert_allclose(drawn, np.exp([0, -0.5, -1, -2]), atol=0.012)


@pytest.mark.heavy
@pytest.mark.parametrize("sampler", SHAPES, ids=lambda f: f.__name__)
def test_samples_are_independent(sampler):
    """Rejection fills gaps in order: no correlation between neighbours may come of it."""
    assert sampler(5, 0, SecureRandom()).shape == (0,)
    x = sampler(1 << 20, N_SAMPLES, SecureRandom(seed=4)).astype(float)
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 5 / np.sqrt(N_SAMPLES)
