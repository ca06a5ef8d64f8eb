"""Records and targets as training takes them, in memory or on disk.

Rows of a memory-mapped array are read when a step needs them.
"""

from __future__ import annotations

import math
import mmap
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..._input_data import is_mapped, make_huge_infinite, memory_map_of
from ...mechanisms.chacha import copy_to_device

# Bytes of a file that reading may keep in memory before they are released.
_HELD_BYTES = 1 << 25
# Free memory of devices with their own memory.
FREE_MEMORY: dict[str, Callable[[str], int]] = {
    "cuda": lambda device: torch.cuda.mem_get_info(device)[0]
}
# Bytes that one access to a mapping may load: Linux maps up to this many around it.
_BYTES_PER_ACCESS = 1 << 16


class MappedRows:
    """Rows of a memory-mapped matrix, or of one too large for the device, in place of a tensor.

    Selected rows are read in single precision, and go to ``device``.

    **Guarantees.** Only the rows of one selection are in memory, plus a constant amount of the
    file, apart from the system's cache.
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
        """Return a copy of the rows with these indices; ``dim`` is 0."""
        assert dim == 0
        rows = _read_rows(self.matrix, index.cpu().numpy(), self.dtype)
        return copy_to_device(make_huge_infinite(rows), self.device)


def move_rows_to_device(X: Tensor | MappedRows, device: str) -> Tensor | MappedRows:
    """Return the rows, or MappedRows that send each step's rows to a device with little memory."""
    free = FREE_MEMORY[torch.device(device).type]
    # The number of records decides where they are stored; a step gets the same numbers either way.
    if isinstance(X, MappedRows) or 2 * X.nbytes <= free(device):
        return X
    return MappedRows(X.numpy(), device, X.numpy().dtype)


def iterate_chunks(X: NDArray, size: int) -> Iterator[NDArray[np.float32]]:
    """Yield all rows of a memory-mapped matrix in order, ``size`` at a time."""
    for start in range(0, len(X), size):
        yield _read_rows(X, np.arange(start, min(start + size, len(X))))


def _read_rows(X: NDArray, indices: NDArray[np.int64], dtype: Any = np.float32) -> NDArray:
    out = np.empty((len(indices), *X.shape[1:]), dtype)
    between = np.float64 if np.dtype(dtype).kind == "f" else dtype
    step = _rows_at_a_time(X)
    with np.errstate(over="ignore"):
        for start in range(0, len(indices), step):
            part = indices[start : start + step]
            # Through double precision, as for a matrix in memory, for equal results.
            out[start : start + step] = np.asarray(X)[part].astype(between)
            _release_pages(X)
    return out


def _rows_at_a_time(X: NDArray) -> int:
    """Return how many rows, wherever they are, may be read before memory is released."""
    numbers = math.prod(X.shape[1:])
    touched = _BYTES_PER_ACCESS + numbers * (
        X.itemsize if X[:1].flags.c_contiguous else _BYTES_PER_ACCESS
    )
    return max(1, _HELD_BYTES // touched)


def _release_pages(X: NDArray) -> None:
    """Release the part of the file that reading has loaded into memory."""
    mapping = memory_map_of(X)
    # A copy-on-write mapping (mode "c") holds changes that exist nowhere else.
    if mapping is not None and hasattr(mapping, "madvise") and getattr(X, "mode", "c") != "c":
        mapping.madvise(mmap.MADV_DONTNEED)


def as_rows(X: Any) -> Tensor | MappedRows:
    """Return rows in single precision or as integers; mapped arrays stay on disk."""
    if is_mapped(X):
        return MappedRows(X, dtype=np.float32 if X.dtype.kind == "f" else np.int64)
    array = _as_numeric_array(X, "X")
    if array.ndim < 2:
        raise ValueError(f"X has shape {array.shape}; expected one row per record. Reshape X.")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array))


def as_targets(y: Any, n: int) -> NDArray:
    """Return targets in single precision or as integers, one per record."""
    if y is None:
        raise ValueError("y=None: targets are required. Pass X and y separately, not a data set.")
    array = _as_numeric_array(y, "y")
    if len(array) != n:
        raise ValueError(f"X has {n} records and y has {len(array)}.")
    return array.copy()


def _as_numeric_array(values: Any, name: str) -> NDArray:
    if isinstance(values, Tensor):
        if values.is_meta:
            raise TypeError(f"{name} is a tensor on the device 'meta', which holds no values.")
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    try:
        array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    except ValueError:  # a data set, arrays of different lengths, or Arrow data with missing values
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise ValueError(
            f"{name} must be one array, tensor or frame of numbers, got "
            f"{type(values).__name__} of type {array.dtype}."
        )
    if len(array) == 0:
        raise ValueError(f"{name} has 0 records; expected at least one.")
    with np.errstate(over="ignore"):  # overflow becomes infinite, and the record is ignored
        return np.asarray(array, dtype=np.int64 if array.dtype.kind in "iu" else np.float32)
