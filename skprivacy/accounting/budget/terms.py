"""Terms of a ledger: one relation and one unit for all charges."""

from __future__ import annotations

from typing import Any

from ..._validation import storable
from ..events import RELATIONS
from .log import LedgerError, Record

__all__ = [
    "SHORTEST_DIGEST",
    "check_digest",
    "check_same_relation",
    "check_same_unit",
    "check_terms",
    "check_unit",
    "check_who",
]


SHORTEST_DIGEST = 16  # hexadecimal digits: a forged line takes about 2**64 trials


def check_digest(digest: Any) -> None:
    """Raise an error unless ``digest`` is a digest, or a long enough prefix of one."""
    if not isinstance(digest, str):
        raise TypeError(f"digest={digest!r} must be the digest of a receipt or of verify().")
    if len(digest) < SHORTEST_DIGEST or not set(digest) <= set("0123456789abcdef"):
        raise ValueError(
            f"digest={digest!r} must have at least {SHORTEST_DIGEST} hexadecimal digits. Copy it "
            "from a receipt, from verify() or from the output of a command."
        )


def check_unit(unit: Any) -> str:
    """Return ``unit`` if it is valid."""
    if not isinstance(unit, str) or not unit:
        raise ValueError(f"unit={unit!r} must be 'record' or the name of a column.")
    storable("unit", unit)
    return unit


def check_who(who: Any) -> str:
    """Convert the purpose of a charge to text that can be stored."""
    text = str(who)
    storable("who", text)
    return text


def check_same_relation(relation: str | None, settled: str | None) -> str:
    """Return the relation of a charge; raise ValueError if the ledger has another."""
    known = settled or relation or "add_remove"
    if relation in (None, known):
        return known
    either = "label" in (relation, known)  # no parameter converts to or from "label"
    restated = (
        ""
        if either
        else ", or set the estimator's n_records or relation (in a shell by --set) so that it "
        f"states {known!r}"
    )
    raise ValueError(
        f"The event is stated for relation={relation!r} and the budget for {known!r}. Relations "
        f"are never mixed. Create a budget with relation={relation!r}{restated}."
    )


def check_same_unit(unit: str, settled: str) -> None:
    """Raise ValueError if the ledger has another unit."""
    if unit != settled:
        named = (
            f", or protect each {settled} with all of their records, by groups=pandas.Series(..., "
            f"name={settled!r}) of fit or by person={settled!r} of private_summary"
        )
        if unit == "record":
            named += (
                f". If it is public that none has more than k records, "
                f"guarantee.group(k, unit={settled!r}) may be charged"
            )
        raise ValueError(
            f"The event is stated for unit={unit!r} and the budget for unit={settled!r}. Their "
            f"epsilons are never added up. Create a separate budget with unit={unit!r}"
            f"{'' if settled == 'record' else named}."
        )


def check_terms(records: list[Record], terms: dict[str, Any], settled: tuple[Any, Any]) -> None:
    """Check that relation and unit are valid, and fixed once before the first charge.

    The first line has ``terms``; a later line fixes relation and unit to ``settled``.
    """
    fixed = terms["relation"], terms["unit"]
    lines = [record.seq for record in records if record.kind == "relation"]
    charges = [record.seq for record in records if record.kind == "reserve"]
    late = None in fixed and charges and (not lines or lines[0] > charges[0])
    if late or len(lines) > (None in fixed):
        raise LedgerError(
            "The relation and unit of a ledger must be fixed once, by its first line or before the "
            f"first charge; they are in lines {lines}. Restore the ledger from a copy."
        )
    for name, first, later in zip(("relation", "unit"), fixed, settled, strict=True):
        if None not in (first, later) and first != later:
            raise LedgerError(
                f"A line of the ledger fixes {name}={later!r}, but its first line {first!r}. "
                "Restore the ledger from a copy."
            )
    relation, unit = (first or later for first, later in zip(fixed, settled, strict=True))
    known = unit is None or (isinstance(unit, str) and unit != "")
    if relation not in (None, *RELATIONS) or not known:
        raise LedgerError(
            f"The ledger has relation={relation!r} and unit={unit!r}; expected one of {RELATIONS} "
            "and a non-empty string. Restore the ledger from a copy."
        )
