"""Randomness that an adversary cannot predict: OS entropy stretched by AES-256 in counter mode."""

from __future__ import annotations

import hashlib
import os
import threading

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from ._process import process

__all__ = ["SecureRandom"]

_CHUNK = 1 << 15  # numbers at a time: the work arrays stay in the second-level cache
_ZEROS = memoryview(bytes(4 * _CHUNK))
_SPARE = 15  # bytes that the cipher wants beyond what it writes
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

    Notes
    -----
    The stream is AES-256-CTR (NIST SP 800-38A) over a key from :func:`os.urandom`. A copy made
    by ``fork``, ``pickle`` or ``deepcopy`` never continues the parent's stream, which would repeat
    its noise in two places: a fork draws a fresh key, and the others are refused.

    **Edge cases.** A fork is noticed by Python's hook, by the number of the process and, on Linux
    from 4.14 on, by memory that the kernel clears in every child, even of a raw system call. A
    snapshot of a whole process or machine that is resumed twice cannot be noticed from inside.

    Examples
    --------
    >>> from skprivacy.mechanisms import SecureRandom
    >>> SecureRandom().normal(3).shape
    (3,)
    """

    def __init__(self, seed: int | None = None) -> None:
        self._seed = seed
        self._streams = {process(): _new_stream(self._key())}

    @property
    def seeded(self) -> bool:
        """Whether the stream is reproducible, hence whether guarantees built on it are void."""
        return self._seed is not None

    def _key(self) -> bytes:
        if self._seed is None:
            return os.urandom(32)
        return hashlib.sha256(f"skprivacy-test-{self._seed}".encode()).digest()

    def __reduce__(self):
        raise TypeError(
            "SecureRandom cannot be copied or pickled: two streams with one key would repeat "
            "each other's noise. Create a new SecureRandom() instead."
        )

    def random_bytes(self, n: int) -> bytes:
        """Return ``n`` uniformly random bytes."""
        lock, stream = self._stream()
        with lock:
            return stream.update(_ZEROS[:n] if n <= len(_ZEROS) else bytes(n))

    def _write(self, room: bytearray, n: int) -> None:
        """Put ``n`` uniformly random bytes, a chunk's at most, at the start of ``room``."""
        lock, stream = self._stream()
        with lock:
            stream.update_into(_ZEROS[:n], room)

    def _stream(self) -> tuple[threading.Lock, CipherContext]:
        here = process()
        stream = self._streams.get(here)
        if stream is None:
            # Forked: take a new key, and a new lock, for the parent may have held the old one.
            # setdefault is atomic, so threads that come here together agree; the parent's key goes.
            stream = self._streams.setdefault(here, _new_stream(self._key()))
            self._streams = {here: stream}
        return stream

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
        out, desk = np.empty(size, np.float32), _Desk(size)
        for start in range(0, size, _CHUNK):
            self._box_muller(out[start : start + _CHUNK], desk)
        return out

    def add_normal(self, values: NDArray, std: float) -> None:
        """Add independent normal numbers of standard deviation ``std`` to a flat array, in place.

        One thread does it: the steps are so short that two would wait for Python's lock more than
        they gain.
        """
        desk, scale = _Desk(len(values)), np.float32(std)
        for start in range(0, len(values), _CHUNK):
            part = values[start : start + _CHUNK]
            noise = desk.noise[: len(part)]
            self._box_muller(noise, desk)
            noise *= scale
            part += noise

    def _box_muller(self, out: NDArray[np.float32], desk: _Desk) -> None:
        half = (out.size + 1) // 2
        self._write(desk.bytes, 8 * half)
        size, direction = desk.bits[:half], desk.bits[half : 2 * half]
        radius, angle = desk.radius[:half], desk.angle[:half]
        np.copyto(radius, size, casting="unsafe")
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
        np.copyto(angle, direction, casting="unsafe")
        angle *= _TWO_PI_32
        np.cos(angle, out=out[:half])
        out[:half] *= radius
        rest = out.size - half
        np.sin(angle[:rest], out=out[half:])
        out[half:] *= radius[:rest]


class _Desk:
    """Arrays to work in: new ones for every chunk would be mapped and cleared by the system."""

    def __init__(self, size: int) -> None:
        half = (min(size, _CHUNK) + 1) // 2
        self.bytes = bytearray(8 * half + _SPARE)
        self.bits = np.frombuffer(self.bytes, np.uint32, 2 * half)
        self.radius, self.angle = np.empty((2, half), np.float32)
        self.noise = np.empty(2 * half, np.float32)


def _new_stream(key: bytes) -> tuple[threading.Lock, CipherContext]:
    return threading.Lock(), Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
