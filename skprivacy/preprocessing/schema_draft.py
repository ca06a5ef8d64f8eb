"""Draft of a schema read off a table; every fact is marked as inferred until confirmed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .. import _config
from .._groups import find_identifiers
from .cell_values import category_key
from .columns import BoundedColumn, CategoricalColumn, Column, HashedColumn
from .dates import DateColumn
from .inferred_facts import NEARLY_UNIQUE, IdentifierEvidence, identifier_evidence, target_facts
from .schema import Schema

_MAX_CATEGORIES = 50  # columns with more are hashed
_MIN_SHARE_MISSING = 0.01  # share of missing values that justifies a feature for them
_MIN_TEXT_LENGTH = 30  # mean number of letters of free text
_FORMATS = (None, "%d.%m.%Y", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y")
_N_FORMAT_VALUES = 1000  # values used to test a date format
_IDENTIFIER_NAME_NOTE = (
    "left out: its name says that it identifies people. If anybody can have several rows, pass it "
    "as groups (--groups)"
)
_IDENTIFIER_NOTE = (
    "left out: it looks like an identifier ({words}). If it identifies people who can have several "
    "rows, pass it as groups (--groups); if it is a measurement or a code, describe it yourself"
)
_POSSIBLE_IDENTIFIER_NOTE = (
    "does it identify people ({words})? Then leave it out, and if anybody can have several rows, "
    "pass it as groups (--groups)"
)


@dataclass(frozen=True)
class SchemaDraft:
    """Draft schema to edit, with notes; returned by :func:`draft_schema`."""

    schema: Schema  # all of its facts are marked as read off the data
    notes: dict[str, str]  # for column names: why a column was left out, or what to check


def draft_schema(table: pd.DataFrame, target_column: str | None = None) -> SchemaDraft:
    """Draft a schema from data. This LEAKS: compare each column with a codebook afterwards.

    Numbers get bounds, text gets categories, and dates get their range. Columns with very many
    values are hashed. Free text and columns that seem to identify people are left out, with a note.
    """
    if target_column is not None and not (
        isinstance(target_column, str) and target_column in table
    ):
        raise ValueError(
            f"target_column={target_column!r} is not a column of the table; it has "
            f"{', '.join(map(str, table))}. Name one of them."
        )
    _config.leak(
        "Without a schema, bounds and categories are read off the data: they leak, and no "
        "guarantee covers the leak, until each is compared with a public codebook."
    )
    columns: dict[str, Column] = {}
    notes: dict[str, str] = {}
    for label in table:
        name = str(label)
        if label == target_column:
            continue
        fact, note = (
            (None, _IDENTIFIER_NAME_NOTE)
            if find_identifiers([name])
            else _draft_column(table[label])
        )
        if fact is not None:
            columns[name] = fact
        if note:
            notes[name] = note
    if not columns:
        raise ValueError(
            "The table has no column that a schema can describe: "
            + "; ".join(f"{name}: {note}" for name, note in notes.items())
            + "."
        )
    facts: dict[str, Any] = {}
    if target_column is not None:
        facts = target_facts(table[target_column].dropna().to_numpy())
        notes[target_column] = _describe_facts(facts)
    return SchemaDraft(Schema(columns, target_column=target_column, inferred=True, **facts), notes)


def _describe_facts(facts: dict[str, Any]) -> str:
    if "classes" in facts:
        return f"the target, taken for {len(facts['classes'])} classes"
    return 'the target, taken for a number; for a classification write "classes" instead'


def _draft_column(column: pd.Series) -> tuple[Column | None, str]:
    """Return drafted facts of a column, or None to leave it out, and a note."""
    values = column.dropna()
    missing = len(values) < (1 - _MIN_SHARE_MISSING) * len(column)
    if not len(values):
        return None, "left out: it is empty"
    if pd.api.types.is_datetime64_any_dtype(column):
        return _draft_dates(values, None, missing)
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
        return _draft_number(values, missing)
    try:
        texts = values.map(category_key)
    except (TypeError, ValueError):
        return None, "left out: its values are neither numbers, text nor dates"
    for form in _FORMATS:
        if _parse_all(texts.head(_N_FORMAT_VALUES), form):
            return _draft_dates(texts, form, missing)
    return _draft_texts(texts, missing)


def _draft_number(values: pd.Series, missing: bool) -> tuple[Column | None, str]:
    numbers = values.to_numpy(dtype=np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return None, "left out: it has no finite number"
    low, high = float(numbers.min()), float(numbers.max())
    fact = BoundedColumn(low, high, missing=missing, inferred=True)
    if evidence := identifier_evidence(values):
        return _review_column(fact, evidence)
    if high > low and np.quantile(numbers, 0.99) - low < (high - low) / 10:
        return fact, 'a few values are far above the rest: consider "scale": "log"'
    return fact, ""


def _review_column(fact: Column, evidence: IdentifierEvidence) -> tuple[Column | None, str]:
    """Return a note, and the column's facts unless it is surely an identifier."""
    if evidence.is_strong:
        return None, _IDENTIFIER_NOTE.format(words=evidence.words)
    return fact, _POSSIBLE_IDENTIFIER_NOTE.format(words=evidence.words)


def _draft_dates(values: pd.Series, form: str | None, missing: bool) -> tuple[Column | None, str]:
    reader = DateColumn("1970-01-01", "1970-01-02", format=form)
    days = reader._days(values)
    days = days[~np.isnan(days)]
    start = pd.Timestamp("1970-01-01")
    first = start + pd.Timedelta(days=float(np.floor(days.min())))
    last = start + pd.Timedelta(days=float(np.floor(days.max()) + 1))
    fact = DateColumn(
        first.date().isoformat(), last.date().isoformat(), format=form, missing=missing,
        inferred=True,
    )  # fmt: skip
    doubt = form in ("%d/%m/%Y", "%m/%d/%Y")
    return fact, "dates with slashes: is the day or the month first?" if doubt else ""


def _parse_all(texts: pd.Series, form: str | None) -> bool:
    days = DateColumn("1970-01-01", "1970-01-02", format=form)._days(texts)
    return not bool(np.isnan(days).any())


def _draft_texts(texts: pd.Series, missing: bool) -> tuple[Column | None, str]:
    found = sorted(set(texts) - {""})
    if not found:
        return None, "left out: it is empty"
    evidence = identifier_evidence(texts)
    if len(found) <= _MAX_CATEGORIES and len(found) < max(NEARLY_UNIQUE * len(texts), 3):
        fact = CategoricalColumn(tuple(found), missing=missing, inferred=True)
        return _review_column(fact, evidence) if evidence else (fact, "")
    if texts.str.len().mean() > _MIN_TEXT_LENGTH:
        return None, (
            "left out: free text. Turn it into numbers by an encoder trained on public text, and "
            "describe these"
        )
    if len(found) > NEARLY_UNIQUE * len(texts):
        return None, "left out: nearly every row has a value of its own, as names have"
    if evidence and evidence.is_strong:
        return None, _IDENTIFIER_NOTE.format(words=evidence.words)
    note = f"{len(found)} different values: dealt to 64 buckets by a hash, which lists none of them"
    if evidence:
        note += f". {_POSSIBLE_IDENTIFIER_NOTE.format(words=evidence.words)}"
    return HashedColumn(missing=missing, inferred=True), note
