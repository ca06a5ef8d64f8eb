"""SecureRandom: cryptographic random numbers by AES-256-CTR with a key of OS entropy.

:class:`PoissonSampler` draws the records of a DP-SGD step, and :class:`PrefetchedNoise` is noise
that another core draws while the value is computed. A stream belongs to one process: its children
draw other numbers.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from .._validation import check_flat, is_number, whole

_BYTES = 16
_WIPE_ON_FORK = 18  # MADV_WIPEONFORK of Linux, for which Python defines no constant
_CHUNK = 1 << 16  # numbers at a time: few enough for the cache, many enough for few calls
_MOST = 1 << 40  # most numbers of one call
_ZEROS = memoryview(bytes(4 * _CHUNK))
_SPARE = 15  # bytes that the cipher requires beyond its output
_TWO_PI_32 = np.float32(2.0 * np.pi * 2.0**-32)
_TAIL = np.uint32(1 << 12)  # words below are in the outermost 2**-20, and get 32 more bits
_NEAR_ONE = np.uint32((1 << 32) - (1 << 24))  # words above need the exact distance to 1


class SecureRandom:
    """A stream of cryptographic random numbers (AES-256-CTR).

    Parameters
    ----------
    seed : int, default=None
        ``None`` draws a fresh 256-bit key from the operating system. An integer makes the stream
        reproducible **and voids every guarantee built on it**: it is for tests only.

    Notes
    -----
    The stream is AES-256-CTR (NIST SP 800-38A) with a key from :func:`os.urandom`. A copy never
    continues the parent's stream, which would repeat its noise. A ``fork`` draws a fresh key, and
    ``pickle`` and ``deepcopy`` are refused.

    **Edge cases.** A fork is detected by Python's hook, by the process id and, on Linux 4.14 or
    later, by memory that the kernel clears in every child, even after a raw system call. A snapshot
    of a process or machine that is resumed twice cannot be detected from inside.

    Examples
    --------
    >>> from skprivacy.mechanisms import SecureRandom
    >>> SecureRandom().normal(3).shape
    (3,)
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None and (not isinstance(seed, int | np.integer) or isinstance(seed, bool)):
            raise ValueError(
                f"seed={seed!r} must be an integer or None. Use None outside of tests."
            )
        self._seed = seed
        self._streams = {process_identity(): new_stream(self._key())}

    @property
    def seeded(self) -> bool:
        """Whether the stream is reproducible, in which case guarantees built on it are void."""
        return self._seed is not None

    def _key(self) -> bytes:
        if self._seed is None:
            return os.urandom(32)
        return hashlib.sha256(f"skprivacy-test-{self._seed}".encode()).digest()

    def __reduce__(self):
        raise TypeError(
            "SecureRandom cannot be copied or pickled: two streams with the same key would repeat "
            "each other's noise. Create a new SecureRandom() instead."
        )

    def random_bytes(self, n: int) -> bytes:
        """Return ``n`` uniformly random bytes.

        Parameters
        ----------
        n : int
            Number of bytes.

        Returns
        -------
        bytes
            Of length ``n``.
        """
        check_count("n", n)
        lock, stream = self._stream()
        with lock:
            return stream.update(_ZEROS[:n] if n <= len(_ZEROS) else bytes(n))

    def _write(self, buffer: bytearray, n: int) -> None:
        """Write ``n`` uniformly random bytes, at most a chunk, to the start of ``buffer``."""
        lock, stream = self._stream()
        with lock:
            stream.update_into(_ZEROS[:n], buffer)

    def _stream(self) -> tuple[threading.Lock, CipherContext]:
        current = process_identity()
        stream = self._streams.get(current)
        if stream is None:
            # After a fork: create a new key, and a new lock, as the parent may have held the old
            # one. setdefault is atomic, so concurrent threads agree; the parent's key is dropped.
            stream = self._streams.setdefault(current, new_stream(self._key()))
            self._streams = {current: stream}
        return stream

    def _uint(self, size: int, dtype: type) -> NDArray:
        return np.frombuffer(self.random_bytes(size * np.dtype(dtype).itemsize), dtype=dtype)

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Draw ``size`` multiples of 2**-53 uniformly from (0, 1].

        Parameters
        ----------
        size : int
            Number of draws.

        Returns
        -------
        ndarray of shape (size,)
            The numbers.
        """
        check_count("size", size)
        steps = (self._uint(size, np.uint64) >> np.uint64(11)) + np.uint64(1)
        return steps.astype(np.float64) * 2.0**-53

    def integers(self, high: int, size: int) -> NDArray[np.int64]:
        """Draw ``size`` integers uniformly from 0 to ``high - 1``, exactly (by rejection).

        Parameters
        ----------
        high : int
            At least 1.
        size : int
            Number of draws.

        Returns
        -------
        ndarray of shape (size,)
            The integers.
        """
        check_count("size", size)
        is_whole = isinstance(high, int | np.integer) and is_number(high)
        if not is_whole or not 0 < high <= 1 << 63:
            raise ValueError(f"high={high!r} must be an integer between 1 and 2**63.")
        high = int(high)  # numpy's integers would overflow
        limit = np.uint64((1 << 64) - (1 << 64) % high - 1)  # larger values would bias the result
        out = self._uint(size, np.uint64)
        while (bad := out > limit).any():
            out = out.copy()
            out[bad] = self._uint(int(bad.sum()), np.uint64)
        return (out % np.uint64(high)).astype(np.int64)

    def normal(self, size: int) -> NDArray[np.float32]:
        """Draw ``size`` standard normal numbers in single precision, by the Box-Muller transform.

        It uses 32-bit uniforms. A radius in the outermost 2**-20 of the probability uses another 32
        bits, so the tail reaches 9.4 standard deviations instead of 6.7. The numbers are not
        hardened against floating-point attacks (Mironov 2012).

        Parameters
        ----------
        size : int
            Number of draws.

        Returns
        -------
        ndarray of shape (size,)
            The numbers.
        """
        check_count("size", size)
        out, buffers = np.empty(size, np.float32), _Buffers(size)
        for start in range(0, size, _CHUNK):
            self._box_muller(out[start : start + _CHUNK], buffers)
        return out

    def add_normal(self, values: NDArray, std: float) -> None:
        """Add independent normal numbers of standard deviation ``std`` to a flat array, in place.

        It uses a single thread: steps are so short that two threads would wait longer for Python's
        lock than they gain.

        Parameters
        ----------
        values : ndarray of shape (size,)
            The numbers to add to.
        std : float
            At least 0.
        """
        check_addition(values, std)
        buffers, scale = _Buffers(len(values)), np.float32(std)
        for start in range(0, len(values), _CHUNK):
            part = values[start : start + _CHUNK]
            noise = buffers.noise[: len(part)]
            self._box_muller(noise, buffers)
            noise *= scale
            part += noise

    def _box_muller(self, out: NDArray[np.float32], buffers: _Buffers) -> None:
        # Box-Muller: sqrt(-2 ln u) times the cosine and the sine of a uniform angle
        half = (out.size + 1) // 2
        self._write(buffers.bytes, 8 * half)
        size, direction = buffers.bits[:half], buffers.bits[half : 2 * half]
        radius, angle = buffers.radius[:half], buffers.angle[:half]
        np.copyto(radius, size, casting="unsafe")
        radius += np.float32(0.5)
        if size.min() < _TAIL:
            tail = (size < _TAIL).nonzero()[0]
            fine = (self._uint(tail.size, np.uint32) + 0.5) * 2.0**-32
            radius[tail] = (size[tail] + fine).astype(np.float32)
        radius *= np.float32(2.0**-32)
        np.log(radius, out=radius)
        # Close to one, single precision cannot represent the distance to one: the noise would round
        # to zero. There the logarithm of the exact distance is used.
        near = (size > _NEAR_ONE).nonzero()[0]
        radius[near] = np.log1p((~size[near] + 0.5) * -(2.0**-32))
        radius *= np.float32(-2.0)
        np.sqrt(radius, out=radius)
        np.copyto(angle, direction, casting="unsafe")
        angle *= _TWO_PI_32
        np.cos(angle, out=out[:half])
        out[:half] *= radius
        rest = out.size - half
        np.sin(angle[:rest], out=out[half:])
        out[half:] *= radius[:rest]


@dataclass(frozen=True)
class PoissonSampler:
    """Poisson sampling: include each record independently with probability ``rate``.

    Parameters
    ----------
    rate : float
        Inclusion probability, in (0, 1].

    Notes
    -----
    The gaps between included records are geometric, so a draw costs O(rate * n), not O(n). The
    probabilities are exact up to the 2**-53 grid of the uniforms.

    Examples
    --------
    >>> from skprivacy.mechanisms import PoissonSampler, SecureRandom
    >>> PoissonSampler(1.0).draw(4, SecureRandom())
    array([0, 1, 2, 3])
    """

    rate: float

    def __post_init__(self) -> None:
        if not (is_number(self.rate) and 0.0 < self.rate <= 1.0):
            raise ValueError(f"rate={self.rate!r} must be in (0, 1], such as 0.01.")

    def draw(self, n: int, random: SecureRandom) -> NDArray[np.int64]:
        """Return the sorted indices, from 0 to ``n - 1``, of the included records.

        Parameters
        ----------
        n : int
            Number of records.
        random : SecureRandom
            The source of randomness.

        Returns
        -------
        ndarray of int of shape (n_drawn,)
            Each record is included by itself, so ``n_drawn`` varies.
        """
        check_count("n", n)
        check_random(random)
        if self.rate == 1.0:
            return np.arange(n)
        log_miss = math.log1p(-self.rate)
        expected = n * self.rate
        block = int(expected + 5.0 * math.sqrt(expected) + 16.0)
        found: list[NDArray[np.int64]] = []
        last = -1
        while last < n:
            gaps = random.uniform(block)
            np.log(gaps, out=gaps)
            gaps /= log_miss
            # A gap beyond n ends the draw at any size; capping it avoids int64 overflow.
            steps = np.minimum(gaps, n, out=gaps).astype(np.int64)  # rounds down
            steps += 1
            steps[0] += last
            found.append(steps.cumsum())
            last = int(found[-1][-1])
        indices = found[0] if len(found) == 1 else np.concatenate(found)
        return indices[: indices.searchsorted(n)]


class PrefetchedNoise(SecureRandom):
    """Random stream for one release of ``size`` numbers, whose normal numbers may be drawn early.

    ``random`` draws the key of the stream. If ``elsewhere``, a thread starts to draw at once; the
    numbers are the same either way.

    **Guarantees.** The numbers are those that :meth:`SecureRandom.normal` draws of the stream, and
    are used once. A second value, or a value of another length, gets new numbers. A child process
    gets a new key and none of these numbers, as with every stream. Numbers of a release that does
    not happen are lost. The drawing thread ends with its work and stores nothing.

    **Edge cases.** Without a free thread or memory, numbers are drawn when they are added. If
    ``random`` is seeded, so is this stream. All other draws from the stream come after the early
    ones, so the order of threads decides nothing.
    """

    def __init__(self, random: SecureRandom, size: int, elsewhere: bool) -> None:
        self._seed = random._seed
        self._home = process_identity()
        self._streams = {self._home: new_stream(random.random_bytes(32))}
        self._drawn: list[NDArray[np.float32]] = []
        self._worker: threading.Thread | None = None
        if elsewhere:
            self._worker = threading.Thread(target=self._draw, args=(size,))
            try:
                self._worker.start()
            except RuntimeError:  # no more threads are allowed
                self._worker = None

    def _draw(self, size: int) -> None:
        # Without memory for all of them, they are drawn in chunks when they are added.
        with suppress(MemoryError):
            self._drawn.append(self.normal(size))

    def _stream(self) -> tuple[threading.Lock, CipherContext]:
        self._wait()
        return super()._stream()

    def _wait(self) -> None:
        """Wait for the drawing thread; a child process has none to wait for."""
        worker = self._worker
        if (
            worker is None
            or worker is threading.current_thread()
            or process_identity() != self._home
        ):
            return
        worker.join()
        self._worker = None

    def add_normal(self, values: NDArray, std: float) -> None:
        """Add normal numbers of standard deviation ``std`` to a flat array, in place."""
        self._wait()
        try:
            drawn = self._drawn.pop()  # atomic: only one of two threads gets them
        except IndexError:
            drawn = None
        if drawn is not None and process_identity() == self._home and len(drawn) == len(values):
            add_scaled(values, drawn, std)
        else:
            super().add_normal(values, std)


def process_identity() -> tuple[bytes, int]:
    """Return random bytes and the process id: an identity that no other process returns.

    **Guarantees.** Three mechanisms distinguish a child from its parent, and each has a gap. The
    process ids are equal if each is the first process of its pid namespace. Python's hook, which
    changes the bytes, misses a fork by a library without Python. The page that holds the bytes is
    cleared in every child, but only on Linux 4.14 or later.

    **Edge cases.** A snapshot of a process or machine that is resumed twice is not detected.
    """
    if _page[:_BYTES] == bytes(_BYTES):
        _renew_identity()
    return _page[:_BYTES], os.getpid()


def add_scaled(values: NDArray, noise: NDArray[np.float32], std: float) -> None:
    """Add earlier drawn numbers times ``std``; ``noise`` is overwritten with the addends."""
    check_addition(values, std)
    scale = np.float32(std)
    for start in range(0, len(values), _CHUNK):
        part = noise[start : start + _CHUNK]
        part *= scale
        values[start : start + _CHUNK] += part


def check_addition(values: NDArray, std: float) -> None:
    """Refuse arrays that noise cannot be added to, and invalid standard deviations."""
    check_flat(values, "values")
    if not is_number(std) or not 0 <= std < math.inf:
        raise ValueError(f"std={std!r} must be a finite number >= 0.")


def check_random(random: object) -> None:
    """Refuse sources of randomness other than SecureRandom."""
    if not isinstance(random, SecureRandom):
        raise TypeError(f"random={random!r} must be a SecureRandom. Pass SecureRandom().")


def check_count(name: str, n: int) -> None:
    """Refuse invalid numbers of random numbers."""
    if type(n) is int and 0 <= n <= _MOST:  # the fast path, taken several times a step
        return
    whole(name, n, least=0)
    if n > _MOST:
        raise ValueError(f"{name}={n!r} must be an integer from 0 to {_MOST}.")


def new_stream(key: bytes) -> tuple[threading.Lock, CipherContext]:
    # NIST SP 800-38A, section 6.5: the counter mode, from block 0 of a fresh key
    return threading.Lock(), Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


def _renew_identity() -> None:
    _page[:_BYTES] = os.urandom(_BYTES)


def _map_fork_cleared_page() -> mmap.mmap:
    """Return a page of memory that is cleared in a child, if the system supports it."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return mmap.mmap(-1, mmap.PAGESIZE)
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.platform == "linux":
        with suppress(OSError):  # an old kernel
            page.madvise(_WIPE_ON_FORK)
    return page


class _Buffers:
    """Reused arrays; the system would have to map and clear new ones for every chunk."""

    def __init__(self, size: int) -> None:
        half = (min(size, _CHUNK) + 1) // 2
        self.bytes = bytearray(8 * half + _SPARE)
        self.bits = np.frombuffer(self.bytes, np.uint32, 2 * half)
        self.radius, self.angle = np.empty((2, half), np.float32)
        self.noise = np.empty(2 * half, np.float32)


_page = _map_fork_cleared_page()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_identity)
