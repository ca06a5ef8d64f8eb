"""Bins of fine cells, by their noisy counts alone.

Counts of private records: all that is ever computed from them.

Fine tables: each column by the label, in the cells of its public grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._groups import SHARES_PER_GROUP
from ..mechanisms import SecureRandom
from .domain import Column, Domain
from .graphical_model import Measurement
from .measurement_plan import Plan, std_of

__all__ = [
    "Records",
    "bins_of",
    "bins_of_columns",
    "cells_of_bins",
    "distance",
    "fine_tables",
    "nonnegative",
    "of_bins",
    "total_of",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def nonnegative(noisy: Floats, total: float) -> Floats:
    """Return the nearest table without negative counts that adds up to ``total`` > 0."""
    falling = np.sort(noisy.ravel())[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    return np.maximum(noisy - excess[falling > excess][-1], 0.0)


def bins_of(column: Column, noisy: Floats, std: float, most: int, least: float) -> Integers:
    """Return the bin of each fine cell.

    Parameters
    ----------
    column : Column
    noisy : ndarray of shape (n_cells, n_classes)
        Noisy counts of the fine cells.
    std : float
        Their standard deviation.
    most : int
        About how many bins an ordered column may have.
    least : float
        Count that a bin should have, so that what is measured of it later is not mostly noise.

    Returns
    -------
    ndarray of shape (n_cells,)
        From 0 on, without gaps.
    """
    mass = nonnegative(noisy, max(float(noisy.sum()), 1.0)).sum(axis=1)
    if not column.ordered:
        return _rare_joined(mass, min(least, 5 * std))
    values = column.cells.size
    bins = _neighbours_joined(mass[:values], most, least)
    return np.append(bins, bins[-1] + 1) if column.may_be_missing else bins


def _rare_joined(mass: Floats, least: float) -> Integers:
    """Return a bin for each frequent cell, and one for all others."""
    frequent = mass >= least
    if np.count_nonzero(~frequent) <= 1:
        return np.arange(len(mass))
    bins = np.full(len(mass), np.count_nonzero(frequent))
    bins[frequent] = np.arange(np.count_nonzero(frequent))
    return bins


def _neighbours_joined(mass: Floats, most: int, least: float) -> Integers:
    """Return bins of neighbouring cells of about equal mass; a heavy cell is one by itself."""
    heavy = (mass >= mass.sum() / most) & (mass >= least)
    target = max(mass[~heavy].sum() / max(most - np.count_nonzero(heavy), 1), least)
    bins, number, filled = np.zeros(len(mass), np.int64), 0, 0.0
    started = False
    for cell, own in enumerate(mass):
        if started and (heavy[cell] or filled >= target):
            number, filled, started = number + 1, 0.0, False
        bins[cell] = number
        if heavy[cell]:
            number += cell + 1 < len(mass)
        else:
            filled, started = filled + own, True
    last = bins == bins[-1]
    if bins[-1] > 0 and mass[last].sum() < least / 2 and not heavy[bins == bins[-1] - 1].any():
        bins[last] -= 1
    return bins


@dataclass(frozen=True)
class Records:
    """The private records, as codes.

    Parameters
    ----------
    codes : ndarray of shape (n, n_columns)
    sizes : list of int
        Cells of each column.
    weights : ndarray of shape (n,) or None
        Shares of records in their unit, in whole ``PARTS``; ``None`` if each is a unit of its own.
    """

    codes: NDArray[np.integer]
    sizes: list[int]
    weights: NDArray[np.float64] | None

    def table(self, columns: Sequence[int]) -> NDArray[np.float64]:
        """Return the counts of a marginal, with an axis for each column."""
        shape = [self.sizes[c] for c in columns]
        cells = np.zeros(len(self.codes), np.int64)
        for c in columns:
            cells = cells * self.sizes[c] + self.codes[:, c]
        counts = np.bincount(cells, self.weights, math.prod(shape))
        return counts.reshape(shape).astype(np.float64)

    def binned(self, bins: list[NDArray[np.int64]]) -> Records:
        """Return the records with bins for cells, which take the cells' place in memory."""
        for j, own in enumerate(bins):
            self.codes[:, j] = own[self.codes[:, j]]
        sizes = [int(own.max()) + 1 for own in bins]
        return Records(self.codes, sizes, self.weights)


def distance(table: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """Return the L1 distance of counts from what is expected, exactly on a grid.

    Notes
    -----
    **Guarantees.** Counts and expectations are multiples of 1 / ``PARTS``, 2**-20, so that sums
    below 2**33 are exact: a unit changes the distance by no more than its weight, not even by
    rounding.
    """
    return float(np.abs(table - np.rint(expected * SHARES_PER_GROUP) / SHARES_PER_GROUP).sum())


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
