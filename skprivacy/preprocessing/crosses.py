"""Crosses of two columns: a feature for each pair of their categories or bins.

With a cross, a linear model can learn what a pair of columns shows beyond its single columns, such
as the day of the year from month and day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._validation import sequence
from .cell_values import category_codes, column_numbers
from .columns import BoundedColumn, CategoricalColumn, Column, write_one_hot

CrossedPair = tuple[str, str]

_MAX_CELLS = 1 << 16  # features of a cross


@dataclass(frozen=True)
class Cross:
    """One-hot features of all pairs of two columns' categories or bins; zeros if one is unknown."""

    names: CrossedPair
    facts: tuple[Column, Column]

    @property
    def n_features_out(self) -> int:
        """Number of features: the product of the numbers of cells."""
        return _count_cells(self.facts[0]) * _count_cells(self.facts[1])

    def _names_out(self, names: Mapping[str, str]) -> list[str]:
        """Return names such as ``month_3:day_14``; ``names`` renames the columns."""
        first, second = (
            _name_cells(names[name], fact)
            for name, fact in zip(self.names, self.facts, strict=True)
        )
        return [f"{one}:{other}" for one in first for other in second]

    def write(self, out: NDArray[Any], columns: Mapping[str, pd.Series]) -> None:
        """Write the features into zeros, from the columns by name."""
        first, second = (
            _find_cells(columns[name], fact)
            for name, fact in zip(self.names, self.facts, strict=True)
        )
        known = (first >= 0) & (second >= 0)
        write_one_hot(out, np.where(known, first * _count_cells(self.facts[1]) + second, -1))


def check_crosses(columns: Mapping[str, Column], crosses: Iterable[Any]) -> tuple[CrossedPair, ...]:
    """Return pairs of columns that can be crossed; raise ValueError for others."""
    found: list[CrossedPair] = []
    for pair in sequence("crosses", crosses):
        names = tuple(pair) if isinstance(pair, tuple | list) else ()
        known = len(names) == 2 and all(isinstance(n, str) and n in columns for n in names)
        if not known or names[0] == names[1]:
            raise ValueError(
                f"Schema: crosses: {pair!r} must be a pair of two columns, such as ('month', "
                f"'day'). The columns are {list(columns)}."
            )
        if names in found or names[::-1] in found:
            raise ValueError(f"Schema: crosses: {pair!r} occurs more than once. Remove one.")
        for name in names:
            fact = columns[name]
            if not isinstance(fact, CategoricalColumn) and (
                not isinstance(fact, BoundedColumn) or fact.bins < 2
            ):
                raise ValueError(
                    f"Schema: crosses: column {name!r} is {fact!r}, which has no categories or "
                    "bins. Describe it by CategoricalColumn(values), or BoundedColumn(lower, "
                    "upper, bins=16)."
                )
        n_cells = _count_cells(columns[names[0]]) * _count_cells(columns[names[1]])
        if n_cells > _MAX_CELLS:
            raise ValueError(
                f"Schema: crosses: {pair!r} would have {n_cells} features, expected at most "
                f"{_MAX_CELLS}. Use fewer bins, or another pair."
            )
        found.append((names[0], names[1]))
    return tuple(found)


def _count_cells(fact: Column) -> int:
    if isinstance(fact, CategoricalColumn):
        return len(fact.values)
    assert isinstance(fact, BoundedColumn)  # by check_crosses
    return fact.bins


def _name_cells(name: str, fact: Column) -> list[str]:
    if isinstance(fact, CategoricalColumn):
        return [f"{name}_{value}" for value in fact.values]
    return [f"{name}_bin{i}" for i in range(_count_cells(fact))]


def _find_cells(column: pd.Series, fact: Column) -> NDArray[np.intp]:
    """Return the cell of each value, or -1 if it is missing or unknown."""
    if isinstance(fact, CategoricalColumn):
        codes: NDArray[np.intp] = category_codes(column, fact.values)
        return codes
    assert isinstance(fact, BoundedColumn)  # by check_crosses
    numbers = column_numbers(column)
    cells = np.count_nonzero(fact._thermometer(fact.to_unit(numbers)), axis=1)
    return np.where(np.isnan(numbers), -1, cells)
