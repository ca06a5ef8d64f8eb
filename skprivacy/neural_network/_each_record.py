"""A torch function of each record, whose rounding depends on no other record."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["map_each_record"]


def map_each_record(function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Return what ``function`` makes of each row, one row in each call.

    Products and convolutions round a row by its place among the other rows, and by how many there
    are. Here each call has the same shape. Each row is copied to the same place in memory, because
    some kernels round by alignment.

    Parameters
    ----------
    function : callable
        Takes and returns tensors of one row.
    rows : Tensor of shape (n_samples, ...)
        At least one.
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
