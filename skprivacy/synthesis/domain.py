"""Public cells of a table's columns: encoding of records as cell codes, and decoding.

:class:`Domain` holds the cells of all columns. A column has a cell for each category
(:class:`ValueCells`) or cells of a public :class:`Grid` (:class:`NumberCells`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._validation import is_number, is_whole
from ..accounting.event import numbers
from ..preprocessing import BoundedColumn, CategoricalColumn
from ..preprocessing.cell_values import category_codes, column_numbers, mask_unreadable

_UNKNOWN_CODE = -1


@dataclass(frozen=True)
class ValueCells:
    """One cell for each category; missing values and unknown categories have the code -1."""

    fact: CategoricalColumn

    @property
    def size(self) -> int:
        return len(self.fact.values)

    def codes(self, column: pd.Series) -> NDArray[np.int64]:
        return category_codes(mask_unreadable(column), self.fact.values).astype(np.int64)

    def values(self, codes: NDArray[np.int64]) -> NDArray[Any]:
        return np.array([*self.fact.values, np.nan], dtype=object)[codes]


@dataclass(frozen=True)
class NumberCells:
    """Cells between increasing left edges; an atom is a cell of one value."""

    left: NDArray[np.float64]
    right: NDArray[np.float64]  # for integers: largest value plus 1
    whole: bool

    @property
    def size(self) -> int:
        return len(self.left)

    def codes(self, column: pd.Series) -> NDArray[np.int64]:
        numbers = column_numbers(mask_unreadable(column))
        codes = np.searchsorted(self.left, numbers, side="right") - 1
        return np.where(np.isnan(numbers), _UNKNOWN_CODE, np.clip(codes, 0, self.size - 1))

    def values(self, codes: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[Any]:
        left, right = self.left[codes], self.right[codes]
        numbers = left + shares * (right - left)
        if self.whole:
            return np.minimum(np.floor(numbers), right - 1)
        return np.minimum(numbers, np.nextafter(right, left))  # the right edge is the next cell's


Cells = NumberCells | ValueCells


def make_number_cells(fact: BoundedColumn, grid: Grid, whole: bool) -> NumberCells:
    """Return the cells of a numeric column, from public facts; ``whole`` means integers."""
    atoms = np.array([a for a in grid.atoms if fact.lower <= a <= fact.upper])
    first, last = math.ceil(fact.lower), math.floor(fact.upper)
    if whole and first <= last:
        starts = np.ceil(grid._edges(fact)[:-1])
        if grid.step is None and last - first < grid.cells:
            starts = np.arange(first, last + 1, dtype=float)
        atoms = atoms[atoms == np.floor(atoms)]
        left = np.unique(np.concatenate([[first], starts, atoms, atoms + 1]))
        left = left[left <= last]
        return NumberCells(left, np.append(left[1:], last + 1.0), True)
    starts = grid._edges(fact)[:-1]
    left = np.unique(np.concatenate([[fact.lower], starts, atoms, np.nextafter(atoms, np.inf)]))
    left = left[left <= fact.upper]
    right = np.append(left[1:], fact.upper)
    return NumberCells(left, np.where(np.isin(left, atoms), left, right), False)


@dataclass(frozen=True)
class ColumnCells:
    """Name, cells and type of a column, and whether values may be missing."""

    name: str
    cells: Cells
    dtype: Any  # None: inferred from the values
    may_be_missing: bool

    @property
    def size(self) -> int:
        """Number of cells. The last one holds missing values, if these may occur."""
        return self.cells.size + self.may_be_missing

    @property
    def ordered(self) -> bool:
        """Whether neighbouring cells hold neighbouring values."""
        return isinstance(self.cells, NumberCells)

    def draw_values(self, codes: NDArray[np.int64], random: np.random.RandomState) -> NDArray[Any]:
        """Return a number in each cell, NaN if missing; or a category's code, -1 if missing."""
        missing = codes == self.cells.size
        known = np.minimum(codes, self.cells.size - 1)
        shares = random.uniform(size=len(codes))
        if isinstance(self.cells, ValueCells):
            return np.where(missing, _UNKNOWN_CODE, known)
        return np.where(missing, np.nan, self.cells.values(known, shares))

    def to_series(self, values: NDArray[Any]) -> pd.Series:
        """Return numbers, or codes of categories, as values of the column's type."""
        if isinstance(self.cells, ValueCells):
            if isinstance(self.dtype, pd.CategoricalDtype):
                return pd.Series(
                    pd.Categorical.from_codes(values, dtype=self.dtype), name=self.name
                )
            values = self.cells.values(values)
        column = pd.Series(values, name=self.name)
        return _cast_column(column.infer_objects() if self.dtype is None else column, self.dtype)


def _cast_column(column: pd.Series, dtype: Any) -> pd.Series:
    """Return the column as the given type, or unchanged if its values do not fit it."""
    if dtype is None:
        return column
    if pd.api.types.is_integer_dtype(dtype):  # numpy would wrap larger values silently
        ends = np.iinfo(getattr(dtype, "numpy_dtype", dtype))
        column = column.clip(ends.min, ends.max)
    try:
        return column.astype(dtype)
    except (TypeError, ValueError, NotImplementedError):  # such as a missing value among integers
        return column.infer_objects()


