"""Floating-point logistic noise: its law, its tails, its centre, and its privacy claim."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from skprivacy.accounting import LogisticEvent, NonPrivateEvent, rdp
from skprivacy.mechanisms import FloatLogistic, SecureRandom
from skprivacy.mechanisms.float_noise import standard_logistic

from .chance import check_claim


class Bits:
    """A source of given words; what is asked for beyond them is ``rest``."""

    def __init__(self, words, rest=0):
        self.words, self.rest = np.asarray(words, np.uint32), rest

    def random_bytes(self, n):
        words, self.words = self.words[: n // 4], self.words[n // 4 :]
        return (
            np.r_[words, np.full(n // 4 - len(words), self.rest, np.uint32)]
            .astype(np.uint32)
            .tobytes()
        )


@pytest.mark.parametrize("size", [0, 1, 2, (1 << 14) + 1])
def test_any_size(size):
    x = standard_logistic(size, SecureRandom())
    assert x.shape == (size,)
    assert x.dtype == np.float32
    assert np.isfinite(x).all()


@pytest.mark.heavy
def test_the_law_into_the_tails():
    x = standard_logistic(1 << 23, SecureRandom(11))
    assert stats.kstest(x[: 1 << 20], "logistic").pvalue > 1e-4
    for sign in (1, -1):
        for edge in (1.0, 4.0, 8.0, 12.0):
            beyond = int((sign * x > edge).sum())
            assert stats.binomtest(beyond, x.size, stats.logistic.sf(edge)).pvalue > 1e-4
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_works_in_place(dtype):
    value = np.full(200_001, 3.0, dtype)
    released = FloatLogistic(2.0, 0.5).release(value, SecureRandom(seed=1))
    assert released is value
    assert stats.kstest(released - 3.0, "logistic").pvalue > 1e-4
    assert FloatLogistic(2.0, 0.5).event == LogisticEvent(2.0, norm=2)


def test_without_noise():
    mechanism = FloatLogistic(0.0, 1.0)
    assert mechanism.event == NonPrivateEvent()
    assert mechanism.release(np.ones(2), SecureRandom()).tolist() == [1.0, 1.0]


def logistic_delta(epsilon, t):
    """The exact curve of one number that moves by t scales."""
    return max(0.0, np.exp(t / 2) - np.exp(epsilon / 2)) ** 2 / np.expm1(t)


def test_privacy_of_one_number_and_planted_bug():
    def run(s):
        check_claim(
            lambda v, n: FloatLogistic(s, 2.5).release(np.full(n, v), SecureRandom(seed=3)),
            0.0, 2.5, lambda e: logistic_delta(e, 1.0), (0.2, 0.5),
        )  # fmt: skip

    run(1.0)
    with pytest.raises(AssertionError, match="claimed"):
        run(0.5)


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


@pytest.mark.parametrize("value", [np.zeros(3, int), np.zeros((2, 2)), np.zeros(3, np.float16)])
def test_what_cannot_be_changed_in_place_is_refused(value):
    with pytest.raises(ValueError, match="flat array"):
        FloatLogistic(1.0, 1.0).release(value, SecureRandom())


@pytest.mark.parametrize(("z", "s", "named"), [(-1.0, 1.0, "noise_mult"), (1.0, 0.0, "sensitiv")])
def test_parameters(z, s, named):
    with pytest.raises(ValueError, match=named):
        FloatLogistic(z, s)
