"""Noise of streams: it is C^-1 z, number by number, and C turns it back into independent noise."""

import copy
import pickle

import numpy as np
import pytest
from scipy import stats

from skprivacy.accounting import GaussianEvent
from skprivacy.accounting.events import BandedFactorizationEvent, TreeAggregationEvent
from skprivacy.accounting.events.matrix_factorization import last_step_deviation, square_root_band
from skprivacy.accounting.pld.distribution import pld
from skprivacy.mechanisms import SecureRandom
from skprivacy.mechanisms import matrix_gaussian as module
from skprivacy.mechanisms.matrix_gaussian import MatrixGaussian

from ..accounting.events.test_matrix_factorization import banded_matrix
from .chance import measured_delta

BAND = square_root_band(1000, 1, most=4)


def noise(event, size, sensitivity=1.0, random=None):
    """All the noise of a run, shape (steps, size)."""
    stream, random = MatrixGaussian(event, sensitivity), random or SecureRandom(seed=1)
    return np.array([stream.release(np.zeros(size), random) for _ in range(event.n_steps)])


class Counted(SecureRandom):
    """Normal numbers that are kept."""

    def __init__(self):
        super().__init__()
        self.drawn = []

    def normal(self, size):
        self.drawn.append(super().normal(size))
        return self.drawn[-1].copy()


@pytest.mark.parametrize("band", [(1.0,), (1.0, 0.5), BAND, square_root_band(500, 1)])
@pytest.mark.parametrize("n", [1, 2, 9, 70])
def test_banded_noise_is_solved_exactly(band, n):
    random = Counted()
    y = noise(BandedFactorizationEvent(2.0, n, 1, band), 5, 0.5, random)
    z = np.array(random.drawn)
    assert z.shape == y.shape  # fresh noise in every step
    assert y == pytest.approx(np.linalg.solve(banded_matrix(band, n), z), abs=1e-5)


def test_long_vectors_are_worked_in_parts(monkeypatch):
    random = Counted()
    monkeypatch.setattr(module, "_CHUNK", 7)
    y = noise(BandedFactorizationEvent(1.0, 6, 1, BAND), 20, 1.0, random)
    z = np.concatenate(random.drawn).reshape(6, 20)
    assert y == pytest.approx(np.linalg.solve(banded_matrix(BAND, 6), z), abs=1e-5)


@pytest.mark.parametrize("n", [1, 2, 7, 16, 37])
def test_tree_noise_is_that_of_the_running_sums(n):
    """Each running sum has the noise of the dyadic sums that make it up, whole and once."""
    random = Counted()
    sums = noise(TreeAggregationEvent(1.0, n, 1), 3, 1.0, random).cumsum(0)
    for t in range(1, n + 1):
        # The sum of steps start .. stop - 1 was drawn when its last step was released.
        expected, start = np.zeros(3), 0
        for level in reversed(range(t.bit_length())):
            if t >> level & 1:
                start += 2**level
                expected += random.drawn[start - 1]
        assert sums[t - 1] == pytest.approx(expected, abs=1e-5)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "event",
    [BandedFactorizationEvent(2.0, 4, 1, BAND), TreeAggregationEvent(2.0, 4, 1)],
    ids=["banded", "tree"],
)
def test_a_test_of_the_whole_stream_finds_the_loss_it_is_accounted_for(event):
    """The best test of a record that is always in step 0: the likelihood ratio of C x + z."""
    rows = 500_000
    y = noise(event, rows).T
    if isinstance(event, TreeAggregationEvent):
        observed = np.c_[y[:, 0], y[:, :2].sum(1), y.sum(1)]  # nodes that hold step 0
        C = np.ones(3)
    else:
        observed, C = y @ banded_matrix(BAND, 4).T, np.asarray(BAND)
    statistic = observed @ C / (np.linalg.norm(C) * 2.0)
    distance = np.linalg.norm(C) / 2.0
    assert distance == pytest.approx(event.sensitivity / 2.0)
    claimed = GaussianEvent(1 / distance)
    for epsilon in (0.1, 0.3):
        exact = pld(claimed).delta(epsilon)
        measured = measured_delta(statistic + distance, statistic, epsilon)
        assert 0.85 * exact < measured <= exact  # the rest is the width of the confidence bound


@pytest.mark.parametrize("kind", [BandedFactorizationEvent, TreeAggregationEvent])
def test_a_stream_keeps_its_length_ends_with_its_account_and_cannot_be_copied(kind):
    stream, random = MatrixGaussian(kind(1.0, 2, 1), 1.0), SecureRandom()
    assert stream == MatrixGaussian(kind(1.0, 2, 1), 1.0)
    stream.release(np.zeros(3), random)
    with pytest.raises(ValueError, match="value has 4 numbers"):
        stream.release(np.zeros(4), random)
    stream.release(np.zeros(3), random)
    with pytest.raises(RuntimeError, match="All 2 steps of the stream are used"):
        stream.release(np.zeros(3), random)
    for copied in (copy.deepcopy, copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match="copied or pickled"):
            copied(stream)


@pytest.mark.parametrize("band", [(1.0, 2.0), (1.0, 1.5), (1.0, 0.0, 1.5), (1.0, 1e300)])
def test_noise_that_grows_until_it_drowns_itself_is_refused(band):
    """With (1, 2), C times the stream showed its last steps with no noise on them at all."""
    with pytest.raises(ValueError, match="too much for single precision"):
        MatrixGaussian(BandedFactorizationEvent(1.0, 100, 1, band), 1.0)


@pytest.mark.everyday(2)
@pytest.mark.heavy
@pytest.mark.parametrize("band", [(1.0, 2.0), (1.0, 1.0), (1.0, 0.0, 1.2)])
def test_what_is_not_refused_keeps_its_fresh_noise(band):
    steps = next(n for n in (1000, 50, 8) if last_step_deviation(np.array(band), n) <= 1e3)
    y = noise(BandedFactorizationEvent(3.0, steps, 1, band), 20_000)
    z = (banded_matrix(band, steps) @ y)[-1] / 3.0
    assert stats.kstest(z, "norm").pvalue > 1e-7
    assert len(np.unique(z)) > 10_000
