"""What all charges of a ledger have in common: one relation and one unit."""

from __future__ import annotations

from typing import Any

from ..events import RELATIONS
from .log import LedgerError, Record

__all__ = ["check_same_unit", "check_terms", "check_unit"]


def check_unit(unit: Any) -> str:
    """Return ``unit`` if it can be one."""
    if not isinstance(unit, str) or not unit:
        raise ValueError(f"unit={unit!r} must be 'record' or the name of a column.")
    return unit


def check_same_unit(unit: str, settled: str) -> None:
    """Refuse to add up what hides different things."""
    if unit != settled:
        raise ValueError(
            f"The event is stated for unit={unit!r} and the budget for unit={settled!r}. Their "
            f"epsilons are never added up: make a budget with unit={unit!r} of its own."
        )


def check_terms(records: list[Record], terms: dict[str, Any], settled: tuple[Any, Any]) -> None:
    """Check that relation and unit are settled once, before the first charge, and are such.

    Parameters
    ----------
    records : list of Record
    terms : dict
        Those of the first line; ``None`` for what it left open.
    settled : (str or None, str or None)
        The relation and the unit that a later line settles.

    Raises
    ------
    LedgerError
    """
    fixed = terms["relation"], terms["unit"]
    lines = [record.seq for record in records if record.kind == "relation"]
    charges = [record.seq for record in records if record.kind == "reserve"]
    late = None in fixed and charges and (not lines or lines[0] > charges[0])
    if late or len(lines) > (None in fixed):
        raise LedgerError(
            "Relation and unit must be settled once, by the first line of the ledger or before "
            f"the first charge; they are in lines {lines}."
        )
    for name, first, later in zip(("relation", "unit"), fixed, settled, strict=True):
        if None not in (first, later) and first != later:
            raise LedgerError(f"A line settles {name}={later!r}; the ledger is for {first!r}.")
    relation, unit = (first or later for first, later in zip(fixed, settled, strict=True))
    known = unit is None or (isinstance(unit, str) and unit != "")
    if relation not in (None, *RELATIONS) or not known:
        raise LedgerError(f"A ledger cannot be for relation={relation!r}, unit={unit!r}.")
