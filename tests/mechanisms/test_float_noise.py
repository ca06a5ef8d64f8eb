"""Noise for long vectors: law, tails, privacy and edge cases; the logistic law in full."""

import numpy as np
import pytest
from scipy import integrate, stats

from skprivacy.accounting import GaussianEvent
from skprivacy.accounting.events import LogisticEvent
from skprivacy.accounting.renyi import rdp
from skprivacy.mechanisms import FloatGaussian, SecureRandom
from skprivacy.mechanisms.float_noise import FloatLogistic, standard_logistic
from skprivacy.mechanisms.rounded_gaussian import RoundedGaussian

from .chance import check_tails


class Bits:
    """A source of given words; what is asked for beyond them is ``rest``."""

    def __init__(self, words, rest=0):
        self.words, self.rest = np.asarray(words, np.uint32), rest

    def random_bytes(self, n):
        words, self.words = self.words[: n // 4], self.words[n // 4 :]
        missing = n // 4 - len(words)
        return words.tobytes() + np.full(missing, self.rest, np.uint32).tobytes()


@pytest.mark.parametrize("size", [0, 1, 2, (1 << 14) + 1])
def test_any_size(size):
    x = standard_logistic(size, SecureRandom())
    assert x.shape == (size,)
    assert x.dtype == np.float32
    assert np.isfinite(x).all()


@pytest.mark.slow
def test_the_law_into_the_tails():
    x = standard_logistic(1 << 23, SecureRandom(11))
    check_tails(x, stats.logistic, (1.0, 4.0, 8.0, 12.0))
    assert np.mean(x.astype(float) ** 2) == pytest.approx(np.pi**2 / 3, rel=5e-3)


@pytest.mark.heavy
def test_sizes_are_the_quantiles_from_end_to_end():
    steps = np.unique(np.r_[2047, 2048, np.geomspace(2049, 2**31 - 1, 5000), 2**31 - 2**24])
    steps = np.r_[steps, 2**31 - np.arange(1.0, 4096)].astype(np.uint32)
    tail = (steps + 0.5) * 2.0**-31
    expected = np.log((2 - tail) / tail)
    for sign in (0, 1 << 31):
        found = standard_logistic(len(steps), Bits(steps | np.uint32(sign), rest=1 << 31))
        assert (np.signbit(found) == bool(sign)).all()
        assert np.abs(found.astype(float)) == pytest.approx(expected, rel=1e-5)


def test_the_outermost_draw_and_no_noise_at_all():
    far = standard_logistic(1, Bits([0]))
    assert 44.0 < far[0] < 46.0
    least = standard_logistic(1, Bits([2**31 - 1]))
    assert least[0] == pytest.approx(2.0**-31, rel=1e-6)


def test_the_refined_tail_is_the_right_one():
    """Given that a number is among the outermost 2**-20, it is distributed as it should be."""
    rng = np.random.default_rng(0)
    steps = rng.integers(0, 2048, 20_000, dtype=np.uint32)
    fine = rng.integers(0, 2**32, 20_000, dtype=np.uint32)
    x = standard_logistic(20_000, Bits(np.r_[steps, fine])).astype(float)
    assert stats.kstest(2 / (1 + np.exp(x)) * 2.0**20, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("moves", [(1.0,), (0.8, 0.6), (0.5,) * 4, (0.1,) * 100])
@pytest.mark.parametrize("order", [2, 8, 32])
def test_renyi_of_any_direction_is_covered(moves, order):
    """Numbers that move independently add up their divergences, here by quadrature."""
    x = np.linspace(-80, 80, 200_001)
    total = 0.0
    for move, times in zip(*np.unique(np.asarray(moves), return_counts=True), strict=True):
        log_p, log_q = stats.logistic.logpdf(x - move), stats.logistic.logpdf(x)
        moment = integrate.trapezoid(np.exp(order * log_p + (1 - order) * log_q), x)
        total += times * np.log(moment) / (order - 1)
    assert total <= rdp(LogisticEvent(1.0, norm=2), [order])[0] * (1 + 1e-9)
    assert total > 0.1 * rdp(LogisticEvent(1.0, norm=2), [order])[0]


# ---------------------------------------------------------------- all noise for long vectors

EVENTS = {
    FloatGaussian: GaussianEvent(2.0),
    FloatLogistic: LogisticEvent(2.0, norm=2),
    RoundedGaussian: GaussianEvent(2.0),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", EVENTS)
def test_noise_is_added_in_place(kind, dtype):
    value, mechanism = np.full(9, 3.0, dtype), kind(2.0, 0.5)
    assert mechanism.release(value, SecureRandom()) is value
    assert mechanism.event == EVENTS[kind]


@pytest.mark.parametrize("kind", EVENTS)
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
