"""Check of a table against its schema, for the data holder: clipped, unknown and missing values."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .._files import displayable
from .._groups import check_groups, find_identifiers
from .cell_values import category_codes, category_key, column_numbers
from .columns import BoundedColumn, CategoricalColumn, Column
from .dates import DateColumn
from .inferred_facts import identifier_evidence

TOLERANCE = 0.01  # share of values that a column may lose
_MAX_SHOWN_VALUES = 3  # values shown per column
_NARROW_SHARE = 0.02  # share of the range that hints at bounds that are too wide


@dataclass(frozen=True)
class ColumnCheck:
    """Check of one column against its facts in the schema."""

    name: str
    n_rows: int
    n_missing: int = 0  # empty values
    n_clipped: int = 0  # numbers and dates beyond their bounds, which become the nearer end
    n_unknown: int = 0  # not a number, date or category of the schema; they are lost
    hints: tuple[str, ...] = ()  # likely causes, in words

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


@dataclass(frozen=True)
class RowsPerGroup:
    """Number of rows per value of a column that identifies people, or seems to."""

    name: str
    reason: str  # why the column counts as an identifier
    n_people: int  # different values
    n_several: int  # values with more than one row
    n_most: int  # rows of the most frequent value
    n_rows: int  # rows that have a value
    n_missing: int = 0  # rows without one

    def __str__(self) -> str:
        missing = f" {self.n_missing} rows have no value." if self.n_missing else ""
        if not self.n_several:
            words = f"each of {self.n_people} people has one row."
            return f"{self.name} ({self.reason}): {words}{missing}"
        return (
            f"{self.name} ({self.reason}): {self.n_people} people have "
            f"{self.n_rows / self.n_people:.1f} rows each on average, {self.n_most} at most; "
            f"{self.n_several / self.n_people:.0%} have several. To protect people with all of "
            f"their rows, pass it as groups (--groups).{missing}"
        )


@dataclass(frozen=True, repr=False)
class SchemaCheck:
    """Check of a table against a schema; returned by :meth:`Schema.check`.

    **It is about private data**: show it only to people who may see the records.
    """

    columns: tuple[ColumnCheck, ...]  # of the schema, in the table; the target is last
    absent: tuple[str, ...] = ()  # columns of the schema that the table lacks
    undescribed: tuple[str, ...] = ()  # columns of the table that the schema lacks
    people: tuple[RowsPerGroup, ...] = ()  # of the given groups, or of likely identifiers

    @property
    def fits(self) -> bool:
        """Whether no column is absent, and none loses more than 1 % of its values."""
        return not self.absent and all(column.fits for column in self.columns)

    def __repr__(self) -> str:
        listed = [column for column in self.columns if not column.fits or column.hints]
        lines = [
            "This is about private data: do not publish it, and take bounds and categories from a "
            "codebook, not from here."
        ]
        lines += [f"  {column}" for column in listed]
        lines += [f"  {name}: the table has no such column" for name in self.absent]
        if self.undescribed:
            lines.append(f"  not described, so not used: {', '.join(self.undescribed)}")
        lines += [f"  {found}" for found in self.people]
        lost = sum(not column.fits for column in self.columns) + len(self.absent)
        lines.append(
            f"{lost} of {len(self.columns) + len(self.absent)} columns lose more than "
            f"{TOLERANCE:.0%} of their values."
        )
        return displayable("\n".join(lines))


def check_table(
    table: pd.DataFrame,
    columns: Mapping[str, Column],
    target: str | None,
    label: Column | None,
    groups: Any = None,
) -> SchemaCheck:
    """Return the check of a table; ``label`` holds the facts about the target."""
    if not isinstance(table, pd.DataFrame):
        raise TypeError(
            f"table is a {type(table).__name__}; expected a DataFrame, whose columns have names."
        )
    if not len(table):
        raise ValueError("table has no rows. Pass the records that are to be checked.")
    described = dict(columns)
    if target is not None and target in table and label is not None:
        described = {**described, target: label}
    if groups is None:
        counts = _count_found_groups(table, described, target)
    else:
        given = check_groups(groups, table)
        counts = (_rows_per_person(pd.Series(given.codes, name=given.unit), "as given"),)
    return SchemaCheck(
        tuple(
            _check_column(name, table[name], fact, name == target)
            for name, fact in described.items()
            if name in table
        ),
        tuple(name for name in described if name not in table),
        tuple(str(name) for name in table if name not in described and name != target),
        counts,
    )


def _count_found_groups(
    table: pd.DataFrame, described: Mapping[str, Column], target: str | None
) -> tuple[RowsPerGroup, ...]:
    """Return the rows per value of each column that seems to identify people."""
    found = []
    for name in table:
        if name == target or isinstance(described.get(str(name)), DateColumn):
            continue
        if find_identifiers([name]):
            found.append(_rows_per_person(table[name], "an identifier by its name"))
        elif (evidence := identifier_evidence(table[name])) and evidence.has_several_rows:
            found.append(_rows_per_person(table[name], "perhaps an identifier, by its values"))
    return tuple(found)


def _rows_per_person(column: pd.Series, reason: str) -> RowsPerGroup:
    missing = _is_missing(column)
    counts = column[~missing].astype(str).value_counts().to_numpy()
    return RowsPerGroup(
        str(column.name), reason, len(counts), int((counts > 1).sum()),
        int(counts.max(initial=0)), int(counts.sum()), int(missing.sum()),
    )  # fmt: skip


def _check_column(name: str, column: pd.Series, fact: Column, is_target: bool) -> ColumnCheck:
    n, missing = len(column), _is_missing(column)
    if isinstance(fact, CategoricalColumn):
        unknown = (category_codes(column, fact.values) < 0) & ~missing
        values, hints = np.empty(0), _spelling_hints(column[unknown], fact.values)
    elif isinstance(fact, BoundedColumn):
        values = column_numbers(column)
        unknown = np.isnan(values) & ~missing
        hints = _number_hints(column[unknown])
    elif isinstance(fact, DateColumn):
        values = fact._days(column)
        unknown = np.isnan(values) & ~missing
        hints = _date_hints(column[unknown], fact)
    else:  # hashed: every value has a bucket
        values, unknown, hints = np.empty(0), np.zeros(n, dtype=bool), ()
    clipped = 0
    if len(values):
        lower, upper = fact._ends()  # type: ignore[attr-defined]  # BoundedColumn and DateColumn have it
        clipped = int(((values < lower) | (values > upper)).sum())
        finite = values[np.isfinite(values)]
        hints += _range_hints(values[~np.isnan(values)], lower, upper, clipped, fact)
        hints += _extreme_hints(finite, lower, upper, int(isinstance(fact, DateColumn)))
    if missing.any() and not is_target and _reads_gaps_as_middle(fact):
        hints += ('the missing ones become the middle of the range: add "missing": true',)
    if not isinstance(fact, DateColumn) and not is_target:
        hints += _identifier_hint(name, column)
    return ColumnCheck(name, n, int(missing.sum()), clipped, int(unknown.sum()), hints)


def _reads_gaps_as_middle(fact: Column) -> bool:
    return isinstance(fact, (BoundedColumn, DateColumn)) and not fact.missing


def find_unmarked_gaps(columns: Mapping[str, Column], table: pd.DataFrame) -> list[str]:
    """Return the columns with gaps that become the middle of the range, for the data holder."""
    return [
        name
        for name, fact in columns.items()
        if _reads_gaps_as_middle(fact) and name in table and table[name].isna().any()
    ]


def _is_missing(column: pd.Series) -> np.ndarray:
    empty = column.map(lambda value: isinstance(value, str) and not value.strip())
    return (column.isna() | empty.fillna(False).astype(bool)).to_numpy(dtype=bool)


def _spelling_hints(unknown: pd.Series, values: Iterable[Any]) -> tuple[str, ...]:
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


def _number_hints(unknown: pd.Series) -> tuple[str, ...]:
    found = _most_frequent(unknown)
    comma = any(_replace_decimal_comma(value) for value, _ in found)
    hints = tuple(f"{count} times {value!r}, which is no number" for value, count in found)
    return (*hints, "decimal commas? read the table with --decimal ','") if comma else hints


def _date_hints(unknown: pd.Series, fact: DateColumn) -> tuple[str, ...]:
    form = repr(fact.format)
    if fact.format is None:
        form = 'ISO 8601, such as 2020-01-31; name its format, such as "format": "%d.%m.%Y"'
    return tuple(
        f"{count} times {value!r}, which is no date in the format {form}"
        for value, count in _most_frequent(unknown)
    )


def _replace_decimal_comma(value: Any) -> bool:
    try:
        float(str(value).replace(",", "."))
    except ValueError:
        return False
    return "," in str(value)


def _most_frequent(unknown: pd.Series) -> list[tuple[Any, int]]:
    return Counter(map(str, unknown)).most_common(_MAX_SHOWN_VALUES)


def _range_hints(
    values: np.ndarray, lower: float, upper: float, clipped: int, fact: Column
) -> tuple[str, ...]:
    if not len(values):
        return ()
    if clipped > TOLERANCE * len(values):
        if isinstance(fact, DateColumn):
            return ("dates lie before first or after last",)
        return (
            f"values reach from {values.min():g} to {values.max():g}, the bounds are {lower:g} and "
            f"{upper:g}: are they in the same unit?",
        )
    if isinstance(fact, BoundedColumn) and upper > lower:
        low, high = fact.to_unit(np.quantile(values, [0.01, 0.99]))
        if 0 < high - low < _NARROW_SHARE:
            return (
                f"nearly all values lie within {high - low:.2%} of the range, where a model can "
                'hardly tell them apart: narrower bounds, or "scale": "log"?',
            )
    return ()


def _extreme_hints(values: np.ndarray, lower: float, upper: float, step: int) -> tuple[str, ...]:
    """Return a hint if bounds equal the extremes; dates may differ by less than a ``step``."""
    if not len(values):
        return ()
    low, high = float(values.min()), float(values.max())
    equal = []
    if 0 <= low - lower < step or low == lower:
        equal.append("the lower bound is the smallest value")
    if 0 <= upper - high <= step:
        equal.append("the upper bound is the largest value")
    return (f"{' and '.join(equal)}: read off the data?",) if equal else ()


def _identifier_hint(name: str, column: pd.Series) -> tuple[str, ...]:
    """Return a hint if a feature seems to identify people."""
    if find_identifiers([name]):
        return ("its name says that it identifies people: leave it out of the features",)
    evidence = identifier_evidence(column)
    if evidence is None:
        return ()
    return (f"does it identify people ({evidence.words})? Then leave it out of the features",)
