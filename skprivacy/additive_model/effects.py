"""Bins of columns at several resolutions, and effects over them: sums of steps with their noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..synthesis.domain import ColumnCells
from ..synthesis.marginal_tables import join_neighbor_cells, project_to_counts

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RESOLUTIONS = 32, 16, 8, 4  # most bins of a level, from the finest


@dataclass(frozen=True)
class ColumnBins:
    """Bins of a column, one level for each of ``RESOLUTIONS``; later ones join bins of level 0."""

    cells: Integers  # finest bin of each cell of the domain
    levels: tuple[Integers, ...]  # bin of each finest bin at each level, without gaps
    ordered: bool  # whether neighbouring bins hold neighbouring values
    has_missing: bool  # whether the last bin holds missing values

    @property
    def n_bins(self) -> int:
        """Number of finest bins."""
        return len(self.levels[0])

    def size(self, level: int) -> int:
        """Return the number of bins of a level."""
        return int(self.levels[level][-1]) + 1

    def n_ordered(self, level: int) -> int:
        """Return the number of leading bins whose neighbours are similar: 0 for categories."""
        return self.size(level) - self.has_missing if self.ordered else 0

    def starts(self, level: int) -> Integers:
        """Return the first finest bin of each bin of a level."""
        return np.unique(self.levels[level], return_index=True)[1]


def choose_levels(column: ColumnCells, counts: Floats, effect: Floats, least: float) -> ColumnBins:
    """Return the bins of a column from noisy counts and effects of its cells.

    Categories are ordered by their effect, (n_cells, n_outputs), and neighbours joined to bins of
    about equal counts, of at least ``least`` records. Missing values keep a separate bin.
    """
    values = column.cells.size
    mass = project_to_counts(counts, max(float(counts.sum()), 1.0))
    order = (
        np.arange(values) if column.ordered else _order_by_effect(mass[:values], effect[:values])
    )
    finest = np.empty(values, np.int64)
    finest[order] = join_neighbor_cells(mass[order], RESOLUTIONS[0], least)
    cells = np.append(finest, finest.max() + 1) if column.may_be_missing else finest
    joined = np.zeros(int(cells.max()) + 1)
    np.add.at(joined, cells, mass)
    known = int(finest.max()) + 1
    levels = [np.arange(len(joined))]
    for most in RESOLUTIONS[1:]:
        level = levels[-1]
        if known > most:
            coarse = join_neighbor_cells(joined[:known], most, 0.0)
            level = np.append(coarse, coarse[-1] + 1) if column.may_be_missing else coarse
        levels.append(level)
    return ColumnBins(cells, tuple(levels), column.ordered, column.may_be_missing)


def _order_by_effect(mass: Floats, effect: Floats) -> Integers:
    """Return categories in the order of the direction in which their effects differ most."""
    weights = np.sqrt(mass)[:, None]
    centered = effect - (mass @ effect) / max(float(mass.sum()), 1.0)
    direction = np.linalg.svd(weights * centered, full_matrices=False)[2][0]
    return np.argsort(effect @ direction, kind="stable")


@dataclass
class EffectSum:
    """Sum of the steps for some columns, over their finest bins, and the variance of its noise."""

    scores: Floats  # (n_bins, ..., n_outputs)
    variance: Floats

    def add(self, step: Floats, noise: Floats, axes: list[Integers]) -> Floats:
        """Add a step over bins of coarser levels, and return it over the finest bins."""
        fine = np.ix_(*axes)
        self.scores += step[fine]
        self.variance += noise[fine] ** 2
        added: Floats = step[fine]
        return added

    def multiply(self, factor: float, noise: float) -> None:
        """Multiply the effect by a factor with this noise."""
        self.variance = factor**2 * self.variance + (noise * self.scores) ** 2
        self.scores *= factor


@dataclass(frozen=True)
class AdditiveEffect:
    """The effect of one or two columns on the score, in bins, with the noise in it.

    Sampling error of the records is not included in ``noise_std``.
    """

    columns: tuple[str, ...]
    scores: Floats = field(repr=False)  # (n_bins, n_outputs) or (n_bins_1, n_bins_2, n_outputs)
    noise_std: Floats = field(repr=False)  # of the noise that protects records; the same shape

    @property
    def size(self) -> float:
        """Root mean square of the scores over bins."""
        return math.sqrt(float(np.mean(self.scores**2)))

    def lookup(self, codes: tuple[Integers, ...]) -> Floats:
        """Return the scores of records, (n, n_outputs), from their bins; 0 for a bin of -1."""
        padded = np.pad(self.scores, [(0, 1)] * len(codes) + [(0, 0)])
        found: Floats = padded[codes]
        return found


def bin_codes(cells: NDArray[np.integer], bins: Integers) -> Integers:
    """Return the bin of each cell code, or -1 for a value without a cell."""
    found: Integers = np.append(bins, -1)[cells]
    return found
