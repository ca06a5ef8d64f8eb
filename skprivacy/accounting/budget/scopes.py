"""Charges by scope: scopes add up, partitions compose in parallel (McSherry 2009)."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial

from ..._input import parse_json
from .._checks import allows_replacement
from ..events import Event
from .log import LedgerError, Log
from .scope_names import check_scope_name

__all__ = [
    "charges_along_path",
    "charges_of_record",
    "check_partitions",
    "count_memberships",
    "inner_scope",
    "is_scope",
    "iter_memberships",
    "parse_event",
    "scope_of",
    "sum_charges",
]

_MAX_WAYS = 10_000  # in which a record can lie in partitions

Charge = tuple[str, Event, int]  # scope, event, count


def scope_of(path: str) -> str:
    """Return the scope that a path names: ``adult``, ``/adult`` and ``/adult/`` are one scope.

    **Guarantees.** No scope has two names. The result begins and ends with ``/``, so every
    enclosing scope, including the whole budget, is a prefix of it.
    """
    if not isinstance(path, str):
        raise TypeError(f"scope={path!r} must be a string, such as 'adult' or '/adult/sweep/'.")
    scope = "/"
    if path == scope:
        return scope
    for name in path.removeprefix("/").removesuffix("/").split("/"):
        if name in ("", "="):
            raise ValueError(
                f"scope={path!r} must be '/' for the whole budget, or non-empty names of scopes "
                "separated by '/', such as 'adult' or '/adult/sweep/'."
            )
        check_scope_name("scope", name.removeprefix("="))
        scope = inner_scope(scope, name)
    return scope


def inner_scope(scope: str, name: str) -> str:
    return f"{scope}{name}/"


@lru_cache(maxsize=4096)
def is_scope(scope: str) -> bool:
    """Return True if a scope in the ledger has the form that :func:`scope_of` writes."""
    try:
        return scope_of(scope) == scope
    except ValueError:
        return False


def check_partitions(scope: str, relation: str | None) -> None:
    """Raise ValueError for a partition under a relation that lets a record change partitions."""
    if relation is not None and allows_replacement(relation) and "/=" in scope:
        raise ValueError(
            f"relation={relation!r} has no parallel composition: a changed record may move to "
            "another partition. Use scope(), or a budget with relation 'add_remove' or 'zero_out'."
        )


@lru_cache(maxsize=4096)
def parse_event(body: str) -> Event:
    try:
        return Event.from_dict(parse_json(body))
    except ValueError as error:
        raise LedgerError(f"The privacy ledger holds an unknown event: {error}") from None


def charges_along_path(
    log: Log, scope: str, leaf: str, since: int = 0, before: int | None = None
) -> Counter[Event]:
    """Return the charges within ``scope`` of a record of ``leaf``, from a range of lines."""
    charges = log.charges(since, before)
    for s, _, _ in charges:
        if not is_scope(s):
            raise LedgerError(
                f"The privacy ledger holds a charge to {s!r}, which no cap covers. Release nothing "
                "more from it, and find out how that line was written."
            )
    return sum_charges(
        [(s, parse_event(b), n) for s, b, n in charges if s.startswith(scope)], scope, leaf
    )


def sum_charges(charges: list[Charge], scope: str, leaf: str = "") -> Counter[Event]:
    """Return the charges in and below ``scope``: scopes add up, partitions take the maximum.

    Of a divided scope on the path to ``leaf``, only the partition on the path counts. In other
    divided scopes, each event counts as often as in the partition where it is most frequent, which
    is an upper bound.
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
        taken = ""  # a partition without charges yet: its siblings' charges do not count
    for path, within_it in below.items():
        if not _is_partition(path):
            added += sum_charges(within_it, path, leaf)
        elif taken is None or path == taken:
            # McSherry 2009, parallel composition: a record is in one partition
            worst |= sum_charges(within_it, path, leaf)
    return added + worst


def charges_of_record(
    log: Log,
    scope: str,
    lies: Callable[[str], bool],
    since: int = 0,
    before: int | None = None,
) -> Counter[Event]:
    """Return the charges within ``scope`` of a record on the paths for which ``lies`` is true."""
    counts: Counter[Event] = Counter()
    for path, body, n in log.charges(since, before):
        if path.startswith(scope) and lies(path):
            counts[parse_event(body)] += n
    return counts


def iter_memberships(paths: Iterable[str]) -> Iterator[Callable[[str], bool]]:
    """Yield, for each way in which a record can lie in partitions, whether a path charges it.

    **Edge cases.** Yields nothing if there are more than 10,000 ways.
    """
    divided = _divided_scopes(paths)
    if _count_ways(divided) > _MAX_WAYS:
        return
    for chosen in itertools.product(*map(sorted, divided.values())):
        yield partial(_lies_in, set(zip(divided, chosen, strict=True)))


def count_memberships(paths: Iterable[str]) -> int:
    """Count the ways that :func:`iter_memberships` yields."""
    count = _count_ways(_divided_scopes(paths))
    return count if count <= _MAX_WAYS else 0


def _divided_scopes(paths: Iterable[str]) -> dict[str, set[str]]:
    """Return the divided scopes on the paths, each with its partitions; ``""`` is in none."""
    divided: dict[str, set[str]] = {}
    for path in paths:
        for division, part in _partitions_on_path(path):
            divided.setdefault(division, {""}).add(part)
    return divided


def _count_ways(divided: dict[str, set[str]]) -> int:
    return math.prod(len(parts) for parts in divided.values())


def _lies_in(mine: set[tuple[str, str]], path: str) -> bool:
    return mine.issuperset(_partitions_on_path(path))


def _partitions_on_path(path: str) -> list[tuple[str, str]]:
    """Return the divided scopes on a path, each with its partition on the path."""
    names = path.split("/")
    return [("/".join(names[:i]), name) for i, name in enumerate(names) if name.startswith("=")]


def _is_partition(path: str) -> bool:
    return path.rstrip("/").rsplit("/", 1)[-1].startswith("=")
