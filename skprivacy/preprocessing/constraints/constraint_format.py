"""Constraints as a schema holds them: checked, and in JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..._validation import sequence
from .constraint import (
    Constraint,
    EqualColumns,
    Facts,
    ImpossibleValues,
    MappedColumn,
    OrderedColumns,
    SummedColumns,
)

KINDS: dict[str, type[Constraint]] = {
    kind.kind: kind
    for kind in (EqualColumns, ImpossibleValues, MappedColumn, OrderedColumns, SummedColumns)
}
_KEYS = {
    "equal": ("columns",), "impossible": ("values",), "mapped": ("source", "target", "values"),
    "ordered": ("columns", "strict"), "sum": ("parts", "total"),
}  # fmt: skip
_OPTIONAL = {"strict"}


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


def constraint_to_dict(constraint: Constraint) -> dict[str, Any]:
    """Return a constraint for JSON."""
    told: dict[str, Any] = {"type": constraint.kind}
    for key in _KEYS[constraint.kind]:
        value = getattr(constraint, key)
        if key in _OPTIONAL and not value:
            continue
        if isinstance(constraint, ImpossibleValues):
            value = {name: list(values) for name, values in value}
        elif isinstance(constraint, MappedColumn) and key == "values":
            value = [list(pair) for pair in value]
        told[key] = list(value) if isinstance(value, tuple) else value
    return told


def read_constraint(stated: Any) -> Constraint:
    """Return the constraint that a JSON object states."""
    kind = stated.get("type") if isinstance(stated, Mapping) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(
            f'Schema: constraints: {stated!r} must have a "type" that is one of {sorted(KINDS)}.'
        )
    needed = {*_KEYS[kind]} - _OPTIONAL
    given = {*stated} - {"type"}
    if not needed <= given <= {*_KEYS[kind]}:
        raise ValueError(
            f"Schema: constraints: {stated!r} must have the keys {', '.join(_KEYS[kind])}."
        )
    try:
        return KINDS[kind](**{key: stated[key] for key in given})
    except (TypeError, ValueError) as error:
        raise ValueError(f"Schema: constraints: {error}") from error
