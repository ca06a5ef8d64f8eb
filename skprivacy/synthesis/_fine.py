"""Fine tables: each column by the label, in the cells of its public grid."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..mechanisms import SecureRandom
from ._bins import bins_of, nonnegative
from ._counts import Records
from ._domain import Domain
from ._model import Measurement
from ._plan import Plan, std_of

__all__ = ["bins_of_columns", "cells_of_bins", "fine_tables", "of_bins", "total_of"]

_NOISE_IN_BIN = 10.0  # standard deviations that a bin should hold


def fine_tables(
    records: Records,
    columns: list[int],
    tie: tuple[int, ...],
    plan: Plan,
    random: SecureRandom,
) -> list[NDArray[np.float64]]:
    """Return noisy fine tables, (n_cells, n_classes) of each column."""
    exact = [records.table((c, *tie)).reshape(records.sizes[c], -1) for c in columns]
    noisy = plan.fine.release(np.concatenate([table.ravel() for table in exact]), random)
    parts = np.split(noisy, np.cumsum([table.size for table in exact])[:-1])
    return [part.reshape(table.shape) for part, table in zip(parts, exact, strict=True)]


def total_of(tables: list[NDArray[np.float64]]) -> float:
    """Return the number of records by noisy tables, each of which tells it; at least 1."""
    accuracy = np.array([1 / table.size for table in tables])  # the noise of a sum adds up
    sums = np.array([table.sum() for table in tables])
    return max(float(sums @ accuracy / accuracy.sum()), 1.0)


def bins_of_columns(
    domain: Domain,
    columns: list[int],
    tables: list[NDArray[np.float64]],
    plan: Plan,
    most: int,
) -> list[NDArray[np.int64]]:
    """Return the bins of every column, by noisy tables alone; the label keeps its cells."""
    std = std_of(plan.fine)
    least = _NOISE_IN_BIN * (std_of(plan.each) if plan.n_choices else std)
    bins = [np.arange(size) for size in domain.sizes]
    for c, table in zip(columns, tables, strict=True):
        bins[c] = bins_of(domain.columns[c], table, std, most, least)
    return bins


def of_bins(
    tables: list[NDArray[np.float64]],
    columns: list[int],
    tie: tuple[int, ...],
    bins: list[NDArray[np.int64]],
    plan: Plan,
) -> list[Measurement]:
    """Return what the fine tables say of bins; their noise adds up."""
    measurements = []
    for c, table in zip(columns, tables, strict=True):
        joined = np.zeros((int(bins[c].max()) + 1, table.shape[1]))
        np.add.at(joined, bins[c], table)
        std = np.broadcast_to(
            std_of(plan.fine) * np.sqrt(np.bincount(bins[c]))[:, None], joined.shape
        )
        if not tie:
            measurements.append(Measurement((c,), joined[:, 0], std[:, 0]))
        elif c < tie[0]:
            measurements.append(Measurement((c, *tie), joined, std))
        else:
            measurements.append(Measurement((*tie, c), joined.T.copy(), std.T))
    return measurements


def cells_of_bins(
    table: NDArray[np.float64], bins: NDArray[np.int64], total: float
) -> NDArray[np.float64]:
    """Return the weights of fine cells within each bin and class, (n_bins * n_classes, n_cells)."""
    counts = nonnegative(table, total) + 1e-9
    n_cells, n_classes = table.shape
    cells = np.zeros((int(bins.max()) + 1, n_classes, n_cells))
    cells[bins, :, np.arange(n_cells)] = counts
    return cells.reshape(-1, n_cells)
