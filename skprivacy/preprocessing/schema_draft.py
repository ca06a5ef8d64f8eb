"""A first schema of a table, to be edited: every guess is marked as read off the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .. import _config
from .._groups import find_identifiers
from .cell_values import category_key
from .columns import Bounded, Categories, Column, Hashed
from .dates import Dates
from .inferred_facts import NEARLY_UNIQUE, IdentifierEvidence, identifier_evidence, target_facts
from .schema import Schema

__all__ = ["SchemaDraft", "draft_schema"]

_MAX_CATEGORIES = 50  # more are dealt to buckets
_MISSING = 0.01  # share from which a feature for missing values is worth one
_LONG = 30  # letters of free text, on average
_FORMATS = (None, "%d.%m.%Y", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y")
_TRIED = 1000  # values on which a format is tried
_NAMED = (
    "left out: its name says that it identifies people. If anybody can have several rows, pass it "
    "as groups (--groups)"
)
_IDENTIFIES = (
    "left out: it looks like an identifier ({words}). If it identifies people who can have several "
    "rows, pass it as groups (--groups); if it is a measurement or a code, describe it yourself"
)
_MAY_IDENTIFY = (
    "does it identify people ({words})? Then leave it out, and if anybody can have several rows, "
    "pass it as groups (--groups)"
)


@dataclass(frozen=True)
class SchemaDraft:
    """A schema to be edited, and what is to be known of it; returned by :func:`draft_schema`.

    Attributes
    ----------
    schema : Schema
        All of its facts are marked as read off the data.
    notes : dict of str to str
        By the name of a column: why it was left out, or what to look at.
    """

    schema: Schema
    notes: dict[str, str]


def draft_schema(table: pd.DataFrame, target: str | None = None) -> SchemaDraft:
    """Guess a schema from data. This LEAKS: it is to be compared with a codebook, column by column.

    Numbers get bounds, words categories, dates their range; a column of very many values is dealt
    to buckets by a hash. Free text is left out, and so are columns that identify people, by their
    names or by their values, with advice.

    Parameters
    ----------
    table : DataFrame of shape (n_samples, n_columns)
        Records; public ones if there are any.
    target : str, default=None
        The column to predict. None drafts no target.

    Returns
    -------
    SchemaDraft
        With the schema, and what is to be known of it.

    Raises
    ------
    ValueError
        If there is no such column, or none that can be described.

    Warns
    -----
    PrivacyLeakWarning
        Always; under ``skprivacy.set_config(strict=True)`` it is a ValueError.

    Examples
    --------
    >>> import warnings
    >>> import pandas as pd
    >>> from skprivacy.preprocessing import draft_schema
    >>> table = pd.DataFrame({"age": [31, 64], "ward": ["A", "B"], "ill": ["no", "yes"]})
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     draft = draft_schema(table, target="ill")
    >>> draft.schema
    Schema(1 bounded and 1 categorical columns, target 'ill', INFERRED from data)
    >>> draft.schema.unconfirmed
    ('age', 'ward', 'ill')
    """
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"table must be a DataFrame, not of type {type(table).__name__}.")
    if target is not None and not (isinstance(target, str) and target in table):
        raise ValueError(
            f"target={target!r} is no column of the table; it has "
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
        if label == target:
            continue
        fact, note = (None, _NAMED) if find_identifiers([name]) else _guess(table[label])
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
    if target is not None:
        facts = target_facts(table[target].dropna().to_numpy())
        notes[target] = _told(facts)
    return SchemaDraft(Schema(columns, target=target, inferred=True, **facts), notes)


def _told(facts: dict[str, Any]) -> str:
    if "classes" in facts:
        return f"the target, taken for {len(facts['classes'])} classes"
    return 'the target, taken for a number; for a classification write "classes" instead'


def _guess(column: pd.Series) -> tuple[Column | None, str]:
    """Return what a column seems to be, and a note; no column where it is to be left out."""
    values = column.dropna()
    missing = len(values) < (1 - _MISSING) * len(column)
    if not len(values):
        return None, "left out: it is empty"
    if pd.api.types.is_datetime64_any_dtype(column):
        return _dates(values, None, missing)
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
        return _number(values, missing)
    try:
        texts = values.map(category_key)
    except (TypeError, ValueError):
        return None, "left out: its values are neither numbers, text nor dates"
    for form in _FORMATS:
        if _all_dates(texts.head(_TRIED), form):
            return _dates(texts, form, missing)
    return _words(texts, missing)


def _number(values: pd.Series, missing: bool) -> tuple[Column | None, str]:
    numbers = values.to_numpy(dtype=np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return None, "left out: it has no finite number"
    low, high = float(numbers.min()), float(numbers.max())
    fact = Bounded(low, high, missing=missing, inferred=True)
    if evidence := identifier_evidence(values):
        return _judged(fact, evidence)
    if high > low and np.quantile(numbers, 0.99) - low < (high - low) / 10:
        return fact, 'a few values are far above the rest: consider "scale": "log"'
    return fact, ""


def _judged(fact: Column, evidence: IdentifierEvidence) -> tuple[Column | None, str]:
    """Return a column that looks like an identifier if it may be another, and what to look at."""
    if evidence.is_strong:
        return None, _IDENTIFIES.format(words=evidence.words)
    return fact, _MAY_IDENTIFY.format(words=evidence.words)


def _dates(values: pd.Series, form: str | None, missing: bool) -> tuple[Column | None, str]:
    reader = Dates("1970-01-01", "1970-01-02", format=form)
    days = reader.days(values)
    days = days[~np.isnan(days)]
    start = pd.Timestamp("1970-01-01")
    first = start + pd.Timedelta(days=float(np.floor(days.min())))
    last = start + pd.Timedelta(days=float(np.floor(days.max()) + 1))
    fact = Dates(
        first.date().isoformat(), last.date().isoformat(), format=form, missing=missing,
        inferred=True,
    )  # fmt: skip
    doubt = form in ("%d/%m/%Y", "%m/%d/%Y")
    return fact, "dates with slashes: is the day or the month first?" if doubt else ""


def _all_dates(texts: pd.Series, form: str | None) -> bool:
    days = Dates("1970-01-01", "1970-01-02", format=form).days(texts)
    return not bool(np.isnan(days).any())


def _words(texts: pd.Series, missing: bool) -> tuple[Column | None, str]:
    found = sorted(set(texts) - {""})
    if not found:
        return None, "left out: it is empty"
    evidence = identifier_evidence(texts)
    if len(found) <= _MAX_CATEGORIES and len(found) < max(NEARLY_UNIQUE * len(texts), 3):
        fact = Categories(tuple(found), missing=missing, inferred=True)
        return _judged(fact, evidence) if evidence else (fact, "")
    if texts.str.len().mean() > _LONG:
        return None, (
            "left out: free text. Turn it into numbers by an encoder trained on public text, and "
            "describe these"
        )
    if len(found) > NEARLY_UNIQUE * len(texts):
        return None, "left out: nearly every row has a value of its own, as names have"
    if evidence and evidence.is_strong:
        return None, _IDENTIFIES.format(words=evidence.words)
    note = f"{len(found)} different values: dealt to 64 buckets by a hash, which lists none of them"
    if evidence:
        note += f". {_MAY_IDENTIFY.format(words=evidence.words)}"
    return Hashed(missing=missing, inferred=True), note
