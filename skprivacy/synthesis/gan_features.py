"""Cells of a table as numbers that a network understands, and back.

Second moments of rows with their labels: where a generator starts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..mechanisms.bounds import exact_product, quantize, row_slices
from .domain import ColumnCells, Domain
from .marginal_tables import project_to_counts

__all__ = [
    "Features",
    "GeneratorStart",
    "Moments",
]

_IndexedColumn = tuple[ColumnCells, int]


@dataclass(frozen=True)
class Features:
    """The columns of a table but its label, as a network sees them.

    A numeric column is its place among the cells of its grid, in [0, 1]; if values may be missing,
    whether one is comes beside it. Any other is a number for each cell, one of which is 1.

    Parameters
    ----------
    domain : Domain
    label : str or None

    Notes
    -----
    **Guarantees.** What a record becomes depends on that record and on public facts alone.
    """

    domain: Domain
    label: str | None

    @property
    def columns(self) -> list[_IndexedColumn]:
        """The columns but the label, and the place of each in the domain."""
        return [(c, j) for j, c in enumerate(self.domain.columns) if c.name != self.label]

    @property
    def widths(self) -> tuple[int, ...]:
        """How many numbers each part of a row has: 1, or as many as there are to choose from."""
        parts = [_column_widths(column) for column, _ in self.columns]
        return tuple(width for part in parts for width in part)

    @property
    def n_classes(self) -> int:
        """The cells of the label; 1 without one."""
        return self.domain.columns[self._label_index].size if self.label is not None else 1

    @property
    def _label_index(self) -> int:
        return self.domain.names.index(str(self.label))

    def rows(self, codes: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return a row for each record of codes, of shape (n, sum of widths)."""
        rows = np.empty((len(codes), sum(self.widths)), np.float32)
        start = 0
        for column, j in self.columns:
            width = sum(_column_widths(column))
            rows[:, start : start + width] = _codes_to_numbers(column, codes[:, j])
            start += width
        return rows

    def labels(self, codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the cell of each record's label, or 0."""
        if self.label is None:
            return np.zeros(len(codes), np.int64)
        return codes[:, self._label_index].astype(np.int64)

    def codes(self, rows: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the codes of made rows, of shape (n, n_columns)."""
        codes = np.empty((len(rows), len(self.domain.columns)), np.int64)
        if self.label is not None:
            codes[:, self._label_index] = labels
        start = 0
        for column, j in self.columns:
            width = sum(_column_widths(column))
            codes[:, j] = _numbers_to_codes(column, rows[:, start : start + width])
            start += width
        return codes


def _column_widths(column: ColumnCells) -> tuple[int, ...]:
    if not column.ordered:
        return (column.size,)
    return (1, 2) if column.may_be_missing else (1,)


def _codes_to_numbers(column: ColumnCells, codes: NDArray[np.int32]) -> NDArray[np.float32]:
    if not column.ordered:
        return np.eye(column.size, dtype=np.float32)[codes]
    missing = codes == column.cells.size
    place = np.where(missing, 0.5, codes / max(column.cells.size - 1, 1))[:, None]
    if not column.may_be_missing:
        return place.astype(np.float32)
    return np.concatenate([place, np.eye(2)[missing.astype(int)]], axis=1, dtype=np.float32)


def _numbers_to_codes(column: ColumnCells, numbers: NDArray[np.float32]) -> NDArray[np.int64]:
    if not column.ordered:
        return numbers.argmax(axis=1)
    last = column.cells.size - 1
    codes = np.clip(np.rint(numbers[:, 0].astype(np.float64) * last), 0, last).astype(np.int64)
    if column.may_be_missing:
        codes[numbers[:, 2] > numbers[:, 1]] = column.cells.size
    return codes


Floats = NDArray[np.float64]
_INWARD_FACTOR = 1.0 - 2.0**-20  # outweighs the rounding of rows, which are of single precision
_PRODUCT_UNIT = 2.0**-32  # of which products of quantised numbers are multiples
_MAX_COVARIANCE_WIDTH = 2000  # rows of more numbers have too many products
_PRIOR_WEIGHT = 5.0  # deviations of the noise that a label's mean takes from the mean of all


@dataclass(frozen=True)
class GeneratorStart:
    """A normal distribution for each label, all of one covariance.

    Attributes
    ----------
    rates : ndarray of shape (n_classes,)
        Share of each label.
    means : ndarray of shape (n_classes, n_features)
        In [0, 1].
    factor : ndarray of shape (n_noise, n_features)
        Independent standard normal numbers times it have the covariance.
    """

    rates: Floats
    means: Floats
    factor: Floats


@dataclass(frozen=True)
class Moments:
    """The sum over records of v v', where v is a record's label, as a unit vector, and its row.

    Numbers are counted from 1/2, so that none is longer than that, and a choice has length 1: rows
    are divided by the greatest length that they may have. Of wide rows, products with the label
    alone are summed up.

    Parameters
    ----------
    n_classes : int
        Labels.
    widths : tuple of int
        Of the parts of a row: 1 for a number in [0, 1], more for the categories of a column.

    Notes
    -----
    **Guarantees.** A record with row t adds 1 to the square of its label, t beside it, and the
    products of t, each of which is released once: numbers of squares that add up to at most
    1 + |t|^2 + |t|^4 <= 3. Records of a group count with the roots of their shares, so that what
    the group adds is a convex combination of that. Sums are counted in whole units, so that they
    are exact, and rounded once at the end.
    """

    n_classes: int
    widths: tuple[int, ...]

    sensitivity = math.sqrt(3.0)

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return sum(self.widths)

    @property
    def radius(self) -> float:
        """The greatest length of a row."""
        return math.sqrt(sum(0.25 if width == 1 else 1.0 for width in self.widths))

    @property
    def _centre(self) -> Floats:
        return np.array([0.5 if w == 1 else 0.0 for w in self.widths for _ in range(w)])

    @property
    def _shape(self) -> tuple[int, int]:
        """How many of the numbers of v are multiplied by how many: by all."""
        size = self.n_classes + self.width
        return (size if self.width <= _MAX_COVARIANCE_WIDTH else self.n_classes), size

    def sums(
        self, rows: NDArray[np.float32], labels: NDArray[np.int64], shares: Floats | None
    ) -> Floats:
        """Return the sum, each product once, flat."""
        n, size = self._shape
        units = np.zeros((n, size), dtype=np.int64)
        for part in row_slices(len(rows)):
            vectors = self._vectors(rows[part], labels[part])
            if shares is not None:
                vectors *= np.sqrt(shares[part])[:, None]
            vectors = quantize(vectors)
            units += (exact_product(vectors[:, :n], vectors) / _PRODUCT_UNIT).astype(np.int64)
        return units[np.triu_indices(n, m=size)].astype(np.float64) * _PRODUCT_UNIT

    def _vectors(self, rows: NDArray[np.float32], labels: NDArray[np.int64]) -> Floats:
        """Return the label and the row of each record, of length 1 each at most."""
        short = (rows.astype(np.float64) - self._centre) / self.radius
        norms = np.linalg.norm(short, axis=1, keepdims=True)
        short *= _INWARD_FACTOR / np.maximum(norms, 1.0)
        return np.concatenate([np.eye(self.n_classes)[labels], short], axis=1)

    def start(self, noisy: Floats, std: float, n_noise: int) -> GeneratorStart:
        """Return what noisy sums say of rows.

        Parameters
        ----------
        noisy : ndarray
            As :meth:`sums` returns them.
        std : float
            Deviation of the noise of each.
        n_noise : int
            Directions that the covariance may have.
        """
        k, (n, size) = self.n_classes, self._shape
        upper = np.zeros((n, size))
        upper[np.triu_indices(n, m=size)] = noisy
        total = max(float(np.diag(upper)[:k].sum()), 1.0)
        counts = project_to_counts(np.diag(upper)[:k], total)
        sums, rates = upper[:k, k:] * self.radius, counts / counts.sum()
        of_all = sums.sum(axis=0) / total
        rare = _PRIOR_WEIGHT * std
        means = (sums + rare * of_all) / (counts[:, None] + rare)
        known = (means + self._centre).clip(0.0, 1.0)
        if n == k:
            return GeneratorStart(rates, known, np.zeros((n_noise, self.width)))
        square = (upper + np.triu(upper, 1).T)[k:, k:] * self.radius**2 / total
        covariance = square - (means * rates[:, None]).T @ means
        spread = std * math.sqrt(size) * self.radius**2 / total
        return GeneratorStart(rates, known, _covariance_factor(covariance, 2 * spread, n_noise))


def _covariance_factor(covariance: Floats, noise: float, n_noise: int) -> Floats:
    """Return a root of a covariance, of the directions in which it is more than noise alone."""
    variances, directions = np.linalg.eigh(covariance)
    variances, directions = variances[::-1][:n_noise], directions[:, ::-1][:, :n_noise]
    kept = np.where(variances > noise, variances, 0.0)
    factor = np.zeros((n_noise, len(covariance)))
    factor[: len(kept)] = np.sqrt(kept)[:, None] * directions.T
    return factor
