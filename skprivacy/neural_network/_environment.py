"""What a caller may have set in torch, and what private training needs instead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..mechanisms import SecureRandom

__all__ = ["ordinary_torch", "private_chance"]


@contextmanager
def ordinary_torch(device: str) -> Iterator[None]:
    """Compute in single precision, with gradients, whatever mode the caller is in.

    Clipping norms are exact in single precision alone: reduced precision (autocast, TF32 or
    bfloat16 products) would let a gradient be longer than its norm says.
    """
    kind = torch.device(device).type
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(kind, enabled=False),
        _precision,
    ):
        yield


class _FullPrecision:
    """Matrix products in full single precision, for as long as one thread needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = ""

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._before = torch.get_float32_matmul_precision()
                torch.set_float32_matmul_precision("highest")
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                torch.set_float32_matmul_precision(self._before)


_precision = _FullPrecision()


@contextmanager
def private_chance(random: SecureRandom, device: str) -> Iterator[None]:
    """Let torch's own generator, hence dropout, be unpredictable inside; put it back after.

    A record more in a batch shifts the dropout of all others. Were the masks known, that would be a
    change beyond the sensitivity; unknown and independent, they can be matched up.
    """
    devices = [torch.device(device)] if torch.device(device).type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(int.from_bytes(random.random_bytes(7), "little"))
        yield
