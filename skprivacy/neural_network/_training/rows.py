"""Records and targets as training takes them: in single precision, in memory or on disk.

Of a memory-mapped array only some rows are read at a time.
"""

from __future__ import annotations

import math
import mmap
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...mechanisms.chacha import sent

__all__ = [
    "MappedRows",
    "as_rows",
    "as_targets",
    "chunks",
    "is_mapped",
    "single_precision",
    "that_fit",
    "without_huge",
]

# How much of a file may be in memory on behalf of the mapping, before it is given back.
_HELD_BYTES = 1 << 25
# Beyond this, products overflow: the order in which a sum is taken, which depends on how many other
# records there are, would decide whether a record's gradient is finite.
_LARGEST = 1e15
_AT_A_TIME = 1 << 14  # rows that are compared together
# How much memory is free on a device that has its own.
_FREE: dict[str, Callable[[str], int]] = {"cuda": lambda device: torch.cuda.mem_get_info(device)[0]}
# What one access to a mapping may bring in: Linux maps up to this much around it.
_AROUND = 1 << 16


class MappedRows:
    """The rows of a memory-mapped matrix, to a training step like a tensor in single precision.

    So are those of a matrix in main memory that is too large for the device.

    Parameters
    ----------
    matrix : numpy.memmap of shape (n_samples, ...)
    device : str, default="cpu"
        Where the selected rows go.
    dtype : numpy type, default=numpy.float32
        What the selected rows are.

    Notes
    -----
    **Guarantees.** No more than the rows of one selection are in memory, plus a constant amount of
    the file. The system may keep the rest in its cache, which it empties when memory is needed.

    **Edge cases.** Numbers beyond 1e15 become infinite, as they do for training in memory.
    """

    def __init__(self, matrix: NDArray, device: str = "cpu", dtype: Any = np.float32) -> None:
        self.matrix = matrix
        self.dtype = dtype
        self.device = torch.device(device)
        self.shape = torch.Size(matrix.shape)

    def __len__(self) -> int:
        return len(self.matrix)

    def to(self, device: str) -> MappedRows:
        return MappedRows(self.matrix, device, self.dtype)

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """Return a copy of the rows with these numbers; ``dim`` is 0."""
        assert dim == 0
        rows = _read(self.matrix, index.cpu().numpy(), self.dtype)
        return sent(without_huge(torch.from_numpy(rows)).numpy(), self.device)


def that_fit(X: Tensor | MappedRows, device: str) -> Tensor | MappedRows:
    """Return rows as they are, or what sends those of a step if a device has no room for all."""
    free = _FREE.get(torch.device(device).type)
    # The number of records chooses where they lie; a step gets the same numbers either way.
    if isinstance(X, MappedRows) or free is None or 2 * X.nbytes <= free(device):
        return X
    return MappedRows(X.numpy(), device, X.numpy().dtype)


def is_mapped(X: Any) -> TypeGuard[NDArray]:
    """Whether an array of numbers, with a row for each record, lies in a file.

    Rows picked out of a memory map by their numbers are a copy in memory, although numpy still
    calls it a ``memmap``; a slice of it is not. What lies below decides.
    """
    return (
        isinstance(X, np.ndarray)
        and X.ndim > 1
        and X.dtype.kind in "biuf"
        and _mapping(X) is not None
    )


def chunks(X: NDArray, size: int) -> Iterator[NDArray[np.float32]]:
    """Yield all rows of a memory-mapped matrix in order, ``size`` at a time."""
    for start in range(0, len(X), size):
        yield _read(X, np.arange(start, min(start + size, len(X))))


def _mapping(X: NDArray) -> mmap.mmap | None:
    base: Any = X
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _read(X: NDArray, indices: NDArray[np.int64], dtype: Any = np.float32) -> NDArray:
    out = np.empty((len(indices), *X.shape[1:]), dtype)
    between = np.float64 if np.dtype(dtype).kind == "f" else dtype
    step = _rows_at_a_time(X)
    with np.errstate(over="ignore"):
        for start in range(0, len(indices), step):
            part = indices[start : start + step]
            # By way of double precision, as a matrix in memory goes: the same numbers come out.
            out[start : start + step] = np.asarray(X)[part].astype(between)
            _give_back(X)
    return out


