"""Release of marginal tables with noise, and the bins of numeric columns.

All that a marginal synthesizer computes from private records are the counts of
:class:`~.scanned_tables.ScannedTables`. Start reading at :func:`release_fine_tables`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._groups import SHARES_PER_GROUP
from ..mechanisms import Gaussian, SecureRandom
from .domain import ColumnCells, Domain
from .graphical_model import Measurement
from .measurement_plan import MeasurementPlan, noise_std
from .scanned_tables import ScannedTables

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def project_to_counts(noisy: Floats, total: float) -> Floats:
    """Return the nearest non-negative table, in L2, with sum ``total`` > 0."""
    falling = np.sort(noisy.ravel())[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    return np.maximum(noisy - excess[falling > excess][-1], 0.0)


def choose_bins(
    column: ColumnCells, noisy: Floats, std: float, most: int, least: float
) -> Integers:
    """Return the bin of each fine cell, of shape (n_cells,): numbers from 0 without gaps."""
    # `std` is the noise of a fine cell. A bin should count at least `least`, so that a marginal
    # measured by bins is not mostly noise.
    mass = project_to_counts(noisy, max(float(noisy.sum()), 1.0))
    if not column.ordered:
        return _join_rare_cells(mass, min(least, 5 * std))
    values = column.cells.size
    bins = join_neighbor_cells(mass[:values], most, least)
    return np.append(bins, bins[-1] + 1) if column.may_be_missing else bins


def _join_rare_cells(mass: Floats, least: float) -> Integers:
    """Return one bin for each frequent cell, and one bin for all others."""
    frequent = mass >= least
    if np.count_nonzero(~frequent) <= 1:
        return np.arange(len(mass))
    bins = np.full(len(mass), np.count_nonzero(frequent))
    bins[frequent] = np.arange(np.count_nonzero(frequent))
    return bins


def join_neighbor_cells(mass: Floats, most: int, least: float) -> Integers:
    """Return bins of neighbouring cells of about equal mass; a heavy cell has its own bin."""
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


def l1_distance(table: Floats, expected: Floats) -> float:
    """Return the L1 distance between counts and expected counts, without rounding errors.

    Both are multiples of 2**-20, so sums below 2**33 are exact. A unit therefore changes the
    distance by at most its weight.
    """
    return float(np.abs(table - np.rint(expected * SHARES_PER_GROUP) / SHARES_PER_GROUP).sum())


_MIN_BIN_COUNT_IN_STDS = 10.0  # smallest count of a bin, in standard deviations of noise


def release_fine_tables(
    records: ScannedTables, plan: MeasurementPlan, random: SecureRandom
) -> list[Floats]:
    """Return the noisy counts of the cells of each column."""
    exact = [records.table((c,)) for c in range(len(records.sizes))]
    return release_together(exact, plan.fine_mechanism, random)


def release_together(
    tables: list[Floats], mechanism: Gaussian, random: SecureRandom
) -> list[Floats]:
    """Return noisy tables, released as one vector."""
    noisy = mechanism.release(np.concatenate([table.ravel() for table in tables]), random)
    parts = np.split(noisy, np.cumsum([table.size for table in tables])[:-1])
    return [part.reshape(table.shape) for part, table in zip(parts, tables, strict=True)]


def estimate_total(tables: list[Floats]) -> float:
    """Return the number of records, at least 1, as a weighted mean of the sums of noisy tables."""
    return max(float(average_sums([table.reshape(-1, 1) for table in tables])[0]), 1.0)


def average_sums(tables: list[Floats]) -> Floats:
    """Return the weighted mean, over noisy tables (n_cells, k), of the sums over cells."""
    accuracy = np.array([1 / len(table) for table in tables])  # inverse variance of each sum
    sums = np.array([table.sum(axis=0) for table in tables])
    average: Floats = accuracy @ sums / accuracy.sum()
    return average


def choose_column_bins(
    domain: Domain,
    tables: list[Floats],
    label_index: tuple[int, ...],
    plan: MeasurementPlan,
    most: int,
) -> list[Integers]:
    """Return the bins of every column from its noisy table; the label keeps its cells."""
    std = noise_std(plan.fine_mechanism)
    least = _MIN_BIN_COUNT_IN_STDS * (
        noise_std(plan.single_marginal_mechanism) if plan.n_marginals else std
    )
    return [
        np.arange(table.size)
        if c in label_index
        else choose_bins(domain.columns[c], table, std, most, least)
        for c, table in enumerate(tables)
    ]


def sum_over_bins(
    tables: list[Floats], bins: list[Integers], plan: MeasurementPlan
) -> list[Measurement]:
    """Return fine tables as measurements of bins; the variances of cells add up."""
    std = noise_std(plan.fine_mechanism)
    return [
        Measurement((c,), np.bincount(own, table).astype(float), std * np.sqrt(np.bincount(own)))
        for c, (table, own) in enumerate(zip(tables, bins, strict=True))
    ]


def cell_weights_in_bins(table: Floats, bins: Integers, total: float) -> Floats:
    """Return weights of fine cells in each bin, (n_bins, n_cells)."""
    cells = np.zeros((int(bins.max()) + 1, table.size))
    cells[bins, np.arange(table.size)] = project_to_counts(table, total) + 1e-9
    return cells
