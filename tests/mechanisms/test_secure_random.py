"""SecureRandom: never copied, never continued by a fork, exactly uniform, right to the tail."""

import copy
import ctypes
import mmap
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

from skprivacy.mechanisms import PoissonSampler, SecureRandom
from skprivacy.mechanisms import secure_random as _process
from skprivacy.mechanisms.secure_random import _CHUNK, PrefetchedNoise

from .chance import check_tails
from .draw_counter import check_counter


def write(monkeypatch, bits):
    """Let normal numbers be made of ``bits(n)``, n of 32 bits each."""

    def _write(self, room, n):
        np.frombuffer(room, np.uint32, n // 4)[:] = bits(n // 4)

    monkeypatch.setattr(SecureRandom, "_write", _write)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_stream_cannot_be_duplicated(duplicate):
    for stream in (SecureRandom(), PrefetchedNoise(SecureRandom(), 8, elsewhere=True)):
        with pytest.raises(TypeError, match="cannot be copied"):
            duplicate(stream)


LINUX = sys.platform == "linux"

TWO_NAMESPACES = """
    import ctypes, os
    from skprivacy.mechanisms import SecureRandom, secure_random
    random = SecureRandom()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x20000000):  # CLONE_NEWPID
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, f"{os.getpid()} {random.random_bytes(16).hex()}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    number, child = os.read(read, 100).decode().split()
    print(f"{os.getpid()},{number}", random.random_bytes(16).hex(), child)
"""


def page_that_forks_copy():
    return mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def raw_fork():
    """Fork behind Python's back: its hooks are not called. ``PyDLL`` keeps Python's lock."""
    return ctypes.PyDLL(None).fork()


def in_fork(action, fork=None):
    """Return the 16 bytes that ``action`` yields in a forked child."""
    read, write = os.pipe()
    pid = (fork or os.fork)()
    if pid == 0:
        try:
            os.write(write, action())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork in a process with threads
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
class TestFork:
    @pytest.mark.heavy
    def test_a_child_does_not_repeat_its_parent_or_sibling(self):
        random = SecureRandom()
        random.random_bytes(16)
        children = [in_fork(lambda: random.random_bytes(16)) for _ in range(3)]
        drawn = [*children, random.random_bytes(16)]
        assert all(len(x) == 16 for x in drawn)
        assert len(set(drawn)) == 4

    @pytest.mark.parametrize("blind", ["number", "number and page", "number and hook"])
    def test_one_of_three_signs_is_enough(self, monkeypatch, blind):
        """A child that is, like its parent, number 1 of a pid namespace repeated its stream."""
        monkeypatch.setattr(os, "getpid", lambda: 1)
        if "page" in blind:
            monkeypatch.setattr(_process, "_page", page_that_forks_copy())
        if "hook" in blind and not LINUX:
            pytest.skip("only Linux clears memory in a child")
        random = SecureRandom()
        fork = raw_fork if "hook" in blind else os.fork
        child = in_fork(lambda: random.random_bytes(16), fork)
        assert len(child) == 16
        assert child != random.random_bytes(16)

    @pytest.mark.skipif(not LINUX, reason="needs a C library with a fork of its own")
    def test_planted_no_sign_at_all_is_caught(self, monkeypatch):
        """Without any of the three, a child repeats its parent: the tests above can fail."""
        monkeypatch.setattr(os, "getpid", lambda: 1)
        monkeypatch.setattr(_process, "_page", page_that_forks_copy())
        random = SecureRandom()
        assert in_fork(lambda: random.random_bytes(16), raw_fork) == random.random_bytes(16)

    @pytest.mark.slow
    @pytest.mark.skipif(not LINUX, reason="pid namespaces are Linux's")
    def test_a_child_in_a_pid_namespace_does_not_repeat_its_parent(self):
        """Both are process 1, in different namespaces."""
        found = subprocess.run(
            ["unshare", "--pid", "--fork", sys.executable, "-c", textwrap.dedent(TWO_NAMESPACES)],
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        if "Operation not permitted" in found.stderr:
            pytest.skip("this user may not make pid namespaces")
        assert found.returncode == 0, found.stderr
        numbers, parent, child = found.stdout.split()
        assert numbers == "1,1"
        assert parent != child

    def test_a_lock_that_the_parent_held_does_not_block_the_child(self):
        random = SecureRandom()
        lock, _ = random._stream()
        with lock:
            assert len(in_fork(lambda: random.random_bytes(16))) == 16

    def test_the_parents_key_is_dropped(self):
        random = SecureRandom()
        answer = in_fork(lambda: (random.random_bytes(1), bytes([len(random._streams)]))[1])
        assert answer == b"\1"


def test_streams_are_fresh_unless_seeded():
    assert SecureRandom().random_bytes(16) != SecureRandom().random_bytes(16)
    assert SecureRandom(3).random_bytes(16) == SecureRandom(3).random_bytes(16)
    assert SecureRandom(3).random_bytes(16) != SecureRandom(4).random_bytes(16)
    assert SecureRandom(3).seeded
    assert not SecureRandom().seeded


@pytest.mark.heavy
def test_the_counter_of_a_stream_never_starts_again():
    check_counter()


def test_threads_share_a_stream_without_repeats():
    random, barrier = SecureRandom(), threading.Barrier(4)

    def draw(_):
        barrier.wait()
        return [random.random_bytes(16) for _ in range(500)]

    with ThreadPoolExecutor(4) as pool:
        drawn = [x for part in pool.map(draw, range(4)) for x in part]
    assert len(set(drawn)) == 2000


def test_bytes_and_numbers_are_uniform():
    counts = np.bincount(np.frombuffer(SecureRandom(1).random_bytes(1 << 20), np.uint8))
    assert stats.chisquare(counts).pvalue > 1e-4
    u = SecureRandom(1).uniform(500_000)
    assert stats.kstest(u, "uniform").pvalue > 1e-4
    assert ((u * 2**53) % 1 == 0).all()


@pytest.mark.parametrize(("bits", "expected"), [(0, 2.0**-53), (2**64 - 1, 1.0)])
def test_uniform_ends(monkeypatch, bits, expected):
    """Never 0, of which a logarithm is taken; 1 is possible."""
    monkeypatch.setattr(SecureRandom, "_uint", lambda self, n, t: np.full(n, bits, np.uint64))
    assert SecureRandom().uniform(1)[0] == expected


@pytest.mark.parametrize("high", [2, 3, 10, 1000])
def test_integers_are_uniform(high):
    drawn = SecureRandom(high).integers(high, 100_000)
    assert drawn.min() >= 0
    assert stats.chisquare(np.bincount(drawn, minlength=high)).pvalue > 1e-4


def test_integers_reject_the_incomplete_cycle(monkeypatch):
    """Of 2**64 values the last 2**64 mod 3 = 1 is drawn again; the one before is not."""
    supply = iter([[2**64 - 1, 2**64 - 2], [7]])
    monkeypatch.setattr(SecureRandom, "_uint", lambda self, n, t: np.array(next(supply), np.uint64))
    np.testing.assert_array_equal(SecureRandom().integers(3, 2), [7 % 3, (2**64 - 2) % 3])


def test_integers_of_large_range():
    drawn = SecureRandom(2).integers((1 << 62) + 1, 100_000)
    assert stats.kstest(drawn / ((1 << 62) + 1), "uniform").pvalue > 1e-4
    assert not SecureRandom().integers(1, 5).any()


@pytest.mark.parametrize("size", [0, 1, 2, 3, (1 << 14) - 1, (1 << 14) + 1])
def test_normal_of_any_size(size):
    x = SecureRandom().normal(size)
    assert x.shape == (size,)
    assert x.dtype == np.float32
    assert np.isfinite(x).all()


@pytest.mark.heavy
def test_normal_is_normal_into_the_tails():
    check_tails(SecureRandom(11).normal(1 << 23), stats.norm, (2.0, 3.0, 4.0, 5.0))


def test_normal_halves_are_independent():
    """Box-Muller makes two numbers of one radius; they must not show it."""
    x = SecureRandom(12).normal(1 << 14).reshape(2, -1).astype(float)
    size = x.shape[1]
    assert abs(np.corrcoef(x)[0, 1]) < 5 / np.sqrt(size)
    assert abs(np.corrcoef(x**2)[0, 1]) < 5 / np.sqrt(size)


@pytest.mark.parametrize("bits", [0, 1, 4095, 4096, 2**32 - 1])
def test_normal_never_fails(monkeypatch, bits):
    """The outermost draws reach beyond 9 standard deviations and stay finite."""
    monkeypatch.setattr(SecureRandom, "_uint", lambda self, n, t: np.full(n, bits, np.uint32))
    write(monkeypatch, lambda n: np.full(n, bits, np.uint32))
    x = SecureRandom().normal(2)
    assert np.isfinite(x).all()
    if bits == 0:
        assert 9.0 < np.abs(x).max() < 10.0


def test_the_refined_tail_is_the_right_one(monkeypatch):
    """Given that a radius is in the outermost 2**-20, it is distributed as it should be."""
    supply = SecureRandom(5)

    def only_tail(n):
        bits = supply._uint(n, np.uint32).copy()
        bits[: n // 2] %= 4096  # radii; then come angles
        return bits

    write(monkeypatch, only_tail)
    x = SecureRandom().normal(1 << 15).astype(float).reshape(2, -1)
    tail = np.exp(-(x**2).sum(axis=0) / 2) * 2.0**20
    assert stats.kstest(tail, "uniform").pvalue > 1e-4


def test_no_noise_is_ever_zero_and_the_centre_is_fine_grained(monkeypatch):
    """The uniforms next to one are the noise next to zero: each has a radius of its own."""
    sizes = np.arange(1 << 12, dtype=np.uint32)

    def next_to_one(n):
        half = n // 2
        return np.concatenate([~sizes[:half], np.zeros(half, np.uint32)])

    write(monkeypatch, next_to_one)
    radius = SecureRandom().normal(2 * sizes.size)[: sizes.size].astype(float)
    expected = np.sqrt(-2 * np.log1p(-(sizes + 0.5) * 2.0**-32))
    assert radius == pytest.approx(expected, rel=1e-6)
    assert (np.diff(radius) > 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0, 1, 7, 9000, _CHUNK, 2 * _CHUNK + 7])
def test_what_is_added_is_what_would_be_drawn(dtype, size):
    start = np.linspace(0, 1, size).astype(dtype)
    noisy = start.copy()
    SecureRandom(3).add_normal(noisy, 2.0)
    np.testing.assert_array_equal(noisy, start + np.float32(2) * SecureRandom(3).normal(size))
    fresh = start.copy()
    SecureRandom().add_normal(fresh, 2.0)
    assert not size or not np.isclose(fresh, noisy, rtol=0, atol=1e-9).all()


def test_noise_is_made_of_all_the_bytes_of_the_stream():
    """The room that is written into is used again: bytes of the chunk before must not stay."""
    random, room = SecureRandom(4), bytearray(b"x" * 4 * _CHUNK)
    written = b""
    for n in (8, 4096, 72_000, 1000):
        random._write(room, n)
        written += room[:n]
    assert written == SecureRandom(4).random_bytes(len(written))
    assert room[72_000:] == b"x" * (4 * _CHUNK - 72_000)


def long_noise():
    """Return the largest correlation between chunks of noise, in standard errors, and the noise."""
    noise = np.zeros(16 * _CHUNK + 7)
    random = SecureRandom(8)
    random.add_normal(noise, 0.5)
    chunks = noise[: 16 * _CHUNK].reshape(16, -1)
    again = np.zeros(_CHUNK)
    random.add_normal(again, 0.5)  # the stream has moved on
    correlations = np.corrcoef(np.vstack([chunks, again]))[np.triu_indices(17, 1)]
    return np.abs(correlations).max() * np.sqrt(_CHUNK), noise


@pytest.mark.heavy
def test_long_vectors_get_independent_normal_noise():
    correlation, noise = long_noise()
    assert correlation < 6
    assert stats.kstest(noise / 0.5, "norm").pvalue > 1e-4
    assert len(np.unique(noise)) > 0.9 * len(noise)  # single precision has ties, but few


def test_planted_repeated_bytes_are_caught(monkeypatch):
    write(monkeypatch, lambda n: SecureRandom(1)._uint(n, np.uint32))
    assert long_noise()[0] > 6


# ---------------------------------------------------------------- Poisson sampling


def subset_pvalue(draw, n, rate, trials=4000):
    """Compare how often each of the 2**n subsets comes out with independent inclusion."""
    counts = np.zeros(2**n)
    for _ in range(trials):
        counts[int((2 ** draw()).sum())] += 1
    size = np.array([bin(s).count("1") for s in range(2**n)])
    law = rate**size * (1 - rate) ** (n - size)
    return stats.chisquare(counts, law * trials).pvalue


@pytest.mark.heavy
@pytest.mark.parametrize("rate", [0.15, 0.5, 0.8])
def test_every_subset_has_its_probability(rate):
    random, sampler = SecureRandom(seed=1), PoissonSampler(rate)
    assert subset_pvalue(lambda: sampler.draw(4, random), 4, rate) > 1e-4


@pytest.mark.heavy
def test_planted_fixed_size_batches_are_caught():
    rng = np.random.default_rng(0)
    assert subset_pvalue(lambda: rng.choice(4, 2, replace=False), 4, 0.5) < 1e-12


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
