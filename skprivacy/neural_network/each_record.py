"""map_each_record: torch functions whose rounding is independent of other records."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


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
