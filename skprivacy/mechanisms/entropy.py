"""SecureRandom: cryptographic random numbers by AES-256-CTR with a key of OS entropy."""

from __future__ import annotations

import hashlib
import math
import os
import threading

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from .._validation import check_flat, is_number
from ..accounting._checks import whole
from ._process import process_identity

__all__ = ["SecureRandom"]

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


class _Buffers:
    """Reused arrays; the system would have to map and clear new ones for every chunk."""

    def __init__(self, size: int) -> None:
        half = (min(size, _CHUNK) + 1) // 2
        self.bytes = bytearray(8 * half + _SPARE)
        self.bits = np.frombuffer(self.bytes, np.uint32, 2 * half)
        self.radius, self.angle = np.empty((2, half), np.float32)
        self.noise = np.empty(2 * half, np.float32)


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
