"""JSON format of a schema and its constraints: as a dictionary, and as arguments of Schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from json import JSONDecodeError
from os import PathLike
from typing import Any

from .._files import as_path, parse_json, read_file
from .._validation import sequence, storable
from .columns import BoundedColumn, CategoricalColumn, Column, HashedColumn, fields_of
from .confirmation import Confirmation
from .constraints import (
    Constraint,
    EqualColumns,
    ImpossibleValues,
    MappedColumn,
    OrderedColumns,
    SummedColumns,
)
from .constraints.constraint import Facts
from .dates import DateColumn

COLUMN_KINDS: dict[str, type[Column]] = {
    column.kind: column for column in (BoundedColumn, CategoricalColumn, DateColumn, HashedColumn)
}
_KEYS = (
    "columns", "crosses", "constraints", "target", "classes", "target_bounds", "inferred",
    "confirmed",
)  # fmt: skip


def check_columns(columns: Mapping[Any, Any]) -> None:
    """Raise TypeError unless ``columns`` maps names to facts."""
    for name, column in columns.items():
        if not isinstance(name, str):
            raise TypeError(
                f"Schema: column name {name!r} must be text. Rename the column, for example to "
                f"'x{name}'."
            )
        storable("columns", name)
        if not isinstance(column, tuple(COLUMN_KINDS.values())):
            raise TypeError(
                f"Schema: column {name!r} must be BoundedColumn(lower, upper), "
                "CategoricalColumn(values), DateColumn(first, last) or HashedColumn(buckets); "
                f"got {column!r}."
            )


def schema_to_dict(schema: Any) -> dict[str, Any]:
    """Return a schema as plain lists, strings and numbers, without unused options."""
    bounds = {} if schema.target_bounds is None else {"target_bounds": list(schema.target_bounds)}
    crosses = {"crosses": [list(pair) for pair in schema.crosses]} if schema.crosses else {}
    rules = [constraint.to_dict() for constraint in schema.constraints]
    marks: dict[str, Any] = {"inferred": True} if schema._inferred else {}
    if schema._confirmed is not None:
        marks["confirmed"] = schema._confirmed.to_dict()
    return {
        "columns": {name: column.to_dict() for name, column in schema.items()},
        **crosses,
        **({"constraints": rules} if rules else {}),
        "target": schema.target_column,
        "classes": None if schema.classes is None else list(schema.classes),
        **bounds,
        **marks,
    }


def read_json(source: str | PathLike[str]) -> Any:
    """Return the content of a JSON file, or of JSON text, which starts with a brace."""
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
    """Return the Schema arguments that the facts of a file describe."""
    if not isinstance(facts, Mapping) or not isinstance(facts.get("columns"), Mapping):
        raise ValueError(
            'Schema: the facts must be a mapping {"columns": {name: {...}, ...}, ...}; '
            f"got {facts!r}."
        )
    if unknown := set(facts) - {*_KEYS, "$schema"}:  # which editors read
        raise ValueError(
            f"Schema: unknown key {sorted(unknown)[0]!r}; expected {', '.join(_KEYS)}. Remove it."
        )
    known = {name: facts.get(name) for name in ("classes", "target_bounds")}
    known["target_column"] = facts.get("target")
    columns = {name: _parse_column(name, fact) for name, fact in facts["columns"].items()}
    known["crosses"] = facts.get("crosses", ())
    stated = sequence("constraints", facts.get("constraints", ()))
    known["constraints"] = [read_constraint(constraint) for constraint in stated]
    return {"columns": columns, **known, **_origin_marks("Schema", facts)}


def _parse_column(name: str, fact: Any) -> Column:
    """Return the facts about a column, or raise a ValueError that names the column."""
    kind = fact.get("type") if isinstance(fact, Mapping) else None
    if kind == "text":
        raise ValueError(
            f"Schema: column {name!r} is free text, which a schema cannot bound. Leave it out, or "
            "apply an encoder trained on public text, and describe its outputs."
        )
    if not isinstance(kind, str) or kind not in COLUMN_KINDS:
        raise ValueError(
            f'Schema: column {name!r} must have a "type" that is one of {sorted(COLUMN_KINDS)}; '
            f"got {fact!r}."
        )
    maker, arguments = COLUMN_KINDS[kind], {k: v for k, v in fact.items() if k != "type"}
    keys = {field.name: field.default is MISSING for field in fields_of(maker)}
    if unknown := [key for key in arguments if key not in keys]:
        raise ValueError(
            f"Schema: column {name!r}: unknown key {unknown[0]!r}; expected {', '.join(keys)}."
        )
    if missing := [key for key, needed in keys.items() if needed and key not in arguments]:
        raise ValueError(f"Schema: column {name!r}: {missing[0]!r} is missing. Add it.")
    arguments |= _origin_marks(f"Schema: column {name!r}", arguments)
    try:
        return maker(**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Schema: column {name!r}: {error}") from error


def _origin_marks(owner: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the marks of origin in a file, as arguments of a Column or Schema.

    "inferred": false is refused. Facts read off data become public by a confirmation, not by a
    switch.
    """
    marks: dict[str, Any] = {}
    if "inferred" in facts:
        if facts["inferred"] is not True:
            raise ValueError(
                f'{owner}: "inferred" is {facts["inferred"]!r}; expected true. Confirm '
                "drafted facts by `skprivacy schema confirm FILE`. Facts that were never read off "
                "data have no such key."
            )
        marks["inferred"] = True
    if "confirmed" in facts:
        try:
            marks["confirmed"] = Confirmation.from_dict(facts["confirmed"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{owner}: {error}") from error
    return marks


CONSTRAINT_KINDS: dict[str, type[Constraint]] = {
    kind.kind: kind
    for kind in (EqualColumns, ImpossibleValues, MappedColumn, OrderedColumns, SummedColumns)
}


def check_constraints(facts: Facts, constraints: Iterable[Any]) -> tuple[Constraint, ...]:
    """Return constraints whose columns exist and have the right kinds; raise for others."""
    found: list[Constraint] = []
    for constraint in sequence("constraints", constraints):
        if not isinstance(constraint, Constraint):
            kinds = ", ".join(kind.__name__ for kind in CONSTRAINT_KINDS.values())
            raise TypeError(f"Schema: constraints: {constraint!r} must be one of {kinds}.")
        constraint.check(facts)
        found.append(constraint)
    return tuple(found)


def read_constraint(stated: Any) -> Constraint:
    """Return the constraint that a JSON object states."""
    kind = stated.get("type") if isinstance(stated, Mapping) else None
    if not isinstance(kind, str) or kind not in CONSTRAINT_KINDS:
        raise ValueError(
            f'Schema: constraints: {stated!r} must have a "type" that is one of '
            f"{sorted(CONSTRAINT_KINDS)}."
        )
    keys = {f.name: f.default is MISSING for f in fields(CONSTRAINT_KINDS[kind]) if f.init}
    given = {*stated} - {"type"}
    if not {key for key, needed in keys.items() if needed} <= given <= {*keys}:
        raise ValueError(f"Schema: constraints: {stated!r} must have the keys {', '.join(keys)}.")
    try:
        return CONSTRAINT_KINDS[kind](**{key: stated[key] for key in given})
    except (TypeError, ValueError) as error:
        raise ValueError(f"Schema: constraints: {error}") from error
