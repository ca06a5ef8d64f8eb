"""Prefetched noise comes from its stream, is added once, and never leaves its process."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

from skprivacy.mechanisms import FloatGaussian, SecureRandom
from skprivacy.mechanisms import secure_random as ahead
from skprivacy.mechanisms.secure_random import _CHUNK, PrefetchedNoise

from .test_secure_random import in_fork, raw_fork

N = 3 * _CHUNK + 7


def added(random, n=N, std=1.0, dtype=np.float64):
    values = np.zeros(n, dtype)
    random.add_normal(values, std)
    return values


def bytes_of(values):
    return values[:2].tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_numbers_are_those_of_the_stream_whoever_draws_them(elsewhere, dtype):
    key = SecureRandom(3).random_bytes(32)
    stream = SecureRandom()
    stream._streams = {place: ahead.new_stream(key) for place in stream._streams}
    expected = added(stream, std=2.5, dtype=dtype)
    found = added(PrefetchedNoise(SecureRandom(3), N, elsewhere), std=2.5, dtype=dtype)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.heavy
@pytest.mark.parametrize("elsewhere", [False, True])
def test_nothing_is_added_twice(elsewhere):
    random = SecureRandom()
    streams = [PrefetchedNoise(random, N, elsewhere) for _ in range(3)]
    every = [added(stream) for stream in streams for _ in range(3)]
    every.append(added(random))
    assert len(np.unique(np.concatenate(every))) > 0.95 * len(every) * N  # float32 has ties


def test_planted_reuse_is_caught(monkeypatch):
    """Numbers that stay where they are meet the next value that comes."""

    class Kept(list):
        def pop(self):
            return self[-1].copy()

    def keeps(self, size):
        self._drawn = Kept([self.normal(size)])

    monkeypatch.setattr(PrefetchedNoise, "_draw", keeps)
    with pytest.raises(AssertionError):
        test_nothing_is_added_twice(True)


def test_of_many_threads_one_gets_the_numbers():
    for _ in range(20):
        stream, barrier = PrefetchedNoise(SecureRandom(), 64, elsewhere=True), threading.Barrier(4)

        def add(_, stream=stream, barrier=barrier):
            barrier.wait()
            return bytes_of(added(stream, 64))

        with ThreadPoolExecutor(4) as pool:
            assert len(set(pool.map(add, range(4)))) == 4


def test_another_length_is_drawn_anew_and_the_numbers_are_lost():
    stream = PrefetchedNoise(SecureRandom(), N, elsewhere=True)
    stream._wait()
    drawn = stream._drawn[0].copy()
    shorter = added(stream, N - 1)
    longer = added(stream)
    assert not np.isin(shorter, drawn).mean() > 0.01
    assert not np.isin(longer, drawn).mean() > 0.01


def test_everything_else_that_is_drawn_comes_after():
    """Under a seed results would else depend on which thread is faster."""
    found = {PrefetchedNoise(SecureRandom(5), N, elsewhere=True).random_bytes(16) for _ in range(5)}
    assert len(found) == 1
    stream = PrefetchedNoise(SecureRandom(5), N, elsewhere=True)
    noise = added(stream)
    assert stream.random_bytes(16) in found
    np.testing.assert_array_equal(
        noise, added(PrefetchedNoise(SecureRandom(5), N, elsewhere=False))
    )


def test_without_a_thread_to_be_had_numbers_are_drawn_when_they_are_added(monkeypatch):
    def refused(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    found = added(PrefetchedNoise(SecureRandom(5), N, elsewhere=True))
    np.testing.assert_array_equal(
        found, added(PrefetchedNoise(SecureRandom(5), N, elsewhere=False))
    )


def test_without_memory_for_all_numbers_are_drawn_when_they_are_added(monkeypatch):
    normal = SecureRandom.normal

    def no_room(self, size):
        raise MemoryError

    monkeypatch.setattr(SecureRandom, "normal", no_room)
    stream = PrefetchedNoise(SecureRandom(13), N, elsewhere=True)
    stream._wait()
    monkeypatch.setattr(SecureRandom, "normal", normal)
    assert stats.kstest(added(stream), "norm").pvalue > 1e-6


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork in a process with threads
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
class TestFork:
    # Behind Python's back no fork is possible while another thread waits for Python's lock: the
    # child would wait for that thread, which it does not have.
    @pytest.mark.heavy
    @pytest.mark.parametrize(
        ("done", "fork"), [(False, os.fork), (True, os.fork), (True, raw_fork)]
    )
    def test_a_child_gets_none_of_the_numbers_and_another_key(self, done, fork):
        stream = PrefetchedNoise(SecureRandom(), 64, elsewhere=True)
        if done:
            stream._wait()
        children = [in_fork(lambda: bytes_of(added(stream, 64)), fork) for _ in range(2)]
        assert all(len(child) == 16 for child in children)
        assert len({*children, bytes_of(added(stream, 64))}) == 3

    def test_planted_numbers_that_a_child_takes_along_are_caught(self, monkeypatch):
        monkeypatch.setattr(ahead, "process_identity", lambda: "everywhere")
        with pytest.raises(AssertionError):
            self.test_a_child_gets_none_of_the_numbers_and_another_key(True, os.fork)


def test_a_mechanism_adds_them_as_it_adds_others():
    stream = PrefetchedNoise(SecureRandom(), N, elsewhere=True)
    stream._wait()
    drawn = stream._drawn[0].astype(float)
    value = np.ones(N)
    noisy = FloatGaussian(2.0, 0.5).release(value, stream)
    np.testing.assert_array_equal(noisy, 1 + drawn)
    assert not stream._drawn


@pytest.mark.parametrize("std", [-1.0, np.nan, np.inf, "1"])
def test_a_size_that_noise_cannot_have_is_refused(std):
    stream = PrefetchedNoise(SecureRandom(), 4, elsewhere=True)
    with pytest.raises(ValueError, match="std="):
        added(stream, 4, std=std)