@dataclass(frozen=True)
class Domain:
    """Cells of all columns, from public facts.

    Whether a record is used, and its cells, depend on this record only. It is left out if all its
    values are missing, or one in a column declared complete.
    """

    columns: tuple[ColumnCells, ...]

    @classmethod
    def from_facts(
        cls,
        facts: Mapping[str, BoundedColumn | CategoricalColumn],
        grids: Mapping[str, Grid],
        missing: Collection[str],
        types: Mapping[str, Any],
    ) -> Domain:
        """Return the domain of columns; ``grids`` and ``types`` name only some of them."""
        return cls(
            tuple(
                ColumnCells(
                    name, _cells_of_column(fact, grids.get(name), dtype), dtype, name in missing
                )
                for name, fact, dtype in ((n, f, types.get(n)) for n, f in facts.items())
            )
        )

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def sizes(self) -> list[int]:
        return [column.size for column in self.columns]

    def encode(self, series: list[pd.Series]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Return codes of shape (n_kept, n_columns), and a mask of the records that are kept."""
        codes = self.cell_codes(series)
        sizes = np.array([column.cells.size for column in self.columns])
        missing = codes == sizes
        kept = ~missing.all(axis=1) & ~(codes >= self.sizes).any(axis=1)
        return codes if kept.all() else codes[kept], kept

    def cell_codes(self, series: list[pd.Series]) -> NDArray[np.int32]:
        """Return codes of shape (n, n_columns); missing and unknown values come after the cells."""
        codes = np.empty((len(series[0]), len(self.columns)), np.int32)  # at most half of X
        for j, (column, values) in enumerate(zip(self.columns, series, strict=True)):
            found = column.cells.codes(values)
            codes[:, j] = np.where(found < 0, column.cells.size, found)
        return codes

    def decode(self, codes: NDArray[np.int64], random: np.random.RandomState) -> pd.DataFrame:
        """Return a record for each row of codes."""
        return self.to_frame(self.draw_values(codes, random))

    def draw_values(
        self, codes: NDArray[np.int64], random: np.random.RandomState
    ) -> dict[str, NDArray[Any]]:
        """Return the values of each column, as :meth:`ColumnCells.draw_values` does."""
        return {c.name: c.draw_values(codes[:, j], random) for j, c in enumerate(self.columns)}

    def to_frame(self, values: Mapping[str, NDArray[Any]]) -> pd.DataFrame:
        """Return the records with these values, in the types of the columns."""
        return pd.concat([c.to_series(values[c.name]) for c in self.columns], axis=1)


def _cells_of_column(
    fact: BoundedColumn | CategoricalColumn, grid: Grid | None, dtype: Any
) -> Cells:
    if isinstance(fact, CategoricalColumn):
        return ValueCells(fact)
    whole = dtype is not None and pd.api.types.is_integer_dtype(dtype)
    return make_number_cells(fact, Grid() if grid is None else grid, whole)


_DEFAULT_CELLS = 100
_MAX_CELLS = 10_000


@dataclass(frozen=True)
class Grid:
    """Public grid of cells in which a synthesizer counts the values of a numeric column.

    Choose it from a codebook, never from the data. A fine grid costs little accuracy: its cells are
    joined to bins by noisy counts.

    Parameters
    ----------
    step : float, default=None
        Width of a cell, in the units of the column. ``None`` makes ``cells`` cells that are equally
        wide on the column's scale.
    cells : int, default=100
        Number of cells if ``step`` is None. A column of integers with fewer values has a cell for
        each value.
    atoms : sequence of float, default=()
        Special values, each with a separate cell, such as 0 or a top code ("this much or more").

    See Also
    --------
    skprivacy.synthesis.MarginalSynthesizer : Takes a grid for each numeric column.

    Examples
    --------
    >>> from skprivacy.synthesis import Grid
    >>> Grid(step=10, atoms=[0])
    Grid(step=10, cells=100, atoms=(0.0,))
    """

    step: float | None = None
    cells: int = _DEFAULT_CELLS
    atoms: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        step, cells = self.step, self.cells
        if step is not None and not (is_number(step) and 0 < step < math.inf):
            raise ValueError(f"Grid: step={step!r} must be a finite number above 0, or None.")
        if not (is_whole(cells) and 1 <= cells <= _MAX_CELLS):
            raise ValueError(f"Grid: cells={cells!r} must be an integer from 1 to {_MAX_CELLS}.")
        atoms = numbers("atoms", self.atoms)
        if not all(map(math.isfinite, atoms)):
            raise ValueError(f"Grid: atoms={self.atoms!r} must be finite numbers.")
        object.__setattr__(self, "atoms", tuple(sorted(set(atoms))))

    def _edges(self, fact: BoundedColumn) -> NDArray[np.float64]:
        """Return the increasing edges of a column's cells, ignoring the atoms."""
        if self.step is None:
            return np.unique(fact.from_unit(np.linspace(0.0, 1.0, self.cells + 1)))
        count = (fact.upper - fact.lower) / self.step
        if count > _MAX_CELLS:
            raise ValueError(
                f"Grid: step={self.step!r} makes {count:.0f} cells of the range from "
                f"{fact.lower!r} to {fact.upper!r}; expected at most {_MAX_CELLS}. Use a larger "
                "step, or narrower bounds."
            )
        starts = fact.lower + self.step * np.arange(math.ceil(count - 1e-9))
        return np.unique(np.append(starts, fact.upper))
