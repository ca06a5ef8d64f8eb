"""Draws from rows of a table, with as little chance as can be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["drawn"]

_FLOOR = 1e-12


def drawn(
    table: NDArray[np.float64], rows: NDArray[np.int64], random: np.random.RandomState
) -> NDArray[np.int64]:
    """Draw a column for each record by the row of the table that it is in.

    Draws of the same row are systematic: how many records get a column is within one of what is
    expected, so that the only noise is that of the table. Which records get it is random.

    Parameters
    ----------
    table : ndarray of shape (n_rows, n_columns)
        Weights; negative ones count as 0, and a row of zeros as one of ones.
    rows : ndarray of shape (n,)
    random : RandomState

    Returns
    -------
    ndarray of shape (n,)
    """
    n, width = len(rows), table.shape[1]
    reached = np.cumsum(np.maximum(table, 0.0) + _FLOOR, axis=1)
    reached /= reached[:, -1:]
    order = random.permutation(n)
    narrow = rows.astype(np.min_scalar_type(len(table)))  # 16 bits are sorted by their digits
    order = order[np.argsort(narrow[order], kind="stable")]
    row = rows[order]
    together = np.bincount(row, minlength=len(table))
    rank = np.arange(n) - (np.cumsum(together) - together)[row]
    at = (rank + random.uniform(size=len(table))[row]) / together[row]
    flat = (reached + np.arange(len(table))[:, None]).ravel()
    place = np.searchsorted(flat, row + np.minimum(at, 1.0 - _FLOOR), side="right") - row * width
    result = np.empty(n, np.int64)
    result[order] = np.clip(place, 0, width - 1)
    return result
