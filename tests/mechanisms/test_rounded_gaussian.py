"""Gaussian noise rounded to a grid: its law to the last cell, its proof, and planted bugs."""

import math
from collections import Counter
from unittest import mock

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from skprivacy.mechanisms import FloatGaussian, SecureRandom
from skprivacy.mechanisms import rounded_gaussian as rounded
from skprivacy.mechanisms.rounded_gaussian import (
    RoundedGaussian,
    decide_rounded_cell,
    normal_tail,
    rounded_normal,
)

from .chance import check_tails


class Words:
    """A source of given words of 64 bits; what is asked for beyond them is ``rest``, or random."""

    def __init__(self, words, rest=None):
        self.words, self.rest, self.random = list(words), rest, SecureRandom(seed=0)

    def random_bytes(self, n):
        return b"".join(self._word() for _ in range(n // 8))

    def _word(self):
        if self.words:
            return int(self.words.pop(0)).to_bytes(8, "little")
        if self.rest is None:
            return self.random.random_bytes(8)
        return self.rest.to_bytes(8, "little")


def tail(z):
    return mp.erfc(z / mp.sqrt(2)) / 2


def border(k, sigma):
    """The tail probability, in units of 2**-64, at the border between k and k + 1."""
    with mp.workprec(400):
        return int(mp.floor(tail((2 * k + 1) / (2 * mp.mpf(sigma))) * 2**64))


@pytest.mark.parametrize("size", [0, 1, 2, (1 << 14) + 1])
def test_any_size(size):
    x = rounded_normal(1000.0, size, SecureRandom())
    assert x.shape == (size,)
    np.testing.assert_array_equal(x, np.rint(x))


@pytest.mark.parametrize("sigma", [0.21, 0.8, 3.3, 40.5])
def test_the_law_cell_by_cell(sigma):
    n = 400_000
    x = rounded_normal(sigma, n, SecureRandom(seed=7))
    most = math.ceil(6 * sigma)
    edges = np.arange(-most, most + 2) - 0.5
    edges[0], edges[-1] = -np.inf, np.inf
    mass = np.diff(stats.norm.cdf(edges / sigma))
    found = np.bincount(np.clip(x + most, 0, 2 * most).astype(int), minlength=2 * most + 1)
    likely = mass * n > 20
    observed = np.r_[found[likely], found[~likely].sum()]
    expected = np.r_[mass[likely], mass[~likely].sum()] * n
    assert stats.chisquare(observed[expected > 0], expected[expected > 0]).pvalue > 1e-6


@pytest.mark.heavy
def test_the_law_into_the_tails():
    x = rounded_normal(5e6, 1 << 21, SecureRandom(seed=3)) / 5e6
    check_tails(x, stats.norm, (0.0, 1.0, 3.0, 4.5, 5.0))


@pytest.mark.heavy
def test_outermost_numbers():
    """Given the outermost 2**-63 of the probability, tails are uniform: there is no last number."""
    sigma = 1e6
    random = Words([])
    x = [rounded._refine_rounded_normal(0, sigma, random) / sigma for _ in range(300)]
    uniform = stats.norm.sf(x) * 2.0**64
    assert stats.kstest(uniform, "uniform").pvalue > 1e-6
    far = rounded_normal(sigma, 1, Words([0, 0, 1 << 40]))[0] / sigma
    assert float(stats.norm.sf(far)) == pytest.approx((1 << 40) * 2.0**-192, rel=1e-3)


def test_further_bits_decide_borders():
    """A word whose interval holds a border is decided by further bits, on either side."""
    for sigma, k in ((3.3, 0), (1000.5, 700), (4.1e6, 12_345_678), (2.0**33, 5 << 30)):
        m = border(k, sigma)
        for sign, first in ((1, m), (-1, m | 1 << 63)):
            low, high = (
                sign * rounded_normal(sigma, 1, Words([first], rest))[0] for rest in (2**64 - 1, 0)
            )
            assert (low, high) == (k, k + 1)
            for word, cell in ((first + 1, k), (first - 1, k + 1)):
                assert sign * rounded_normal(sigma, 1, Words([word]))[0] == cell


def test_further_bits_decide_at_the_very_border():
    """At the border itself as far as 128 bits tell, and given the rest, on both sides by chance."""
    sigma, k = 4.1e6, 12_345_678
    with mp.workprec(400):
        bits = int(mp.floor(tail((2 * k + 1) / (2 * mp.mpf(sigma))) * mp.mpf(2) ** 128))
    first, second = divmod(bits, 1 << 64)
    source = Words([])
    found = Counter()
    for _ in range(200):
        source.words = [first, second]
        found[int(rounded_normal(sigma, 1, source)[0])] += 1
    assert set(found) == {k, k + 1}


@pytest.mark.parametrize("sigma", [1e-30, 0.3, 3e6, 2.0**40])
def test_quantiles_and_integers_agree(sigma):
    """The fast way gives what integer arithmetic does, from the same bits."""
    n = 1500
    fast = rounded_normal(sigma, n, SecureRandom(seed=5))
    with mock.patch.object(rounded, "_LEAST", 1 << 63):
        np.testing.assert_array_equal(rounded_normal(sigma, n, SecureRandom(seed=5)), fast)


def dense():
    """Tail probabilities from 2**-18 to a half: everywhere, and where approximations change."""
    near = [a + s * b for a in (0.5, math.exp(-2), 2.0**-18) for b in np.geomspace(1e-16, 1e-3, 60)
            for s in (-1, 1)]  # fmt: skip
    p = np.r_[near, np.geomspace(2.0**-18, 0.5, 1500), np.linspace(2.0**-18, 0.5, 1500)]
    p = np.r_[p, 0.5 * np.random.default_rng(0).random(500)]
    return np.unique(p[(p >= 2.0**-18) & (p < 0.5)])


@pytest.mark.slow
def test_the_quantile_is_as_exact_as_the_proof_needs():
    """Between quantiles 2**-46 lower and higher lies the true one; see ``rounded_normal``."""
    off = 2.0**-46
    p = dense()
    for q, z in zip(p, -ndtri(p), strict=True):
        with mp.workprec(150):
            assert tail(mp.mpf(z) + off) < mp.mpf(q)
            assert tail(mp.mpf(z) - off) > mp.mpf(q)


def test_the_other_numbers_of_the_proof():
    edge = float(-ndtri(2.0**-18))
    assert edge < 4.48
    assert rounded._LEAST * 2.0**-64 == 2.0**-18
    interval = 2.0**-65 / stats.norm.pdf(4.48)
    z = np.linspace(0.0, 4.48, 1000)
    rounding = 2.0**-53 * (stats.norm.sf(z) / stats.norm.pdf(z)).max()
    assert interval < 2.0**-49
    assert rounding < 2.0**-52
    assert 4.48 * 2.0**-53 < 2.0**-50
    assert interval + rounding + 2.0**-50 + 2.0**-46 < 2.0**-45 <= rounded._MARGIN / 2


@pytest.mark.parametrize("bits", [64, 65, 128, 320])
def test_bounds_of_the_tail(bits):
    rng = np.random.default_rng(bits)
    cases = [(1, 1 << 41), (1, 3), (4, 1), (39, 4), (12, 1), (10**9, 1)]
    cases += [
        (int(rng.integers(1, 1 << 53)), int(rng.integers(1 << 50, 1 << 53))) for _ in range(60)
    ]
    for numerator, denominator in cases:
        low, high = normal_tail(numerator, denominator, bits)
        with mp.workprec(2 * bits + 100):
            exact = tail(mp.mpf(numerator) / denominator) * mp.mpf(2) ** bits
            assert low <= exact <= high <= low + 3


def test_bits_that_do_not_decide_are_told():
    assert decide_rounded_cell(border(5, 3.0), 64, 3.0) is None
    assert decide_rounded_cell(0, 64, 1e6) is None
    assert decide_rounded_cell((1 << 63) - 1, 64, 1e6) == 0


# ---------------------------------------------------------------- the mechanism


def test_results_are_on_the_grid():
    """All results are multiples of a step that is fixed beforehand; zero has one form."""
    mechanism = RoundedGaussian(2.0**-21, 1.0)
    for value in (0.0, -0.2 * mechanism.grid, 1.0, np.pi, 1e9 / 3):
        released = mechanism.release(np.full(1000, value), SecureRandom(seed=1))
        steps = released / mechanism.grid
        assert (steps == np.rint(steps)).all()
        assert not np.signbit(released[released == 0]).any()


def low_bits_tell(mechanism):
    """Mironov's attack on a single number: can 0 + noise be what 1 + noise cannot?"""
    zeros, ones = (
        mechanism.release(np.full(20_000, value, np.float32), SecureRandom(seed=4)).astype(float)
        for value in (0.0, 1.0)
    )
    coarse = (ones * 2.0**26 == np.rint(ones * 2.0**26)).all()
    return bool(coarse and (zeros * 2.0**26 != np.rint(zeros * 2.0**26)).any())


def test_the_lowest_bits_tell_of_floating_point_noise_alone():
    assert low_bits_tell(FloatGaussian(1.0, 1.0))
    assert not low_bits_tell(RoundedGaussian(1.0, 1.0))


def moved_apart(mechanism, n):
    """Return how far apart vectors are released that are as far apart as neighbours may be."""
    grid, little = mechanism.grid, 1e-9
    between = math.floor(mechanism.sensitivity / grid / math.sqrt(n))
    low = np.full(n, grid * (0.5 - little))
    high = low + grid * (between + 2 * little)
    assert np.linalg.norm(high - low) <= mechanism.sensitivity
    with mock.patch.object(rounded, "rounded_normal", lambda s, size, random: np.zeros(size)):
        low, high = (mechanism.release(value, SecureRandom()) for value in (low, high))
    return np.linalg.norm(high - low)


def test_sensitivity_counts_rounding():
    """The noise is enough for neighbours that rounding moves away from each other."""
    n = 1_000_000
    for mechanism in (RoundedGaussian(1.0, 1.0), RoundedGaussian(0.3, 7e-5)):
        std = mechanism._scale_steps(n) * mechanism.grid
        apart = moved_apart(mechanism, n)
        assert apart > mechanism.sensitivity  # rounding does add to it
        assert mechanism.noise_multiplier * apart <= std
        assert std <= mechanism.noise_multiplier * mechanism.sensitivity * 1.0003


def test_growth_is_as_documented():
    for n, growth in ((10_000, 3e-5), (200_000, 1.1e-4), (20_000_000, 1.1e-3)):
        for sensitivity in (1.0, 1.999, 0.3):
            mechanism = RoundedGaussian(1.0, sensitivity)
            std = mechanism._scale_steps(n) * mechanism.grid
            assert sensitivity < std <= sensitivity * (1 + growth)


def test_law_of_the_noise():
    """The law of what a mechanism adds, in steps."""
    mechanism = RoundedGaussian(2.0**-20, 1.0)  # noise of a few steps
    steps = mechanism.release(np.zeros(400_000), SecureRandom(seed=2)) / mechanism.grid
    sigma = mechanism._scale_steps(400_000)
    for k in range(-6, 7):
        mass = np.diff(stats.norm.cdf((np.array([k, k + 1]) - 0.5) / sigma))[0]
        assert stats.binomtest(int((steps == k).sum()), len(steps), mass).pvalue > 1e-6


def test_much_noise_has_a_coarser_grid():
    for z in (1e3, 1e4, 1e8):
        mechanism = RoundedGaussian(z, 0.7)
        steps = mechanism._scale_steps(10_000)
        assert 2.0**31 < steps < 2.0**34
        assert steps * mechanism.grid >= z * (0.7 + 100 * mechanism.grid)


def test_huge_numbers_stay_finite_and_noise_beyond_quantiles_is_refused_beforehand():
    value = np.zeros(100)
    with pytest.raises(ValueError, match=r"noise_multiplier=1e\+16 is too large .* 100 numbers"):
        RoundedGaussian(1e16, 1e5).release(value, SecureRandom())
    assert not value.any()
    value = np.array([1e300, -1e300])
    assert np.isfinite(RoundedGaussian(1.0, 1e-20).release(value, SecureRandom())).all()


# ---------------------------------------------------------------- planted bugs


def rounded_before_scaling(sigma, size, random):
    return sigma * rounded_normal(1.0, size, random)


def never_decided(m, sigma, random):
    return round(-sigma * float(ndtri(math.ldexp(m + 0.5, -64))))


def rounding_forgotten(self, size):
    return self.noise_multiplier * self.sensitivity / self.grid


def sum_not_rounded(self, value, random):
    value += rounded_normal(self._scale_steps(value.size), value.size, random) * self.grid
    return value


BUGS = {
    "noise rounded before scaling": (
        "rounded_normal", rounded_before_scaling, test_law_of_the_noise,
    ),
    "no further bits at a border": (
        "_refine_rounded_normal", never_decided, test_further_bits_decide_borders,
    ),
    "no further bits in the tail": (
        "_refine_rounded_normal", never_decided, test_outermost_numbers,
    ),
    "quantiles alone": ("_MARGIN", -1.0, test_further_bits_decide_borders),
    "the step forgotten in the sensitivity": (
        "RoundedGaussian._scale_steps", rounding_forgotten, test_sensitivity_counts_rounding,
    ),
    "the sum is not rounded": (
        "RoundedGaussian._add_noise", sum_not_rounded, test_results_are_on_the_grid,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_caught(name):
    what, bug, check = BUGS[name]
    *owner, attribute = what.split(".")
    target = getattr(rounded, owner[0]) if owner else rounded
    with mock.patch.object(target, attribute, bug), pytest.raises(AssertionError):
        check()
