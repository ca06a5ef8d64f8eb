"""Bins of fine cells, by their noisy counts alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ._domain import Column

__all__ = ["bins_of", "nonnegative"]

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
