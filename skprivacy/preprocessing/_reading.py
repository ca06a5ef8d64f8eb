"""What a JSON file says of a column, looked at before it is believed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any

from ._column import Column, fields_of
from .columns import Bounded, Categories
from .dates import Dates
from .hashed import Hashed

__all__ = ["KINDS", "column_of"]

KINDS: dict[str, type[Column]] = {
    kind.__name__.lower(): kind for kind in (Bounded, Categories, Dates, Hashed)
}
_TEXT = (
    "is free text, which no schema describes: public facts cannot bound it. Leave the column out, "
    "or turn it into numbers by an encoder that was trained on public text, and describe these"
)


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
    try:
        return maker(**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Schema: column {name!r}: {error}") from error
