"""Release of marginal tables: mechanisms of a fit, noisy tables, and the bins of numeric columns.

Each table gets discrete Gaussian noise, and each choice is an exponential mechanism, as in MST
(McKenna, Miklau and Sheldon 2021) and AIM (McKenna et al. 2022). All that a marginal synthesizer
computes from private records are the counts of :class:`~.scanned_tables.ScannedTables`. Start
reading at :class:`MeasurementPlan`, then :func:`release_fine_tables`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._groups import SHARES_PER_GROUP
from ..accounting import (
    ComposedEvent,
    Event,
    RepeatedEvent,
    calibrate_noise_multiplier,
    weakest_arithmetic,
)
from ..mechanisms import Exponential, Gaussian, SecureRandom
from .domain import ColumnCells, Domain
from .graphical_model import Measurement
from .scanned_tables import ScannedTables

Plan = TypeVar("Plan", bound="MeasurementPlan")
METHODS = ("adaptive", "independent", "tree")
_ROUNDING_MARGIN = 1.0 + 2.0**-16  # covers the rounding of score times weight


@dataclass(frozen=True)
class MeasurementPlan:
    """Mechanisms of a fit, as a function of one noise multiplier.

    A unit is a record or a group of records. Its weights in a table form a vector w of non-negative
    numbers of sum at most 1; for a record, w is a single 1.

    - Removing the unit changes each table by w, whose L2 norm is at most 1. Tables of overlapping
      columns change together: J of them, as one vector, change by at most sqrt(J), which a record
      attains. Replacing the unit changes a table by v - w, and |v - w|^2 = |v|^2 + |w|^2 - 2 <v, w>
      <= 2. The L2 norm is then at most sqrt(2), and sqrt(2 J) for J tables. Under zero_out the null
      record has weight 0, which is the same as removal.
    - A score is a weight of at most 1 times |table - expected|_1, minus a public number. The
      expected table depends on earlier releases only. The score thus changes by at most the L1 norm
      of the table's change: 1 for removal, 2 for replacement. Scores are not monotonic in the
      records, so the exponential mechanism keeps its factor of 2.

    The cells of a table are public (Domain) or computed from noisy tables (bins), and all later
    steps are post-processing.
    """

    n_tables: int  # fine tables: one for each column
    n_choices: int  # chosen marginals, each by its own exponential mechanism
    at_once: bool  # whether the marginals are released together, after the last choice
    relation: str
    # Noise multiplier of a single Gaussian mechanism that costs as much as the whole plan under
    # zero-concentrated privacy.
    noise: float = 1.0
    n_fixed: int = 0  # marginals that are measured without a choice

    # Shares of the budget, in units of zero-concentrated privacy: fine tables, choices, and the
    # other marginals.
    shares: ClassVar[tuple[float, float, float]] = 0.35, 0.05, 0.60

    def calibrated(self: Plan, epsilon: float, delta: float) -> Plan:
        """Return the plan of least noise that is (epsilon, delta)-differentially private."""

        def event(noise: float) -> Event:
            return replace(self, noise=noise).event

        noise = calibrate_noise_multiplier(event, epsilon, delta, self.relation)
        return replace(self, noise=noise)

    @property
    def _budget_shares(self) -> tuple[float, float, float]:
        fine, choices, marginals = self.shares
        if self.n_choices:
            return self.shares
        return (fine, 0.0, choices + marginals) if self.n_fixed else (1.0, 0.0, 0.0)

    @property
    def n_marginals(self) -> int:
        """Number of tables that are measured after the fine tables, at most."""
        return self.n_choices + self.n_fixed

    @property
    def _l1_change(self) -> float:
        """Return the L1 change of a table, which is also the square of its L2 change."""
        return 2.0 if self.relation == "replace_one" else 1.0

    @property
    def _score_change(self) -> float:
        """Return the largest change of a score."""
        return self._l1_change

    @property
    def _marginal_change(self) -> float:
        """Return the L2 change of one chosen marginal."""
        return math.sqrt(self._l1_change)

    @property
    def fine_mechanism(self) -> Gaussian:
        """Return the mechanism that releases the fine tables as one vector."""
        multiplier = self.noise / math.sqrt(self._budget_shares[0])
        return Gaussian(multiplier, math.sqrt(self._l1_change * self.n_tables))

    @property
    def choice_mechanism(self) -> Exponential:
        """Return the mechanism that chooses one marginal."""
        # A choice costs epsilon^2 / 8 in zero-concentrated privacy, a Gaussian 1 / (2 noise^2).
        epsilon = 2 * math.sqrt(self._budget_shares[1] / self.n_choices) / self.noise
        return Exponential(epsilon, self._score_change * _ROUNDING_MARGIN)

    @property
    def marginal_mechanism(self) -> Gaussian:
        """Return the mechanism of the marginals: as one vector, or one at a time."""
        n_joint = self.n_marginals if self.at_once else 1
        multiplier = self.noise / math.sqrt(self._budget_shares[2] * n_joint / self.n_marginals)
        return Gaussian(multiplier, self._marginal_change * math.sqrt(n_joint))

    @property
    def single_marginal_mechanism(self) -> Gaussian:
        """Return the mechanism that would release one chosen marginal alone, at the same cost."""
        return replace(self, at_once=False).marginal_mechanism

    @property
    def arithmetic(self) -> str:
        """Return the weakest arithmetic of the mechanisms' noise."""
        return weakest_arithmetic((Gaussian.arithmetic, Exponential.arithmetic))

    @property
    def event(self) -> Event:
        """Return the composition of all releases."""
        if not self.n_marginals:
            return self.fine_mechanism.event
        releases = 1 if self.at_once else self.n_marginals
        choices = (
            (RepeatedEvent(self.choice_mechanism.event, self.n_choices),) if self.n_choices else ()
        )
        marginals = RepeatedEvent(self.marginal_mechanism.event, releases)
        return ComposedEvent((self.fine_mechanism.event, *choices, marginals))


def noise_std(mechanism: Gaussian) -> float:
    """Return the standard deviation of the noise of each cell."""
    return mechanism.noise_multiplier * mechanism.sensitivity


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
