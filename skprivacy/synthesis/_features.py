"""Cells of a table as numbers that a network understands, and back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._domain import Column, Domain

__all__ = ["Features"]

_Part = tuple[Column, int]


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
    def columns(self) -> list[_Part]:
        """The columns but the label, and the place of each in the domain."""
        return [(c, j) for j, c in enumerate(self.domain.columns) if c.name != self.label]

    @property
    def widths(self) -> tuple[int, ...]:
        """How many numbers each part of a row has: 1, or as many as there are to choose from."""
        parts = [_widths(column) for column, _ in self.columns]
        return tuple(width for part in parts for width in part)

    @property
    def n_classes(self) -> int:
        """The cells of the label; 1 without one."""
        return self.domain.columns[self._place].size if self.label is not None else 1

    @property
    def _place(self) -> int:
        return self.domain.names.index(str(self.label))

    def rows(self, codes: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return a row for each record of codes, of shape (n, sum of widths)."""
        rows = np.empty((len(codes), sum(self.widths)), np.float32)
        start = 0
        for column, j in self.columns:
            width = sum(_widths(column))
            rows[:, start : start + width] = _row(column, codes[:, j])
            start += width
        return rows

    def labels(self, codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the cell of each record's label, or 0."""
        if self.label is None:
            return np.zeros(len(codes), np.int64)
        return codes[:, self._place].astype(np.int64)

    def codes(self, rows: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the codes of made rows, of shape (n, n_columns)."""
        codes = np.empty((len(rows), len(self.domain.columns)), np.int64)
        if self.label is not None:
            codes[:, self._place] = labels
        start = 0
        for column, j in self.columns:
            width = sum(_widths(column))
            codes[:, j] = _codes(column, rows[:, start : start + width])
            start += width
        return codes


def _widths(column: Column) -> tuple[int, ...]:
    if not column.ordered:
        return (column.size,)
    return (1, 2) if column.may_be_missing else (1,)


def _row(column: Column, codes: NDArray[np.int32]) -> NDArray[np.float32]:
    if not column.ordered:
        return np.eye(column.size, dtype=np.float32)[codes]
    missing = codes == column.cells.size
    place = np.where(missing, 0.5, codes / max(column.cells.size - 1, 1))[:, None]
    if not column.may_be_missing:
        return place.astype(np.float32)
    return np.concatenate([place, np.eye(2)[missing.astype(int)]], axis=1, dtype=np.float32)


def _codes(column: Column, numbers: NDArray[np.float32]) -> NDArray[np.int64]:
    if not column.ordered:
        return numbers.argmax(axis=1)
    last = column.cells.size - 1
    codes = np.clip(np.rint(numbers[:, 0].astype(np.float64) * last), 0, last).astype(np.int64)
    if column.may_be_missing:
        codes[numbers[:, 2] > numbers[:, 1]] = column.cells.size
    return codes
