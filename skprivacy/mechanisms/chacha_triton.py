"""ChaCha20 noise as one Triton kernel, for GPUs where Triton is installed.

The torch operations in ``chacha`` make about four hundred passes over the words of the cipher; here
the words stay in registers. The numbers are the same up to the rounding of the device's logarithm,
sine and cosine. In a vector of millions they are in another order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_LANES = 128  # blocks that a program computes side by side


@triton.jit
def _quarter_round(a, b, c, d):
    a += b
    d ^= a
    d = (d << 16) | (d >> 16)
    c += d
    b ^= c
    b = (b << 12) | (b >> 20)
    a += b
    d ^= a
    d = (d << 8) | (d >> 24)
    c += d
    b ^= c
    b = (b << 7) | (b >> 25)
    return a, b, c, d


@triton.jit
def _block(key, count):
    """Return the sixteen words of the blocks ``count`` of a key (RFC 8439, section 2.3)."""
    none = count * 0
    k0 = none + tl.load(key + 0).to(tl.uint32, bitcast=True)
    k1 = none + tl.load(key + 1).to(tl.uint32, bitcast=True)
    k2 = none + tl.load(key + 2).to(tl.uint32, bitcast=True)
    k3 = none + tl.load(key + 3).to(tl.uint32, bitcast=True)
    k4 = none + tl.load(key + 4).to(tl.uint32, bitcast=True)
    k5 = none + tl.load(key + 5).to(tl.uint32, bitcast=True)
    k6 = none + tl.load(key + 6).to(tl.uint32, bitcast=True)
    k7 = none + tl.load(key + 7).to(tl.uint32, bitcast=True)
    a0, a1, a2, a3 = none + 0x61707865, none + 0x3320646E, none + 0x79622D32, none + 0x6B206574
    b0, b1, b2, b3 = k0, k1, k2, k3
    c0, c1, c2, c3 = k4, k5, k6, k7
    d0, d1, d2, d3 = count, none, none, none
    for _ in range(10):
        a0, b0, c0, d0 = _quarter_round(a0, b0, c0, d0)
        a1, b1, c1, d1 = _quarter_round(a1, b1, c1, d1)
        a2, b2, c2, d2 = _quarter_round(a2, b2, c2, d2)
        a3, b3, c3, d3 = _quarter_round(a3, b3, c3, d3)
        a0, b1, c2, d3 = _quarter_round(a0, b1, c2, d3)
        a1, b2, c3, d0 = _quarter_round(a1, b2, c3, d0)
        a2, b3, c0, d1 = _quarter_round(a2, b3, c0, d1)
        a3, b0, c1, d2 = _quarter_round(a3, b0, c1, d2)
    return (
        a0 + 0x61707865, a1 + 0x3320646E, a2 + 0x79622D32, a3 + 0x6B206574,
        b0 + k0, b1 + k1, b2 + k2, b3 + k3, c0 + k4, c1 + k5, c2 + k6, c3 + k7,
        d0 + count, d1, d2, d3,
    )  # fmt: skip


@triton.jit
def _uniform(high, low, scale: tl.constexpr):
    return (high.to(tl.float64) * 4294967296.0 + low.to(tl.float64) + 0.5) * scale


@triton.jit
def _add(out, at, size, std, noise):
    there = tl.load(out + at, mask=at < size, other=0.0)
    tl.store(out + at, there + (noise * std).to(there.dtype), mask=at < size)


@triton.jit
def _add_pair(out, block, n_blocks, size, std, high, low, turn, place: tl.constexpr):
    u = _uniform(high, low, 5.421010862427522e-20)  # 2**-64
    radius = tl.sqrt(-2.0 * tl.log(u)).to(tl.float32)
    angle = turn.to(tl.float32) * 1.4629180792671596e-09  # two pi over 2**32
    _add(out, place * n_blocks + block, size, std, radius * tl.cos(angle))
    _add(out, (place + 5) * n_blocks + block, size, std, radius * tl.sin(angle))


@triton.jit
def _normal_kernel(out, key, size, n_blocks, std, lanes: tl.constexpr):
    block = tl.program_id(0).to(tl.int64) * lanes + tl.arange(0, lanes)
    size = tl.where(block < n_blocks, size, 0)  # a lane beyond the last block adds nothing
    w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, _ = _block(
        key, block.to(tl.uint32)
    )
    _add_pair(out, block, n_blocks, size, std, w0, w5, w10, 0)
    _add_pair(out, block, n_blocks, size, std, w1, w6, w11, 1)
    _add_pair(out, block, n_blocks, size, std, w2, w7, w12, 2)
    _add_pair(out, block, n_blocks, size, std, w3, w8, w13, 3)
    _add_pair(out, block, n_blocks, size, std, w4, w9, w14, 4)


@triton.jit
def _add_one(out, block, n_blocks, size, std, high, low, place: tl.constexpr):
    w = _uniform(high & 0x7FFFFFFF, low, 1.0842021724855044e-19)  # 2**-63
    noise = tl.log((2.0 - w) / w).to(tl.float32)
    _add(out, place * n_blocks + block, size, std, tl.where(high >= 0x80000000, -noise, noise))


@triton.jit
def _logistic_kernel(out, key, size, n_blocks, std, lanes: tl.constexpr):
    block = tl.program_id(0).to(tl.int64) * lanes + tl.arange(0, lanes)
    size = tl.where(block < n_blocks, size, 0)
    w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15 = _block(
        key, block.to(tl.uint32)
    )
    _add_one(out, block, n_blocks, size, std, w0, w8, 0)
    _add_one(out, block, n_blocks, size, std, w1, w9, 1)
    _add_one(out, block, n_blocks, size, std, w2, w10, 2)
    _add_one(out, block, n_blocks, size, std, w3, w11, 3)
    _add_one(out, block, n_blocks, size, std, w4, w12, 4)
    _add_one(out, block, n_blocks, size, std, w5, w13, 5)
    _add_one(out, block, n_blocks, size, std, w6, w14, 6)
    _add_one(out, block, n_blocks, size, std, w7, w15, 7)


def add_normal(values: Tensor, std: float, key: Tensor) -> None:
    """Add normal numbers to a flat tensor, in place; ``key`` has 8 int32 on its device."""
    _run(_normal_kernel, values, 10, std, key)


def add_logistic(values: Tensor, scale: float, key: Tensor) -> None:
    """Add logistic numbers to a flat tensor, in place; ``key`` has 8 int32 on its device."""
    _run(_logistic_kernel, values, 8, scale, key)


def _run(kernel, values: Tensor, a_block: int, std: float, key: Tensor) -> None:
    n_blocks = -(-len(values) // a_block)
    if not n_blocks:
        return
    buffer = values.contiguous()  # the kernel addresses consecutive memory
    with torch.cuda.device_of(buffer):  # Triton launches on the current device
        grid = (triton.cdiv(n_blocks, _LANES),)
        kernel[grid](buffer, key, len(buffer), n_blocks, std, lanes=_LANES)
    if buffer is not values:
        values.copy_(buffer)
