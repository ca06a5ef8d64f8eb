"""Torch's global modes during private training: precision, generators and devices.

:func:`map_each_record` keeps the rounding of a record independent of other records.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...mechanisms import SecureRandom

# Devices whose memory numpy can access.
NUMPY_ON = {"cpu"}


def usable_device(name: str) -> str:
    """Return a usable device of torch; "auto" takes a GPU if there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device={name!r} is not usable ({error}). Use 'auto' or 'cpu'."
        ) from error
    return name


@contextmanager
def ordinary_torch(device: str) -> Iterator[None]:
    """Compute in single precision and with gradients, whatever mode the caller has set.

    Clipping norms are exact in single precision only: with autocast, TF32 or bfloat16 products, a
    gradient could be longer than its computed norm.

    **Edge cases.** With several GPUs, the requested one is the current one inside: streams, graphs
    and kernels go to the current GPU, wherever their tensors are.
    """
    kind = torch.device(device).type
    with (
        torch.cuda.device(device) if kind == "cuda" else nullcontext(),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(kind, enabled=False),
        _precision,
    ):
        try:
            yield
        except torch.cuda.OutOfMemoryError as error:
            raise MemoryError(
                f"device={device!r} has too little memory: {error} Use a smaller batch_size or "
                "network, or device='cpu'; a charged budget stays charged, because a sum may have "
                "been released."
            ) from error


class _FullPrecision:
    """Products and convolutions in full single precision while at least one thread needs it.

    The norm of a gradient is computed from its unrounded factors. A product that rounds them to
    bfloat16 adds up to 0.8% to it, and TF32 0.1%: more than the reserve of clipping. Convolutions
    on a GPU use TF32 by default, and would depend on the length of the batch.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before: tuple[str | None, list[str]] = (None, [])
        self._convolutions: tuple[bool | None, str] = (None, "")

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._before = (
                    _overall_precision(),
                    [p.fp32_precision for p in _precision_holders()],
                )
                torch.set_float32_matmul_precision("highest")
                self._convolutions = _precision_of_convolutions()
                _set_convolutions(None if self._convolutions[0] is None else False, "ieee")
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                overall, each = self._before
                if overall is not None:
                    torch.set_float32_matmul_precision(overall)
                for product, precision in zip(_precision_holders(), each, strict=True):
                    product.fp32_precision = "none"  # as the backend has it
                    if product.fp32_precision != precision:
                        product.fp32_precision = precision
                _set_convolutions(*self._convolutions)


def _overall_precision() -> str | None:
    """Return torch's one setting for all products, or None if each kind has its own."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _precision_holders() -> list[Any]:
    """Return the objects in which newer versions of torch store the precision of products."""
    kinds = [getattr(torch.backends.mkldnn, "matmul", None), torch.backends.cuda.matmul]
    return [kind for kind in kinds if hasattr(kind, "fp32_precision")]


def _precision_of_convolutions() -> tuple[bool | None, str]:
    """Return cuDNN's one TF32 setting, if there is one, and the precision of convolutions."""
    cudnn: Any = torch.backends.cudnn
    if not hasattr(cudnn, "conv"):  # before torch 2.9
        return cudnn.allow_tf32, ""
    try:
        return cudnn.allow_tf32, cudnn.conv.fp32_precision
    except RuntimeError:  # torch has no single answer here
        return None, cudnn.conv.fp32_precision


def _set_convolutions(tf32: bool | None, precision: str) -> None:
    """Set cuDNN's one TF32 setting or, if it is None, the precision of convolutions."""
    cudnn: Any = torch.backends.cudnn
    if tf32 is None:
        cudnn.conv.fp32_precision = precision
    else:
        cudnn.allow_tf32 = tf32


_precision = _FullPrecision()


@contextmanager
def private_randomness(random: SecureRandom, device: str) -> Iterator[None]:
    """Make torch's own generator, hence dropout, unpredictable inside; restore it after.

    One more record in a batch shifts the dropout masks of all others. If masks were known, that
    would be a change beyond the sensitivity. Unknown and independent masks can be coupled, so the
    sensitivity holds. Threads share the generator: the last training restores the state from before
    the first.
    """
    with _generator.hidden(random, torch.device(device).type == "cuda"):
        yield


class _HiddenGenerator:
    """torch's generators with unpredictable seeds while at least one thread needs them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before: dict[str, Any] = {}

    @contextmanager
    def hidden(self, random: SecureRandom, on_gpu: bool) -> Iterator[None]:
        with self._lock:
            self._users += 1
            self._before.setdefault("cpu", torch.get_rng_state())
            if on_gpu:
                self._before.setdefault("gpu", torch.cuda.get_rng_state_all())
            torch.manual_seed(int.from_bytes(random.random_bytes(7), "little"))
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._restore()

    def _restore(self) -> None:
        before, self._before = self._before, {}
        torch.set_rng_state(before["cpu"])
        if "gpu" in before:
            torch.cuda.set_rng_state_all(before["gpu"])


_generator = _HiddenGenerator()
_SMALLEST = np.finfo(np.float32).tiny


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Flush numbers below 1e-38 to zero in this thread, because CPUs are slow with them.

    Squared gradients of confidently learned records are such numbers, and took a fifth of a run's
    time. Norms allow for the loss in squares (``_gradients.contributions``); a loss in a
    contribution shortens it.
    """
    with np.errstate(all="ignore"):  # gradients that overflow add nothing, and torch does not warn
        before = bool(_SMALLEST * np.float32(0.5) == 0)
        torch.set_flush_denormal(True)
        try:
            yield
        finally:
            torch.set_flush_denormal(before)


def numpy_sees(values: Tensor) -> bool:
    """Return True if numpy can access the memory of a tensor."""
    return values.device.type in NUMPY_ON


def is_off_cpu(values: Tensor) -> bool:
    """Return True if a tensor is on another device than the CPU."""
    return not values.is_cpu


def map_each_record(function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Return ``function`` of each row, computed in one call per row.

    Products and convolutions round a row by its position and by the number of rows. Here each call
    has the same shape. Each row is copied to the same memory, because some kernels round by
    alignment.
    """
    record = torch.empty_like(rows[:1])
    results = rows.new_empty(0)
    for i, row in enumerate(rows):
        record[0] = row
        result = function(record)
        if not i:
            results = result.new_empty((len(rows), *result.shape[1:]))
        results[i] = result[0]
    return results