def without_huge(rows: Tensor) -> Tensor:
    """Make numbers infinite, in place, that are too large to compute with."""
    if not rows.is_floating_point():
        return rows
    for part in rows.split(_AT_A_TIME):  # views
        if not part.numel() or part.abs().max() <= _LARGEST:  # false where there is NaN
            continue
        part.masked_fill_((part > _LARGEST) | (part < -_LARGEST), math.inf)
    return rows


def _rows_at_a_time(X: NDArray) -> int:
    """Return how many rows, wherever they lie, may be read before memory is given back."""
    numbers = math.prod(X.shape[1:])
    touched = _AROUND + numbers * (X.itemsize if X[:1].flags.c_contiguous else _AROUND)
    return max(1, _HELD_BYTES // touched)


def _give_back(X: NDArray) -> None:
    """Let go of the part of the file that reading brought into memory."""
    mapping = _mapping(X)
    # A mapping of mode "c" holds changes that are nowhere else: those must stay.
    if mapping is not None and hasattr(mapping, "madvise") and getattr(X, "mode", "c") != "c":
        mapping.madvise(mmap.MADV_DONTNEED)


def single_precision(rows: NDArray | MappedRows | Tensor) -> Tensor | MappedRows:
    """Return rows in single precision; what is too large is infinite, hence adds nothing.

    **Guarantees.** What is given is not changed. If it is as training takes it, no copy is made:
    then the result is the same memory, which training reads alone.
    """
    if isinstance(rows, MappedRows):
        return rows
    if not isinstance(rows, Tensor):
        with np.errstate(over="ignore"):
            rows = _as_tensor(np.ascontiguousarray(rows, dtype=np.float32))
    return without_huge(rows.clone()) if _has_huge(rows) else rows


def _as_tensor(array: NDArray) -> Tensor:
    """Return a tensor on the memory of an array, also on memory that may be read only."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


def _has_huge(rows: Tensor) -> bool:
    """Whether there are numbers that are too large to compute with; part by part."""
    if not rows.is_floating_point():
        return False
    return any(map(_holds_huge, rows.split(_AT_A_TIME)))


def _holds_huge(rows: Tensor) -> bool:
    """Look at the extremes first: numpy finds them in one pass, without threads to wait for."""
    values = rows.numpy()
    with np.errstate(invalid="ignore"):
        if values.min(initial=0) >= -_LARGEST and values.max(initial=0) <= _LARGEST:
            return False
    return bool((rows.abs() > _LARGEST).any())  # false where there is only NaN


def as_rows(X: Any) -> Tensor | MappedRows:
    """Return a tensor in single precision or of integers; a memory-mapped array stays on disk.

    **Edge cases.** It may be the caller's own memory: it is only read.
    """
    if is_mapped(X):
        return MappedRows(X, dtype=np.float32 if X.dtype.kind == "f" else np.int64)
    array = _numbers(X, "X")
    if array.ndim < 2:
        raise ValueError(f"X has shape {array.shape}; it must have a row for each record.")
    return _as_tensor(np.ascontiguousarray(array))


def as_targets(y: Any, n: int) -> NDArray:
    """Return targets in single precision or as integers, one for each of ``n`` records."""
    if y is None:
        raise ValueError("y=None: targets are required; data sets with both are not supported.")
    array = _numbers(y, "y")
    if len(array) != n:
        raise ValueError(f"X has {n} records and y has {len(array)}.")
    return array.copy()


def _numbers(values: Any, name: str) -> NDArray:
    if isinstance(values, Tensor):
        if values.is_meta:
            raise TypeError(f"{name} is a tensor on the device 'meta', which holds no values.")
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    try:
        array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    except ValueError:  # a data set, a list of arrays of different lengths, Arrow's with gaps
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise ValueError(
            f"{name} must be one array, tensor or frame of numbers, got "
            f"{type(values).__name__} of type {array.dtype}."
        )
    if len(array) == 0:
        raise ValueError(f"{name} has 0 records: at least one is needed.")
    with np.errstate(over="ignore"):  # infinite, hence ignored
        return np.asarray(array, dtype=np.int64 if array.dtype.kind in "iu" else np.float32)
