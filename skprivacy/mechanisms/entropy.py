"""Randomness that an adversary cannot predict: OS entropy stretched by AES-256 in counter mode."""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

__all__ = ["SecureRandom"]

_CHUNK = 1 << 15  # numbers at a time: the work arrays stay in the second-level cache
_BLOCK = 1 << 18  # numbers from one stream; a longer vector takes several, which may run at once
_ZEROS = memoryview(bytes(4 * _CHUNK))
_TWO_PI_32 = np.float32(2.0 * np.pi * 2.0**-32)
_TAIL = np.uint32(1 << 12)
_NEAR_ONE = np.uint32((1 << 32) - (1 << 24))


class SecureRandom:
    """A stream of cryptographic random numbers.

    Parameters
    ----------
    seed : int, default=None
        ``None`` takes a fresh 256-bit key from the operating system. An integer makes the stream
        reproducible **and every guarantee built on it void**: it exists for tests.
    threads : int, default=1
        Threads that :meth:`add_normal` may use. What is drawn does not depend on it.

    Notes
    -----
    The stream is AES-256-CTR (NIST SP 800-38A) over a key from :func:`os.urandom`. A copy made
    by ``fork``, ``pickle`` or ``deepcopy`` never continues the parent's stream: the first two
    would repeat its noise in two places, so a fork draws a fresh key and the others are refused. (A
    snapshot of a whole virtual machine, resumed twice, cannot be noticed from inside.)

    Examples
    --------
    >>> from skprivacy.mechanisms import SecureRandom
    >>> SecureRandom().normal(3).shape
    (3,)
    """

    def __init__(self, seed: int | None = None, threads: int = 1) -> None:
        self._seed = seed
        self._threads = threads
        self._streams = {os.getpid(): _stream(self._key())}

    @property
    def seeded(self) -> bool:
        """Whether the stream is reproducible, hence whether guarantees built on it are void."""
        return self._seed is not None

    def _key(self) -> bytes:
        if self._seed is None:
            return os.urandom(32)
        return hashlib.sha256(f"skprivacy-test-{self._seed}".encode()).digest()

    def _child(self) -> SecureRandom:
        """Return a stream of its own, under a key that is drawn from this one."""
        child = SecureRandom()
        child._streams = {os.getpid(): _stream(self.random_bytes(32))}
        return child

    def __reduce__(self):
        raise TypeError(
            "SecureRandom cannot be copied or pickled: two streams with one key would repeat "
            "each other's noise. Create a new SecureRandom() instead."
        )

    def random_bytes(self, n: int) -> bytes:
        """Return ``n`` uniformly random bytes."""
        pid = os.getpid()
        if pid not in self._streams:
            # Forked: take a new key, and a new lock, for the parent may have held the old one.
            # setdefault is atomic, so threads that come here together agree; the parent's key goes.
            self._streams = {pid: self._streams.setdefault(pid, _stream(self._key()))}
        lock, stream = self._streams[pid]
        with lock:
            return stream.update(_ZEROS[:n] if n <= len(_ZEROS) else bytes(n))

    def _uint(self, size: int, dtype: type) -> NDArray:
        return np.frombuffer(self.random_bytes(size * np.dtype(dtype).itemsize), dtype=dtype)

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Draw ``size`` multiples of 2**-53 uniformly from (0, 1]."""
        steps = (self._uint(size, np.uint64) >> np.uint64(11)) + np.uint64(1)
        return steps.astype(np.float64) * 2.0**-53

    def integers(self, high: int, size: int) -> NDArray[np.int64]:
        """Draw ``size`` integers uniformly from 0 to ``high - 1``, exactly (by rejection)."""
        if not 0 < high <= 1 << 63:
            raise ValueError(f"high={high!r} must be between 1 and 2**63.")
        limit = np.uint64((1 << 64) - (1 << 64) % high - 1)  # the last value that keeps it uniform
        out = self._uint(size, np.uint64)
        while (bad := out > limit).any():
            out = out.copy()
            out[bad] = self._uint(int(bad.sum()), np.uint64)
        return (out % np.uint64(high)).astype(np.int64)

    def normal(self, size: int) -> NDArray[np.float32]:
        """Draw ``size`` standard normal numbers in single precision.

        Box-Muller on 32-bit uniforms. A radius in the outermost 2**-20 of the probability takes
        another 32 bits, so that the tail reaches 9.4 standard deviations, not 6.7. The result is a
        single-precision number: not hardened against floating-point attacks (Mironov 2012).
        """
        out = np.empty(size, np.float32)
        for start in range(0, size, _CHUNK):
            self._box_muller(out[start : start + _CHUNK])
        return out

    def add_normal(self, values: NDArray, std: float) -> None:
        """Add independent normal numbers of standard deviation ``std`` to a flat array, in place.

        Each block of a long array has a stream of its own, under a key drawn from this one, so
        that several threads can fill it and what they draw does not depend on which is first.
        """
        blocks = [values[start : start + _BLOCK] for start in range(0, len(values), _BLOCK)]
        streams = [self] if len(blocks) == 1 else [self._child() for _ in blocks]
        scale = np.float32(std)

        def add(stream: SecureRandom, block: NDArray) -> None:
            for start in range(0, len(block), _CHUNK):
                part = block[start : start + _CHUNK]
                noise = stream.normal(len(part))
                noise *= scale
                part += noise

        if min(self._threads, len(blocks)) <= 1:
            for stream, block in zip(streams, blocks, strict=True):
                add(stream, block)
        else:
            with ThreadPoolExecutor(min(self._threads, len(blocks))) as pool:
                list(pool.map(add, streams, blocks))

    def _box_muller(self, out: NDArray[np.float32]) -> None:
        half = (out.size + 1) // 2
        bits = self._uint(2 * half, np.uint32)
        size = bits[:half]
        radius = size.astype(np.float32)
        radius += np.float32(0.5)
        if size.min() < _TAIL:
            tail = np.flatnonzero(size < _TAIL)
            fine = (self._uint(tail.size, np.uint32) + 0.5) * 2.0**-32
            radius[tail] = (size[tail] + fine).astype(np.float32)
        radius *= np.float32(2.0**-32)
        np.log(radius, out=radius)
        # Close to one a single-precision number no longer tells how close: it would round to no
        # noise at all. There the logarithm is taken of the exact distance.
        near = np.flatnonzero(size > _NEAR_ONE)
        radius[near] = np.log1p((~size[near] + 0.5) * -(2.0**-32))
        radius *= np.float32(-2.0)
        np.sqrt(radius, out=radius)
        angle = bits[half:].astype(np.float32)
        angle *= _TWO_PI_32
        np.cos(angle, out=out[:half])
        out[:half] *= radius
        rest = out.size - half
        np.sin(angle[:rest], out=out[half:])
        out[half:] *= radius[:rest]


def _stream(key: bytes) -> tuple[threading.Lock, CipherContext]:
    return threading.Lock(), Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
