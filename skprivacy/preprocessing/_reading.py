"""Checks of what a caller or a JSON file says of the columns of a schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING
from json import JSONDecodeError
from os import PathLike
from typing import Any

from .._input import parse_json, read_file
from .._validation import as_path, storable
from ..mechanisms.bounds import check_bounds
from ._column import Column, fields_of
from ._confirmation import Confirmation
from .columns import Bounded, Categories
from .dates import Dates
from .hashed import Hashed

__all__ = ["check_columns_are_described", "read_json", "schema_arguments", "target_range"]

KINDS: dict[str, type[Column]] = {
    kind.__name__.lower(): kind for kind in (Bounded, Categories, Dates, Hashed)
}
_KEYS = ("columns", "target", "classes", "target_bounds", "inferred", "confirmed")
_TEXT = (
    "is free text, which no schema describes: public facts cannot bound it. Leave the column out, "
    "or turn it into numbers by an encoder that was trained on public text, and describe these"
)


def check_columns_are_described(columns: Mapping[Any, Any]) -> None:
    """Raise TypeError unless columns map names to facts."""
    for name, column in columns.items():
        if not isinstance(name, str):
            raise TypeError(
                f"Schema: column name {name!r} must be text. Rename the column, for example to "
                f"'x{name}'."
            )
        storable("columns", name)
        if not isinstance(column, tuple(KINDS.values())):
            raise TypeError(
                f"Schema: column {name!r} must be Bounded(lower, upper), Categories(values), "
                f"Dates(first, last) or Hashed(buckets); got {column!r}."
            )


def read_json(source: str | PathLike[str]) -> Any:
    """Return what a JSON file says, or JSON text, which starts with a brace."""
    is_text = isinstance(source, str) and source.lstrip().startswith("{")
    text = str(source) if is_text else read_file(as_path("source", source))
    try:
        return parse_json(text, allow_constants=True)
    except ValueError as error:
        origin = "the text of source" if is_text else str(source)
        has_position = isinstance(error, (JSONDecodeError, UnicodeDecodeError))
        remedy = " Correct it at that position." if has_position else ""
        reason = str(error).removesuffix(".")
        raise ValueError(f"Schema: {origin} is not valid JSON: {reason}.{remedy}") from error


def schema_arguments(facts: Any) -> dict[str, Any]:
    """Return the arguments of the Schema that the facts of a file describe."""
    if not isinstance(facts, Mapping) or not isinstance(facts.get("columns"), Mapping):
        raise ValueError(
            'Schema: the facts must be a mapping {"columns": {name: {...}, ...}, ...}; '
            f"got {facts!r}."
        )
    if unknown := set(facts) - {*_KEYS, "$schema"}:  # which editors read
        raise ValueError(
            f"Schema: unknown key {sorted(unknown)[0]!r}; expected {', '.join(_KEYS)}. Remove it."
        )
    known = {name: facts.get(name) for name in ("target", "classes", "target_bounds")}
    columns = {name: column_of(name, fact) for name, fact in facts["columns"].items()}
    return {"columns": columns, **known, **marks_of("Schema", facts)}


def column_of(name: str, fact: Any) -> Column:
    """Return the facts about a column.

    Raises
    ------
    ValueError
        If they make none; the message names the column.
    """
    kind = fact.get("type") if isinstance(fact, Mapping) else None
    if kind == "text":
        raise ValueError(f"Schema: column {name!r} {_TEXT}.")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(
            f'Schema: column {name!r} must have a "type" that is one of {sorted(KINDS)}; got '
            f"{fact!r}."
        )
    maker, arguments = KINDS[kind], {k: v for k, v in fact.items() if k != "type"}
    keys = {field.name: field.default is MISSING for field in fields_of(maker)}
    if unknown := [key for key in arguments if key not in keys]:
        raise ValueError(
            f"Schema: column {name!r}: unknown key {unknown[0]!r}; expected {', '.join(keys)}."
        )
    if missing := [key for key, needed in keys.items() if needed and key not in arguments]:
        raise ValueError(f"Schema: column {name!r}: {missing[0]!r} is missing. Add it.")
    arguments |= marks_of(f"Schema: column {name!r}", arguments)
    try:
        return maker(**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Schema: column {name!r}: {error}") from error


def marks_of(who: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a file says of the origin of facts, as arguments of a Column or Schema.

    "inferred": false is refused: facts that were read off data become public by a confirmation of
    these facts, not by a switch.
    """
    marks: dict[str, Any] = {}
    if "inferred" in facts:
        if facts["inferred"] is not True:
            raise ValueError(
                f'{who}: "inferred" is {facts["inferred"]!r}; expected true, which stays. Confirm '
                "drafted facts by `skprivacy schema confirm FILE`. Facts that were never read off "
                "data have no such key."
            )
        marks["inferred"] = True
    if "confirmed" in facts:
        try:
            marks["confirmed"] = Confirmation.from_dict(facts["confirmed"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{who}: {error}") from error
    return marks


def target_range(target_bounds: Any) -> tuple[float, float]:
    """Return the bounds of the target as plain numbers, the lower one below the upper one."""
    lower, upper = (float(bound[0]) for bound in check_bounds("target_bounds", target_bounds, 1))
    if lower == upper:
        raise ValueError(
            f"Schema: target_bounds={target_bounds!r} must be a lower bound below an upper one. "
            "Pass the public range of the target."
        )
    return lower, upper
