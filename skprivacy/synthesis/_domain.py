"""The public cells of a table: records as codes, and codes as records."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..preprocessing import Bounded, Categories
from ._cells import Cells, NumberCells, ValueCells, number_cells
from .grid import Grid

__all__ = ["Column", "Domain"]


@dataclass(frozen=True)
class Column:
    """A column: its name, its cells, its type, and whether values may be missing."""

    name: str
    cells: Cells
    dtype: Any  # None: of no special type
    may_be_missing: bool

    @property
    def size(self) -> int:
        """Number of cells; the last is that of missing values, where there may be such."""
        return self.cells.size + self.may_be_missing

    @property
    def ordered(self) -> bool:
        """Whether neighbouring cells are neighbouring values, but for that of missing ones."""
        return isinstance(self.cells, NumberCells)

    def decoded(self, codes: NDArray[np.int64], random: np.random.RandomState) -> pd.Series:
        """Return a value of each cell, of the column's type."""
        missing = codes == self.cells.size
        known = np.minimum(codes, self.cells.size - 1)
        values = self.cells.values(known, random.uniform(size=len(codes)))
        if isinstance(self.dtype, pd.CategoricalDtype) and isinstance(self.cells, ValueCells):
            codes = np.where(missing, -1, codes)
            return pd.Series(pd.Categorical.from_codes(codes, dtype=self.dtype), name=self.name)
        if missing.any():
            values = np.where(missing, np.nan, values)
        column = pd.Series(values, name=self.name)
        return _cast(column.infer_objects() if self.dtype is None else column, self.dtype)


def _cast(column: pd.Series, dtype: Any) -> pd.Series:
    """Return a column of the given type, or as it is if its values are of no such type."""
    if dtype is None:
        return column
    if pd.api.types.is_integer_dtype(dtype):  # numpy would turn larger ones round in silence
        ends = np.iinfo(getattr(dtype, "numpy_dtype", dtype))
        column = column.clip(ends.min, ends.max)
    try:
        return column.astype(dtype)
    except (TypeError, ValueError, NotImplementedError):  # a missing value among integers, a date
        return column.infer_objects()


@dataclass(frozen=True)
class Domain:
    """The cells of every column, from public facts alone.

    Parameters
    ----------
    columns : tuple of Column

    Notes
    -----
    **Guarantees.** Whether a record is kept, and its cells, depend on that record alone.

    **Edge cases.** A record is left out in which a value is missing that may not be, or all are.
    """

    columns: tuple[Column, ...]

    @classmethod
    def of(
        cls,
        facts: Mapping[str, Bounded | Categories],
        grids: Mapping[str, Grid],
        missing: Collection[str],
        types: Mapping[str, Any],
    ) -> Domain:
        """Return the domain of a table.

        Parameters
        ----------
        facts : mapping of str to Bounded or Categories
            In the order of the columns.
        grids : mapping of str to Grid
            Of columns that are not to have the default one.
        missing : collection of str
            Columns in which values may be missing.
        types : mapping of str to dtype
            Of columns whose type is to be kept.
        """
        return cls(
            tuple(
                Column(name, _cells(fact, grids.get(name), dtype), dtype, name in missing)
                for name, fact, dtype in ((n, f, types.get(n)) for n, f in facts.items())
            )
        )

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def sizes(self) -> list[int]:
        return [column.size for column in self.columns]

    def encoded(self, series: list[pd.Series]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Return codes of the records that are kept, and which these are.

        Returns
        -------
        codes : ndarray of shape (n_kept, n_columns)
        kept : ndarray of shape (n_samples,)
        """
        n = len(series[0])
        codes = np.empty((n, len(self.columns)), np.int32)  # half as much as X, at most
        lacking, known = np.zeros(n, bool), np.zeros(n, bool)
        for j, (column, values) in enumerate(zip(self.columns, series, strict=True)):
            found = column.cells.codes(values)
            unknown = found < 0
            known |= ~unknown
            if not column.may_be_missing:
                lacking |= unknown
            codes[:, j] = np.where(unknown, column.cells.size, found)
        kept = known & ~lacking
        return codes if kept.all() else codes[kept], kept

    def decoded(self, codes: NDArray[np.int64], random: np.random.RandomState) -> pd.DataFrame:
        """Return a record for each row of codes."""
        series = [c.decoded(codes[:, j], random) for j, c in enumerate(self.columns)]
        return pd.concat(series, axis=1)


def _cells(fact: Bounded | Categories, grid: Grid | None, dtype: Any) -> Cells:
    if isinstance(fact, Categories):
        return ValueCells(fact)
    whole = dtype is not None and pd.api.types.is_integer_dtype(dtype)
    return number_cells(fact, Grid() if grid is None else grid, whole)
