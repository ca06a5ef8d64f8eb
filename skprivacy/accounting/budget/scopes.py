"""Charges by scope: scopes add up, partitions compose in parallel."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial

from ..._input import parse_json
from .._checks import replaces
from ..events import Event
from .log import LedgerError, Log
from .scope_names import check_scope_name

__all__ = [
    "along",
    "check_partitions",
    "count_memberships",
    "event_of",
    "inner",
    "is_scope",
    "memberships",
    "record",
    "scope_of",
    "total",
]

_WAYS = 10_000

Charge = tuple[str, Event, int]  # scope, event, count


def scope_of(path: str) -> str:
    """Return the scope that a path names: ``adult``, ``/adult`` and ``/adult/`` are one scope.

    **Guarantees.** The result begins and ends with ``/``, so every enclosing scope, including the
    whole budget, is a prefix of it; and no scope has two names.
    """
    if not isinstance(path, str):
        raise TypeError(f"scope={path!r} must be a string, such as 'adult' or '/adult/sweep/'.")
    scope = "/"
    if path == scope:
        return scope
    for name in path.removeprefix("/").removesuffix("/").split("/"):
        if name in ("", "="):
            raise ValueError(
                f"scope={path!r} must be '/' for the whole budget, or names of scopes separated by "
                "'/', such as 'adult' or '/adult/sweep/'. No name may be empty."
            )
        check_scope_name("scope", name.removeprefix("="))
        scope = inner(scope, name)
    return scope


def inner(scope: str, name: str) -> str:
    return f"{scope}{name}/"


@lru_cache(maxsize=4096)
def is_scope(scope: str) -> bool:
    """Return whether a scope in the ledger is written as :func:`scope_of` writes it."""
    try:
        return scope_of(scope) == scope
    except ValueError:
        return False


def check_partitions(scope: str, relation: str | None) -> None:
    """Raise ValueError for a scope in a partition where a changed record may move between parts."""
    if relation is not None and replaces(relation) and "/=" in scope:
        raise ValueError(
            f"relation={relation!r} has no parallel composition: a record that is replaced, or has "
            "another label, may move to another part. Use scope(), or a budget with relation "
            "'add_remove' or 'zero_out'."
        )


@lru_cache(maxsize=4096)
def event_of(body: str) -> Event:
    try:
        return Event.from_dict(parse_json(body))
    except ValueError as error:
        raise LedgerError(f"The privacy ledger holds an unknown event: {error}") from None


def along(
    log: Log, scope: str, leaf: str, since: int = 0, before: int | None = None
) -> Counter[Event]:
    """Return what a record of ``leaf`` is charged within ``scope`` by the lines in a range."""
    charges = log.charges(since, before)
    for s, _, _ in charges:
        if not is_scope(s):
            raise LedgerError(
                f"The privacy ledger holds a charge to {s!r}, which no cap covers. Release nothing "
                "more from it, and find out how that line was written."
            )
    return total([(s, event_of(b), n) for s, b, n in charges if s.startswith(scope)], scope, leaf)


def total(charges: list[Charge], scope: str, leaf: str = "") -> Counter[Event]:
    """Return the charges in and below ``scope``: scopes add up, partitions take the maximum.

    Of the partitions on the path to ``leaf``, only the one on the path counts. Elsewhere, each
    event counts as often as in the partition where it is most frequent, which is never too little.
    """
    added: Counter[Event] = Counter()
    below: dict[str, list[Charge]] = {}
    for path, event, n in charges:
        if path == scope:
            added[event] += n
        else:
            name = path[len(scope) :].split("/", 1)[0]
            below.setdefault(f"{scope}{name}/", []).append((path, event, n))
    worst: Counter[Event] = Counter()
    taken = next((p for p in below if leaf.startswith(p) and _is_partition(p)), None)
    within = leaf.startswith(scope) and leaf != scope
    if taken is None and within and _is_partition(leaf[: leaf.index("/", len(scope)) + 1]):
        taken = ""  # a partition without charges yet: those of its siblings do not count
    for path, within_it in below.items():
        if not _is_partition(path):
            added += total(within_it, path, leaf)
        elif taken is None or path == taken:
            worst |= total(within_it, path, leaf)
    return added + worst


def record(
    log: Log,
    scope: str,
    lies: Callable[[str], bool],
    since: int = 0,
    before: int | None = None,
) -> Counter[Event]:
    """Return what a record is charged within ``scope`` by the paths for which ``lies`` is true."""
    counts: Counter[Event] = Counter()
    for path, body, n in log.charges(since, before):
        if path.startswith(scope) and lies(path):
            counts[event_of(body)] += n
    return counts


def memberships(paths: Iterable[str]) -> Iterator[Callable[[str], bool]]:
    """Yield, for each way in which a record can lie in partitions, whether a path charges it.

    **Edge cases.** Yields nothing if there are more than 10,000 ways.
    """
    divided = _divided(paths)
    if _count(divided) > _WAYS:
        return
    for chosen in itertools.product(*map(sorted, divided.values())):
        yield partial(_lies_in, set(zip(divided, chosen, strict=True)))


def count_memberships(paths: Iterable[str]) -> int:
    """Return how many ways :func:`memberships` yields."""
    count = _count(_divided(paths))
    return count if count <= _WAYS else 0


def _divided(paths: Iterable[str]) -> dict[str, set[str]]:
    """Return the divided scopes on some paths, each with its parts; ``""`` stands for none."""
    divided: dict[str, set[str]] = {}
    for path in paths:
        for division, part in _parts(path):
            divided.setdefault(division, {""}).add(part)
    return divided


def _count(divided: dict[str, set[str]]) -> int:
    return math.prod(len(parts) for parts in divided.values())


def _lies_in(mine: set[tuple[str, str]], path: str) -> bool:
    return mine.issuperset(_parts(path))


def _parts(path: str) -> list[tuple[str, str]]:
    """Return the divided scopes on a path, each with the name of the part on the path."""
    names = path.split("/")
    return [("/".join(names[:i]), name) for i, name in enumerate(names) if name.startswith("=")]


def _is_partition(path: str) -> bool:
    return path.rstrip("/").rsplit("/", 1)[-1].startswith("=")
