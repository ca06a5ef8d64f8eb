"""Constraints on the values of several columns: equal, in order, or adding up."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from ..._validation import flag
from ..columns import BoundedColumn, CategoricalColumn
from .constraint import (
    Bins,
    Constraint,
    Facts,
    Mask,
    Names,
    Values,
    check_names,
    outer_table,
    translate_codes,
)


@dataclass(frozen=True)
class _ListedColumns(Constraint):
    """A constraint on a list of columns."""

    columns: Names

    def __post_init__(self) -> None:
        names = check_names(type(self).__name__, "columns", self.columns, 2)
        object.__setattr__(self, "columns", names)

    @property
    def names(self) -> Names:
        return self.columns


@dataclass(frozen=True)
class EqualColumns(_ListedColumns):
    """Columns with equal values in each record: all numeric, or all categorical.

    Parameters
    ----------
    columns : sequence of str
        Names of at least two columns.

    Examples
    --------
    >>> from skprivacy.preprocessing import EqualColumns
    >>> EqualColumns(["billed", "paid"])
    EqualColumns(columns=('billed', 'paid'))
    """

    kind: ClassVar[str] = "equal"

    def check(self, facts: Facts) -> None:
        self._require(facts, self.columns, BoundedColumn, CategoricalColumn)
        self._require(facts, self.columns, type(facts[self.columns[0]]))

    def _links(self) -> list[Names]:
        return [(self.columns[0], other) for other in self.columns[1:]]

    def holds(self, values: Values, facts: Facts, slack: float) -> Mask:
        first = values[self.columns[0]]
        good = np.ones(len(first), bool)
        for name in self.columns[1:]:
            other = values[name]
            if isinstance(facts[name], CategoricalColumn):
                codes = np.append(translate_codes(facts[self.columns[0]], facts[name]), -1)
                good &= (codes[first] == other) | (first < 0) | (other < 0)
            else:
                far = np.abs(first - other) > slack * np.maximum(np.abs(first), np.abs(other))
                good &= ~far
        return good

    def allowed(self, link: Names, bins: Bins, facts: Facts) -> Mask:
        one, other = (bins[name] for name in link)
        missing = outer_table([one.missing, other.missing], np.logical_or)
        if isinstance(facts[link[0]], CategoricalColumn):
            codes = translate_codes(facts[link[0]], facts[link[1]])
            shared = one.categories[:, codes >= 0].astype(int)
            return (shared @ other.categories[:, codes[codes >= 0]].T > 0) | missing
        low = outer_table([one.low, other.low], np.maximum)
        return (low <= outer_table([one.high, other.high], np.minimum)) | missing

    def _equations(self) -> list[dict[str, float]]:
        return [{first: 1.0, other: -1.0} for first, other in self._links()]


@dataclass(frozen=True)
class OrderedColumns(_ListedColumns):
    """Numeric columns whose values do not decrease from column to column.

    Parameters
    ----------
    columns : sequence of str
        Names of at least two columns, such as ``["amount", "price"]`` for amount <= price.
    strict : bool, default=False
        Whether each value must be larger than the one before.

    Examples
    --------
    >>> from skprivacy.preprocessing import OrderedColumns
    >>> OrderedColumns(["amount", "price"])
    OrderedColumns(columns=('amount', 'price'), strict=False)
    """

    kind: ClassVar[str] = "ordered"

    strict: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        flag("strict", self.strict)

    def check(self, facts: Facts) -> None:
        self._require(facts, self.columns, BoundedColumn)

    def _links(self) -> list[Names]:
        return list(pairwise(self.columns))

    def holds(self, values: Values, facts: Facts, slack: float) -> Mask:
        good = np.ones(len(values[self.columns[0]]), bool)
        for low, high in pairwise(self.columns):
            one, other = values[low], values[high]
            good &= ~(one >= other if self.strict else one > other)
        return good

    def allowed(self, link: Names, bins: Bins, facts: Facts) -> Mask:
        one, other = (bins[name] for name in link)
        compare = np.less if self.strict else np.less_equal
        possible = outer_table([one.low, other.high], compare)
        return possible | outer_table([one.missing, other.missing], np.logical_or)


@dataclass(frozen=True)
class SummedColumns(Constraint):
    """Numeric columns that add up to another one, up to the rounding of floating-point numbers.

    Parameters
    ----------
    parts : sequence of str
        Names of at least two columns.
    total : str
        Name of the column of their sum.

    Examples
    --------
    >>> from skprivacy.preprocessing import SummedColumns
    >>> SummedColumns(["wages", "rents"], "income")
    SummedColumns(parts=('wages', 'rents'), total='income')
    """

    kind: ClassVar[str] = "sum"

    parts: tuple[str, ...]
    total: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", check_names("SummedColumns", "parts", self.parts, 2))
        check_names("SummedColumns", "parts and total", self.names, 3)

    @property
    def names(self) -> Names:
        return (*self.parts, self.total)

    def check(self, facts: Facts) -> None:
        self._require(facts, self.names, BoundedColumn)

    def holds(self, values: Values, facts: Facts, slack: float) -> Mask:
        columns = np.array([values[name] for name in self.names])
        error = np.abs(columns[:-1].sum(axis=0) - columns[-1])
        return ~(error > slack * np.abs(columns).max(axis=0))

    def allowed(self, link: Names, bins: Bins, facts: Facts) -> Mask:
        contents = [bins[name] for name in self.names]
        below = outer_table([*(b.low for b in contents[:-1]), -contents[-1].high], np.add) <= 0
        above = outer_table([*(b.high for b in contents[:-1]), -contents[-1].low], np.add) >= 0
        return (below & above) | outer_table([b.missing for b in contents], np.logical_or)

    def _equations(self) -> list[dict[str, float]]:
        return [{**dict.fromkeys(self.parts, 1.0), self.total: -1.0}]
