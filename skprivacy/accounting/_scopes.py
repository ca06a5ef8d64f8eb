"""Which charges count where: scopes add up, partitions compose in parallel."""

from __future__ import annotations

import json
from collections import Counter
from functools import lru_cache

from .events import Event
from .ledger import LedgerError, _Log

__all__ = ["along", "event_of", "total"]

Charge = tuple[str, Event, int]  # scope, event, how often


@lru_cache(maxsize=4096)
def event_of(body: str) -> Event:
    try:
        return Event.from_dict(json.loads(body))
    except ValueError as error:
        raise LedgerError(f"The privacy ledger holds an event nobody knows: {error}") from None


def along(log: _Log, scope: str, leaf: str) -> Counter[Event]:
    """Return what a record of ``leaf`` is charged within ``scope``."""
    charges = [(s, event_of(body), n) for s, body, n in log.charges() if s.startswith(scope)]
    return total(charges, scope, leaf)


def total(charges: list[Charge], scope: str, leaf: str = "") -> Counter[Event]:
    """Add up the charges in and below ``scope``: scopes add, partitions take the dearest.

    Of partitions on the way to ``leaf`` only that one counts. Elsewhere, each event counts as often
    as in the partition where it is most frequent, which is never too little.
    """
    own: Counter[Event] = Counter()
    below: dict[str, list[Charge]] = {}
    for path, event, n in charges:
        if path == scope:
            own[event] += n
        else:
            name = path[len(scope) :].split("/", 1)[0]
            below.setdefault(f"{scope}{name}/", []).append((path, event, n))
    worst: Counter[Event] = Counter()
    taken = next((p for p in below if leaf.startswith(p) and _is_partition(p)), None)
    within = leaf.startswith(scope) and leaf != scope
    if taken is None and within and _is_partition(leaf[: leaf.index("/", len(scope)) + 1]):
        taken = ""  # a partition without charges yet: those of its siblings are not its own
    for path, inner in below.items():
        if not _is_partition(path):
            own += total(inner, path, leaf)
        elif taken is None or path == taken:
            worst |= total(inner, path, leaf)
    return own + worst


def _is_partition(path: str) -> bool:
    return path.rstrip("/").rsplit("/", 1)[-1].startswith("=")
