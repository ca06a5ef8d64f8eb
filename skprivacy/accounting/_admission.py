"""Whether a charge is admitted: by the cap of its own scope and of every scope around it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

from ._filters import Charges, admits
from ._scopes import along, event_of
from .events import Event
from .ledger import LedgerError, _Log

__all__ = ["Terms", "check_caps", "holds", "refusing", "room"]

_MANY = 1 << 40

Terms = dict[str, Any]  # epsilon, delta, relation and filter of the whole budget
Cap = dict[str, float]  # epsilon and delta of a scope


class Refusal(NamedTuple):
    """The scope whose cap would be passed."""

    scope: str
    epsilon: float
    delta: float


def refusing(log: _Log, leaf: str, event: Event, count: int, terms: Terms) -> Refusal | None:
    """Return the first scope around ``leaf`` whose cap ``count`` more of ``event`` would pass."""
    for scope, body in log.scopes().items():
        if not leaf.startswith(scope):
            continue
        cap = json.loads(body)
        counts = along(log, scope, leaf) + Counter({event: count})
        first = log.first_charge(scope)
        charges = Charges(counts, event_of(first) if first else event)
        if not _admitted(charges, cap, terms):
            return Refusal(scope, cap["epsilon"], cap["delta"])
    return None


def _admitted(charges: Charges, cap: Cap, terms: Terms) -> bool:
    return admits(terms["filter"], charges, cap["epsilon"], cap["delta"], terms["relation"])


def room(log: _Log, leaf: str, event: Event, terms: Terms, most: int = _MANY) -> int:
    """Return how many more of ``event``, up to about ``most``, would be admitted."""

    def fits(count: int) -> bool:
        return refusing(log, leaf, event, count, terms) is None

    low, high = 0, 1
    while high < 2 * most and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def holds(log: _Log, scope: str, cap: Cap, terms: Terms) -> bool:
    """Tell whether what was charged in and below ``scope`` stays within a cap."""
    first = log.first_charge(scope)
    known = event_of(first) if first else None
    # Records that are in no part of the leaf's own: those that are have leaves of their own.
    leaves = {f"{s}=/" for s, _, _ in log.charges() if s.startswith(scope)}
    return all(_admitted(Charges(along(log, scope, leaf), known), cap, terms) for leaf in leaves)


def check_caps(log: _Log, terms: Terms) -> None:
    """Raise LedgerError if what was charged anywhere passes a cap."""
    for scope, body in log.scopes().items():
        if not holds(log, scope, json.loads(body), terms):
            raise LedgerError(f"The charges in scope {scope!r} pass its cap {body}.")
