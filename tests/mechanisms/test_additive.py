"""Laplace, Gaussian and logistic noise: shape, privacy, support, edge cases, planted bugs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skprivacy.accounting import events
from skprivacy.mechanisms import (
    FloatGaussian,
    FloatLogistic,
    Gaussian,
    Laplace,
    Logistic,
    RoundedGaussian,
    SecureRandom,
    additive,
    analytic_noise_multiplier,
    classic_noise_multiplier,
)

from .chance import check_claim

LAWS = {Laplace: stats.laplace, Gaussian: stats.norm, Logistic: stats.logistic}
KINDS = [Laplace, Gaussian, Logistic]


def gaussian_delta(epsilon, z):
    return stats.norm.cdf(0.5 / z - epsilon * z) - math.exp(epsilon) * stats.norm.cdf(
        -0.5 / z - epsilon * z
    )


def laplace_delta(epsilon, b):
    return max(0.0, 1 - math.exp((epsilon - 1 / b) / 2))


def logistic_delta(epsilon, s):
    t = 1 / s
    return (math.exp(t / 2) - math.exp(epsilon / 2)) ** 2 / math.expm1(t) if epsilon < t else 0.0


CLAIMS = {Laplace: laplace_delta, Gaussian: gaussian_delta, Logistic: logistic_delta}


def sampler(mechanism, seed=0):
    random = SecureRandom(seed)
    return lambda value, n: mechanism.release(np.full(n, value), random)


def check_privacy(mechanism, sensitivity, claim):
    """A vector of many copies of one value stands for many releases of that value."""
    check_claim(
        sampler(mechanism), 0.3, 0.3 + sensitivity, lambda e: claim(e) + 1e-9, (0.0, 0.5, 1.0, 2.0)
    )


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_noise_has_the_declared_law(kind):
    mechanism = kind(noise_multiplier=0.7, sensitivity=3.0)
    # A vector's scale is a little larger for its rounding; one number's is exact to 1e-6.
    noise = sampler(mechanism)(-17.25, 200_000) + 17.25
    assert mechanism.scale == pytest.approx(2.1, rel=2e-6)
    assert stats.kstest(noise, LAWS[kind](scale=2.1).cdf).pvalue > 1e-4
    assert noise.std() == pytest.approx(mechanism.std, rel=0.02)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("z", [0.6, 2.0])
def test_privacy(kind, z):
    check_privacy(kind(z, sensitivity=2.5), 2.5, lambda e: CLAIMS[kind](e, z))


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_privacy_claims_are_tight(kind):
    """If the noise were 15% too small, the stochastic test would say so."""
    with pytest.raises(AssertionError, match="claimed"):
        check_privacy(kind(0.6 * 0.85, sensitivity=2.5), 2.5, lambda e: CLAIMS[kind](e, 0.6))


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_planted_half_noise_is_caught(kind):
    class HalfNoise(kind):
        def _noise(self, scale, size, random):
            return super()._noise(scale, size, random) // 2

    with pytest.raises(AssertionError, match="claimed"):
        check_privacy(HalfNoise(1.0, 2.5), 2.5, lambda e: CLAIMS[kind](e, 1.0))


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_planted_wrong_bound_is_caught(kind):
    with pytest.raises(AssertionError, match="claimed"):
        check_privacy(kind(1.0, sensitivity=1.0), 2.5, lambda e: CLAIMS[kind](e, 1.0))


def check_fresh(random_for_release):
    value, mechanism = np.zeros(8), Gaussian(1.0, 1.0)
    first, second = (mechanism.release(value, random_for_release()) for _ in range(2))
    assert not (first == second).any(), "noise repeats"  # chance: about 1e-10


def test_noise_is_fresh_and_a_reused_seed_is_caught():
    check_fresh(SecureRandom)
    with pytest.raises(AssertionError, match="repeats"):
        check_fresh(lambda: SecureRandom(seed=7))


# ---------------------------------------------------------------- the grid


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
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
    """The planted bug: plain floating-point noise tells 0.1 from 1 / 3 by the lowest bits."""

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


@pytest.mark.parametrize("kind", KINDS)
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


@pytest.mark.parametrize("kind", KINDS)
def test_shapes(kind):
    mechanism, random = kind(1.0, 1.0), SecureRandom()
    assert isinstance(mechanism.release(2, random), float)
    assert mechanism.release(np.zeros((3, 4)), random).shape == (3, 4)
    assert mechanism.release(np.zeros((0, 4)), random).shape == (0, 4)
    assert mechanism.release([1, 2, 3], random).shape == (3,)
    value = np.ones(3)
    mechanism.release(value, random)
    assert (value == 1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_range_is_clipped_and_nan_refused(kind):
    mechanism = kind(1e-6, 1e-3, lower=-1.0, upper=2.0)
    released = mechanism.release([-np.inf, -5.0, 0.5, 7.0, np.inf], SecureRandom())
    np.testing.assert_allclose(released, [-1, -1, 0.5, 2, 2], atol=1e-6)
    with pytest.raises(ValueError, match="NaN"):
        mechanism.release([0.0, np.nan], SecureRandom())
    assert np.isfinite(kind(1.0, 1.0).release([np.inf, -np.inf], SecureRandom())).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((-1.0, 1.0), "noise_multiplier=-1.0"),
        ((math.nan, 1.0), "noise_multiplier=nan"),
        ((math.inf, 1.0), "noise_multiplier=inf"),
        ((1.0, 0.0), r"sensitivity=0\.0"),
        ((1.0, math.nan), "sensitivity=nan"),
        ((1.0, 1.0, 2.0, 2.0), r"lower=2\.0"),
    ],
)
def test_bad_parameters_are_named(kind, arguments, named):
    with pytest.raises(ValueError, match=named):
        kind(*arguments)


def test_too_much_noise_for_integers_is_refused():
    with pytest.raises(ValueError, match="64-bit"):
        Laplace(1e15, 1.0).release(np.zeros(100), SecureRandom())


def test_logistic_norm():
    with pytest.raises(ValueError, match="norm='l3'"):
        Logistic(1.0, 1.0, norm="l3")
    assert Logistic(2.0, 1.0, norm="l2").event == events.LogisticEvent(2.0, 2)


@pytest.mark.parametrize("kind", [*KINDS, FloatGaussian, RoundedGaussian])
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
    z = analytic_noise_multiplier(1.0, 1e-6)
    assert Gaussian.calibrated(1.0, 1e-6, 3.0).event == events.GaussianEvent(z)


# ---------------------------------------------------------------- calibration


@pytest.mark.parametrize(("delta", "z"), [(1e-5, 3.7306316), (1e-6, 4.2246789)])
def test_analytic_gaussian_golden(delta, z):
    assert analytic_noise_multiplier(1.0, delta) == pytest.approx(z, abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-3, 60.0), st.floats(1e-9, 0.5))
def test_analytic_gaussian_is_the_least(epsilon, delta):
    z = analytic_noise_multiplier(epsilon, delta)
    assert gaussian_delta(epsilon, z) <= delta * (1 + 1e-9)
    assert gaussian_delta(epsilon, z * (1 - 1e-5)) > delta * (1 - 1e-9)


@pytest.mark.parametrize(
    ("epsilon", "delta", "named"), [(-1, 1e-6, "epsilon=-1"), (1, 0, "delta=0"), (1, 1, "delta=1")]
)
def test_analytic_gaussian_refuses(epsilon, delta, named):
    with pytest.raises(ValueError, match=named):
        analytic_noise_multiplier(epsilon, delta)


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-3, 1.0), st.floats(1e-12, 0.999))
def test_classic_gaussian_holds_where_its_theorem_does(epsilon, delta):
    z = classic_noise_multiplier(epsilon, delta)
    assert z == pytest.approx(math.sqrt(2 * math.log(1.25 / delta)) / epsilon)
    assert z > analytic_noise_multiplier(epsilon, delta)
    assert gaussian_delta(epsilon, z) <= delta
    mechanism = Gaussian.calibrated(epsilon, delta, 3.0, gaussian="classic", lower=0.0)
    assert mechanism == Gaussian(z, 3.0, lower=0.0)


def test_classic_gaussian_is_refused_where_it_fails():
    z = math.sqrt(2 * math.log(1.25 / 1e-5)) / 12  # what the formula would say
    assert gaussian_delta(12.0, z) > 1e-5
    for make in (classic_noise_multiplier, partial(Gaussian.calibrated, gaussian="classic")):
        arguments = () if make is classic_noise_multiplier else (1.0,)
        for epsilon in (1.0 + 1e-9, 12.0, math.inf, math.nan, 0.0, -1.0):
            with pytest.raises(ValueError, match=r"epsilon=.*analytic"):
                make(epsilon, 1e-5, *arguments)
        for delta in (0.0, 1.0, math.nan):
            with pytest.raises(ValueError, match="delta="):
                make(1.0, delta, *arguments)
    with pytest.raises(ValueError, match="gaussian='exact'"):
        Gaussian.calibrated(1.0, 1e-5, 1.0, gaussian="exact")


# ---------------------------------------------------------------- floating-point noise


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_gaussian_works_in_place(dtype):
    value = np.full(200_001, 3.0, dtype)
    released = FloatGaussian(2.0, 0.5).release(value, SecureRandom(seed=1))
    assert released is value
    assert stats.kstest(released - 3.0, "norm").pvalue > 1e-4


def test_float_gaussian_privacy_and_planted_bug():
    def run(z):
        check_claim(
            lambda v, n: FloatGaussian(z, 2.5).release(np.full(n, v), SecureRandom(seed=3)),
            0.0, 2.5, lambda e: gaussian_delta(e, 1.0), (0.5, 1.0),
        )  # fmt: skip

    run(1.0)
    with pytest.raises(AssertionError, match="claimed"):
        run(0.5)


@pytest.mark.parametrize("value", [np.zeros(3, int), np.zeros((2, 2)), np.zeros(3, np.float16)])
def test_float_gaussian_refuses_what_it_cannot_change_in_place(value):
    with pytest.raises(ValueError, match="flat array"):
        FloatGaussian(1.0, 1.0).release(value, SecureRandom())


@pytest.mark.parametrize(("z", "s", "named"), [(-1.0, 1.0, "noise_mult"), (1.0, 0.0, "sensitiv")])
def test_float_gaussian_parameters(z, s, named):
    with pytest.raises(ValueError, match=named):
        FloatGaussian(z, s)


@pytest.mark.parametrize("kind", [FloatGaussian, FloatLogistic, RoundedGaussian])
@pytest.mark.parametrize(
    ("z", "s"), [(1.0, 1e-50), (1.0, 1e-25), (1e-25, 1e-10), (1.0, 1e39), (1e25, 1e10)]
)
def test_noise_that_single_precision_would_lose_is_refused(kind, z, s):
    """At z = 1, s = 1e-50 the noise was rounded to none, and the event was Gaussian(1.0)."""
    with pytest.raises(ValueError, match="single precision"):
        kind(z, s)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rest", [0.0, 1e30])
def test_one_number_that_is_not_finite_is_found_wherever_it_is(bad, dtype, rest):
    """Also beside numbers whose squares are more than single precision holds."""
    for n in (1, 7, 64, 1001):
        for place in {0, n // 2, n - 1}:
            value = np.full(n, rest, dtype)
            value[place] = bad
            with pytest.raises(ValueError, match="NaN or infinity"):
                FloatGaussian(1.0, 1.0).release(value, SecureRandom())
    opposite = np.full(64, np.inf, dtype)
    opposite[::2] = -np.inf
    with pytest.raises(ValueError, match="NaN or infinity"):
        FloatGaussian(1.0, 1.0).release(opposite, SecureRandom())


@pytest.mark.parametrize("largest", [1e30, 1.5e19, 3e38])
def test_numbers_too_large_to_square_are_released(largest):
    value = np.full(100, np.float32(largest))
    with np.errstate(all="raise"):
        noisy = FloatGaussian(1.0, 1.0).release(value[::-1], SecureRandom())
    assert (noisy == np.float32(largest)).all()


@pytest.mark.parametrize("kind", [FloatGaussian, FloatLogistic])
@pytest.mark.parametrize(("z", "s"), [(2e-10, 1e-20), (5e9, 1e20)])
def test_noise_at_the_ends_of_what_is_taken_has_all_its_digits(kind, z, s):
    noise = kind(z, s).release(np.zeros(1000, np.float32), SecureRandom())
    assert np.isfinite(noise).all()
    assert len(np.unique(noise)) > 990
