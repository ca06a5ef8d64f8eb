"""Network inputs and outputs for the cells of a table, and noisy moments that start a generator.

:class:`Features` maps cell codes to rows of numbers and back. :class:`Moments` sums second moments
of rows and labels, from whose noisy values a generator gets its means and covariance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..mechanisms.base import exact_product, quantize, row_slices
from .domain import ColumnCells, Domain
from .marginal_tables import project_to_counts

_IndexedColumn = tuple[ColumnCells, int]


@dataclass(frozen=True)
class Features:
    """Columns of a table, except its label, as rows of numbers for a network.

    A numeric column becomes the relative index of its grid cell, in [0, 1]. If values may be
    missing, a one-hot pair for missingness follows. A categorical column is one-hot encoded. The
    row of a record depends on this record and on public facts only.
    """

    domain: Domain
    label: str | None

    @property
    def columns(self) -> list[_IndexedColumn]:
        """Columns except the label, with their indices in the domain."""
        return [(c, j) for j, c in enumerate(self.domain.columns) if c.name != self.label]

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of entries of each part of a row: 1 for a number, more for a one-hot part."""
        parts = [_column_widths(column) for column, _ in self.columns]
        return tuple(width for part in parts for width in part)

    @property
    def n_classes(self) -> int:
        """Number of cells of the label; 1 without a label."""
        return self.domain.columns[self._label_index].size if self.label is not None else 1

    @property
    def _label_index(self) -> int:
        return self.domain.names.index(str(self.label))

    def rows(self, codes: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return one row of numbers for each coded record, of shape (n, sum of widths)."""
        rows = np.empty((len(codes), sum(self.widths)), np.float32)
        start = 0
        for column, j in self.columns:
            width = sum(_column_widths(column))
            rows[:, start : start + width] = _codes_to_numbers(column, codes[:, j])
            start += width
        return rows

    def labels(self, codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the cell of each record's label, or zeros without a label."""
        if self.label is None:
            return np.zeros(len(codes), np.int64)
        return codes[:, self._label_index].astype(np.int64)

    def codes(self, rows: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the codes of generated rows, of shape (n, n_columns)."""
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
_INWARD_FACTOR = 1.0 - 2.0**-20  # outweighs the rounding of rows to single precision
_PRODUCT_UNIT = 2.0**-32  # products of quantised numbers are multiples of it
_MAX_COVARIANCE_WIDTH = 2000  # wider rows would have too many products
_PRIOR_WEIGHT = 5.0  # of the overall mean in a label's mean, in noise standard deviations


@dataclass(frozen=True)
class GeneratorStart:
    """Normal distribution of rows for each label, with a common covariance."""

    rates: Floats  # share of each label, (n_classes,)
    means: Floats  # in [0, 1], (n_classes, n_features)
    factor: Floats  # F with covariance F'F, (n_noise, n_features)


@dataclass(frozen=True)
class Moments:
    """Sum over records of v v', where v is the one-hot label followed by the scaled row.

    Numbers in [0, 1] are centred at 1/2, and rows are divided by their greatest possible length
    (``radius``), so that no row is longer than 1. For wide rows, only products with the label are
    summed.

    A record with row t adds 1 to the square of its label, t to the products with its label, and the
    products of t. Each product is released once, so the squares of these numbers add up to at most
    1 + |t|^2 + |t|^4 <= 3. Records of a group are scaled by the roots of their shares, so a group
    adds a convex combination. Sums are integers in units of 2**-32, hence exact, and are rounded
    once at the end.
    """

    n_classes: int
    widths: tuple[int, ...]  # of the parts of a row: 1 for a number, more for a one-hot part

    sensitivity = math.sqrt(3.0)

    @property
    def width(self) -> int:
        """Number of entries of a row."""
        return sum(self.widths)

    @property
    def radius(self) -> float:
        """Greatest length of a centred row."""
        return math.sqrt(sum(0.25 if width == 1 else 1.0 for width in self.widths))

    @property
    def _centre(self) -> Floats:
        return np.array([0.5 if w == 1 else 0.0 for w in self.widths for _ in range(w)])

    @property
    def _shape(self) -> tuple[int, int]:
        """Shape of the part of v v' that is summed."""
        size = self.n_classes + self.width
        return (size if self.width <= _MAX_COVARIANCE_WIDTH else self.n_classes), size

    def sums(
        self, rows: NDArray[np.float32], labels: NDArray[np.int64], shares: Floats | None
    ) -> Floats:
        """Return the sum as a vector that holds each product once."""
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
        """Return the label and the row of each record, each of length 1 at most."""
        short = (rows.astype(np.float64) - self._centre) / self.radius
        norms = np.linalg.norm(short, axis=1, keepdims=True)
        short *= _INWARD_FACTOR / np.maximum(norms, 1.0)
        return np.concatenate([np.eye(self.n_classes)[labels], short], axis=1)

    def start(self, noisy: Floats, std: float, n_noise: int) -> GeneratorStart:
        """Return the start of a generator from noisy :meth:`sums` with noise ``std``."""
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
    """Return a root of the covariance, restricted to directions above the noise."""
    variances, directions = np.linalg.eigh(covariance)
    variances, directions = variances[::-1][:n_noise], directions[:, ::-1][:, :n_noise]
    kept = np.where(variances > noise, variances, 0.0)
    factor = np.zeros((n_noise, len(covariance)))
    factor[: len(kept)] = np.sqrt(kept)[:, None] * directions.T
    return factor
