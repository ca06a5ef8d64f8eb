"""Constraints as a schema reads them: checked, and from JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from ..._validation import sequence
from .column_constraints import EqualColumns, OrderedColumns, SummedColumns
from .constraint import Constraint, Facts
from .value_constraints import ImpossibleValues, MappedColumn

KINDS: dict[str, type[Constraint]] = {
    kind.kind: kind
    for kind in (EqualColumns, ImpossibleValues, MappedColumn, OrderedColumns, SummedColumns)
}


def check_constraints(facts: Facts, constraints: Iterable[Any]) -> tuple[Constraint, ...]:
    """Return constraints whose columns exist and have the right kinds; raise for others."""
    found: list[Constraint] = []
    for constraint in sequence("constraints", constraints):
        if not isinstance(constraint, Constraint):
            kinds = ", ".join(kind.__name__ for kind in KINDS.values())
            raise TypeError(f"Schema: constraints: {constraint!r} must be one of {kinds}.")
        constraint.check(facts)
        found.append(constraint)
    return tuple(found)


def read_constraint(stated: Any) -> Constraint:
    """Return the constraint that a JSON object states."""
    kind = stated.get("type") if isinstance(stated, Mapping) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(
            f'Schema: constraints: {stated!r} must have a "type" that is one of {sorted(KINDS)}.'
        )
    keys = {f.name: f.default is MISSING for f in fields(KINDS[kind]) if f.init}
    given = {*stated} - {"type"}
    if not {key for key, needed in keys.items() if needed} <= given <= {*keys}:
        raise ValueError(f"Schema: constraints: {stated!r} must have the keys {', '.join(keys)}.")
    try:
        return KINDS[kind](**{key: stated[key] for key in given})
    except (TypeError, ValueError) as error:
        raise ValueError(f"Schema: constraints: {error}") from error
