"""How a table fits to its schema: what would be clipped, or unknown, for whoever holds the data."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .._output import displayable
from ._column import Column
from ._values import category_codes, category_key, column_numbers
from .columns import Bounded, Categories
from .dates import Dates

__all__ = ["ColumnCheck", "SchemaCheck", "check_table"]

TOLERANCE = 0.01  # share of values that may be lost before a column is pointed out
_FEW = 3  # values that are named
_NARROW = 0.02  # of the range: where nearly all values lie closer, a model cannot tell them apart


@dataclass(frozen=True)
class ColumnCheck:
    """How the values of one column fit to what the schema says of it.

    Attributes
    ----------
    name : str
    n_rows : int
    n_missing : int
        Empty values.
    n_clipped : int
        Numbers and dates beyond their bounds, which become the nearer end.
    n_unknown : int
        Values that are no number, no date or none of the categories, which are lost.
    hints : tuple of str
        What is likely to be wrong, in words.
    """

    name: str
    n_rows: int
    n_missing: int = 0
    n_clipped: int = 0
    n_unknown: int = 0
    hints: tuple[str, ...] = ()

    @property
    def share_lost(self) -> float:
        """Share of the values that are clipped or unknown."""
        return (self.n_clipped + self.n_unknown) / self.n_rows

    @property
    def fits(self) -> bool:
        """Whether at most 1 % of the values are lost."""
        return self.share_lost <= TOLERANCE

    def __str__(self) -> str:
        shares = [
            f"{count / self.n_rows:.2%} {word}"
            for count, word in (
                (self.n_clipped, "clipped"),
                (self.n_unknown, "unknown"),
                (self.n_missing, "missing"),
            )
            if count
        ]
        return "; ".join([f"{self.name}: {', '.join(shares) or 'fits'}", *self.hints])


@dataclass(frozen=True, repr=False)
class SchemaCheck:
    """How a table fits to a schema; returned by :meth:`Schema.check`.

    **It is about private data**: for whoever may see the records, and for no one else.

    Attributes
    ----------
    columns : tuple of ColumnCheck
        One for each column of the schema that the table has; the last is the target's.
    absent : tuple of str
        Columns of the schema that the table lacks.
    undescribed : tuple of str
        Columns of the table that the schema does not describe.
    """

    columns: tuple[ColumnCheck, ...]
    absent: tuple[str, ...] = ()
    undescribed: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether no column is absent, and none loses more than 1 % of its values."""
        return not self.absent and all(column.fits for column in self.columns)

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each column.

        Returns
        -------
        DataFrame
            Columns ``column``, ``clipped``, ``unknown``, ``missing``, ``share_lost`` and ``hints``.
        """
        return pd.DataFrame(
            {
                "column": [column.name for column in self.columns],
                "clipped": [column.n_clipped for column in self.columns],
                "unknown": [column.n_unknown for column in self.columns],
                "missing": [column.n_missing for column in self.columns],
                "share_lost": [column.share_lost for column in self.columns],
                "hints": ["; ".join(column.hints) for column in self.columns],
            }
        )

    def __repr__(self) -> str:
        told = [column for column in self.columns if not column.fits or column.hints]
        lines = [
            "This is about private data: do not publish it, and take bounds and categories from a "
            "codebook, not from here."
        ]
        lines += [f"  {column}" for column in told]
        lines += [f"  {name}: the table has no such column" for name in self.absent]
        if self.undescribed:
            lines.append(f"  not described, so not used: {', '.join(self.undescribed)}")
        lost = sum(not column.fits for column in self.columns) + len(self.absent)
        lines.append(
            f"{lost} of {len(self.columns) + len(self.absent)} columns lose more than "
            f"{TOLERANCE:.0%} of their values."
        )
        return displayable("\n".join(lines))


def check_table(
    table: pd.DataFrame,
    columns: Iterable[tuple[str, Column]],
    target: str | None,
    label: Column | None,
) -> SchemaCheck:
    """Return how a table fits to the columns of a schema and to its target."""
    described = dict(columns)
    if target is not None and target in table and label is not None:
        described = {**described, target: label}
    return SchemaCheck(
        tuple(
            _checked(name, table[name], fact) for name, fact in described.items() if name in table
        ),
        tuple(name for name in described if name not in table),
        tuple(str(name) for name in table if name not in described and name != target),
    )


def _checked(name: str, column: pd.Series, fact: Column) -> ColumnCheck:
    n, missing = len(column), _is_missing(column)
    if isinstance(fact, Categories):
        unknown = (category_codes(column, fact.values) < 0) & ~missing
        values, hints = np.empty(0), _spellings(column[unknown], fact.values)
    elif isinstance(fact, Bounded):
        values = column_numbers(column)
        unknown = np.isnan(values) & ~missing
        hints = _no_numbers(column[unknown])
    elif isinstance(fact, Dates):
        values = fact.days(column)
        unknown = np.isnan(values) & ~missing
        hints = _no_dates(column[unknown], fact)
    else:  # a bucket takes any value
        values, unknown, hints = np.empty(0), np.zeros(n, dtype=bool), ()
    clipped = 0
    if len(values):
        lower, upper = fact.ends()  # type: ignore[attr-defined]  # of numbers and dates alone
        clipped = int(((values < lower) | (values > upper)).sum())
        hints += _range_hints(values[~np.isnan(values)], lower, upper, clipped, fact)
    return ColumnCheck(name, n, int(missing.sum()), clipped, int(unknown.sum()), hints)


def _is_missing(column: pd.Series) -> np.ndarray:
    empty = column.map(lambda value: isinstance(value, str) and not value.strip())
    return (column.isna() | empty.fillna(False).astype(bool)).to_numpy(dtype=bool)


def _spellings(unknown: pd.Series, values: Iterable[Any]) -> tuple[str, ...]:
    known = [category_key(value) for value in values]
    folded = {text.casefold(): text for text in known}
    hints = []
    for value, count in _most_frequent(unknown):
        text = str(value).strip()
        close = folded.get(text.casefold()) or next(
            iter(difflib.get_close_matches(text, known, 1, 0.75)), None
        )
        meant = f", the schema has {close!r}" if close else ", which is in no category"
        hints.append(f"{count} times {value!r}{meant}")
    return tuple(hints)


def _no_numbers(unknown: pd.Series) -> tuple[str, ...]:
    found = _most_frequent(unknown)
    comma = any(_with_point(value) for value, _ in found)
    told = tuple(f"{count} times {value!r}, which is no number" for value, count in found)
    return (*told, "decimal commas? read the table with --decimal ','") if comma else told


def _no_dates(unknown: pd.Series, fact: Dates) -> tuple[str, ...]:
    form = "ISO 8601, such as 2020-01-31" if fact.format is None else repr(fact.format)
    return tuple(
        f"{count} times {value!r}, which is no date in the format {form}"
        for value, count in _most_frequent(unknown)
    )


def _with_point(value: Any) -> bool:
    try:
        float(str(value).replace(",", "."))
    except ValueError:
        return False
    return "," in str(value)


def _most_frequent(unknown: pd.Series) -> list[tuple[Any, int]]:
    return Counter(map(str, unknown)).most_common(_FEW)


def _range_hints(
    values: np.ndarray, lower: float, upper: float, clipped: int, fact: Column
) -> tuple[str, ...]:
    if not len(values):
        return ()
    if clipped > TOLERANCE * len(values):
        if isinstance(fact, Dates):
            return ("dates lie before first or after last",)
        return (
            f"values reach from {values.min():g} to {values.max():g}, the bounds are {lower:g} and "
            f"{upper:g}: are they in the same unit?",
        )
    if isinstance(fact, Bounded) and upper > lower:
        low, high = fact.to_unit(np.quantile(values, [0.01, 0.99]))
        if 0 < high - low < _NARROW:
            return (
                f"nearly all values lie within {high - low:.2%} of the range, where a model can "
                'hardly tell them apart: narrower bounds, or "scale": "log"?',
            )
    return ()
