"""Noise drawn on the vector's own device: ChaCha20 (RFC 8439) as torch operations.

:class:`SecureRandom` uses AES, which CPUs have as an instruction and GPUs do not. Moving a vector
to the CPU for its noise would take longer than the step. ChaCha20 needs only additions, exclusive
ors and rotations of 32-bit words, which every device has.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .secure_random import SecureRandom

_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k"
_BLOCKS = 1 << 18  # blocks computed at a time: their words take 16 MB
_MOST = 1 << 30  # numbers per key: far fewer than its blocks allow
_TRIED, _AGREE = 1999, 1e-4  # numbers that a kernel is tested on, and the tolerance
GRAPHS_ON = {"cuda"}  # devices with graphs that replay captured operations
_TWO_PI_32 = 2.0 * math.pi * 2.0**-32


def chacha20(key: Tensor, first: int, n: int, nonce: tuple[int, int, int] = (0, 0, 0)) -> Tensor:
    """Return ``n`` blocks of the stream of ``key``, used for it only, as int32 of shape (16, n)."""
    # RFC 8439, section 2.3: the state is constants, key, block counter and nonce
    start = torch.empty((16, n), dtype=torch.int32, device=key.device)
    for row, word in zip((0, 1, 2, 3, 13, 14, 15), (*_CONSTANTS, *nonce), strict=True):
        start[row] = word if word < 1 << 31 else word - (1 << 32)
    start[4:12] = key[:, None]
    count = torch.arange(first, first + n, device=key.device)
    start[12] = ((count + (1 << 31)) % (1 << 32) - (1 << 31)).to(torch.int32)
    a, b, c, d = start.clone().view(4, 4, n)
    # RFC 8439, section 2.3.1: ten column rounds and ten diagonal rounds
    for _ in range(10):
        _quarter_rounds(a, b, c, d)
        b, c, d = b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0)  # the diagonals become columns
        _quarter_rounds(a, b, c, d)
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    return start.add_(torch.cat([a, b, c, d]))


def _quarter_rounds(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> None:
    """Mix four columns of words at once, in place (RFC 8439, section 2.1); int32 wraps around."""
    for x, y, z, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x += y
        z ^= x
        low = (z >> (32 - by)) & ((1 << by) - 1)  # the mask removes the repeated sign bit
        z <<= by
        z |= low


def add_normal(values: Tensor, std: float, key: Tensor) -> None:
    """Add independent normal numbers to a flat tensor, in place.

    Box-Muller transform in double precision, with 64 bits for a radius and 32 for an angle. The
    tail reaches 9.4 standard deviations, as in :meth:`SecureRandom.normal`.
    """
    for part, words in _with_words(values, 10, key):
        high, low, turn = words[:15].view(3, -1)
        radius = (_uniform(high, low, 64).log_() * -2.0).sqrt_().float()
        angle = _unsigned(turn).float() * _TWO_PI_32
        pairs = torch.cat([radius * angle.cos(), radius * angle.sin()])
        part.add_(pairs[: len(part)], alpha=std)


def add_logistic(values: Tensor, scale: float, key: Tensor) -> None:
    """Add independent logistic numbers to a flat tensor, in place.

    A sign and a tail probability w of 63 bits give +-ln((2 - w) / w), in double precision. The tail
    reaches 44 scales, as in :class:`FloatLogistic`.
    """
    for part, words in _with_words(values, 8, key):
        high, low = words.view(2, -1)
        w = _uniform(high & 0x7FFFFFFF, low, 63)
        noise = ((2.0 - w) / w).log_().float()
        part.add_(torch.where(high < 0, -noise, noise)[: len(part)], alpha=scale)


def _with_words(values: Tensor, a_block: int, key: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield parts of ``values`` with their words: one block per ``a_block`` numbers."""
    for i, part in enumerate(values.split(_BLOCKS * a_block)):
        yield part, chacha20(key, i * _BLOCKS, -(-len(part) // a_block))


class DeviceRandom:
    """Random numbers drawn on a device, with keys from a :class:`SecureRandom`.

    **Guarantees.** Every call uses a new key of 256 bits, so no noise is repeated, not even after a
    fork. A CUDA graph would repeat its noise at every launch, so drawing during a capture raises an
    error. The numbers are rounded to single precision and, as in :meth:`SecureRandom.normal`, not
    hardened against floating-point attacks (Mironov 2012).

    **Edge cases.** A key stays in the device's memory until the memory is reused. A reader of the
    memory of the process can remove its noise, as on a CPU.
    """

    def __init__(self, random: SecureRandom, device: torch.device) -> None:
        self._random = random
        self._device = device

    def zeros(self, shape: tuple[int, ...]) -> Tensor:
        """Return zeros in single precision."""
        return torch.zeros(shape, device=self._device)

    def array(self, values: NDArray[Any]) -> Tensor:
        """Return an array as a tensor on the device."""
        return copy_to_device(values, self._device)

    def normal(self, size: int) -> Tensor:
        """Draw standard normal numbers in single precision, of shape (size,)."""
        return self.add_normal(self.zeros((size,)), 1.0)

    def add_normal(self, values: Tensor, std: float) -> Tensor:
        """Add independent normal numbers to a flat tensor on the device, in place."""
        normal, _ = _noise_kernels(self._device)
        normal(values, std, self._key(len(values)))
        return values

    def add_logistic(self, values: Tensor, scale: float) -> Tensor:
        """Add independent logistic numbers to a flat tensor on the device, in place."""
        _, logistic = _noise_kernels(self._device)
        logistic(values, scale, self._key(len(values)))
        return values

    def _key(self, size: int) -> Tensor:
        if size > _MOST:
            raise ValueError(
                f"size={size!r} must be at most {_MOST} for one key. Split the vector."
            )
        if self._device.type in GRAPHS_ON and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "Noise was requested while a CUDA graph is captured: every launch of the graph "
                "would add the same noise. Release outside of the graph."
            )
        bits = np.frombuffer(self._random.random_bytes(32), np.int32)
        return copy_to_device(bits.copy(), self._device)


def copy_to_device(array: NDArray[Any], device: torch.device | str) -> Tensor:
    """Return an array as a tensor on a device, without waiting for operations under way there."""
    here = torch.from_numpy(array)
    # torch owns the page-locked copy that is transferred, and reuses it once it has been read.
    if torch.device(device).type == "cuda":
        return here.pin_memory().to(device, non_blocking=True)
    return here.to(device)


_Way = Callable[[Tensor, float, Tensor], None]


@cache
def _noise_kernels(device: torch.device) -> tuple[_Way, _Way]:
    """Return the functions that add normal and logistic numbers: Triton kernels where they work.

    **Guarantees.** A kernel is used only if it gives the same numbers as the torch operations, for
    a public key.
    """
    plain = add_normal, add_logistic
    if device.type != "cuda" or not find_spec("triton"):
        return plain
    try:
        from . import chacha_triton as kernel

        kernels = kernel.add_normal, kernel.add_logistic
        if all(map(_agree, plain, kernels, [device] * 2)):
            return kernels
        trouble = "they give other numbers"
    except Exception as error:  # from a third-party compiler
        trouble = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"Triton's kernels for the noise cannot be used on {device} ({trouble}). The operations of "
        "torch are used instead: the same noise, made more slowly.",
        RuntimeWarning,
        stacklevel=2,
    )
    return plain


def _agree(one: _Way, other: _Way, device: torch.device) -> bool:
    """Return True if two functions add the same numbers for a public key."""
    key = torch.arange(8, dtype=torch.int32, device=device)
    first, second = torch.zeros((2, _TRIED), device=device)
    one(first, 1.0, key)
    other(second, 1.0, key)
    return bool((first - second).abs().max() < _AGREE)


def _uniform(high: Tensor, low: Tensor, bits: int) -> Tensor:
    """Return uniform numbers in (0, 1] from two words; the upper one may lack its top bits."""
    steps = _unsigned(high) * 2.0**32 + _unsigned(low) + 0.5
    return steps * 2.0**-bits


def _unsigned(words: Tensor) -> Tensor:
    """Return words as numbers from 0 to 2**32 - 1, in double precision."""
    return (words.to(torch.int64) & 0xFFFFFFFF).double()
