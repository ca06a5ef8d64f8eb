"""Admission control: check a charge against the caps of its scope and of all enclosing scopes.

Scopes add up their charges, partitions compose in parallel (McSherry 2009). Names of scopes that
look alike are refused, because they would have separate caps. Start reading at
:func:`find_refusal`.
"""

from __future__ import annotations

import itertools
import math
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

from ..._files import parse_json
from ..event import Event, allows_replacement
from .filters import Account, Cost, Counts, sum_epsilons_and_deltas
from .ledger import LedgerError, Log

MANY = 1 << 40  # largest count of further charges
Charged = Callable[..., Counts]  # takes the line numbers ``since`` and ``before``
Terms = dict[str, Any]  # epsilon, delta, relation and filter of the whole budget

# Characters drawn as nothing or as a blank that Unicode counts as letters, marks or symbols: the
# "default ignorable" characters of these categories, and the empty Braille pattern.
_INVISIBLE_CHARACTERS = {
    "\u034f", "\u115f", "\u1160", "\u17b4", "\u17b5", "\u180b", "\u180c", "\u180d", "\u180f",
    "\u2800", "\u3164", "\uffa0",
    *map(chr, range(0xFE00, 0xFE10)),  # variation selectors
    *map(chr, range(0xE0100, 0xE01F0)),
}  # fmt: skip
_MAX_WAYS = 10_000  # in which a record can lie in partitions
Charge = tuple[str, Event, int]  # scope, event, count


class Refusal(NamedTuple):
    """The scope whose cap a charge would exceed, with its account before and after the charge."""

    scope: str
    before: Account
    after: Account


class Opening(NamedTuple):
    """The charge that started tight composition within a cap, and the cap that remained."""

    charge: int
    event: Event
    left: Cost


def find_refusal(log: Log, leaf: str, event: Event, terms: Terms) -> Refusal | None:
    """Return a refusal if a charge of ``event`` would exceed the cap of ``leaf`` or its parents."""
    for scope, before in _list_accounts(log, leaf, terms).items():
        after = before.with_charge(event)
        if not after.is_admitted():
            return Refusal(scope, before, after)
    return None


def parse_cap(body: str) -> Cost:
    """Read the cap from the body of a ledger line."""
    terms = parse_json(body)
    return Cost(terms["epsilon"], terms["delta"])


def count_fitting(log: Log, leaf: str, event: Event, terms: Terms) -> int:
    """Return how many more of ``event``, up to about :data:`MANY`, would be admitted."""
    accounts = _list_accounts(log, leaf, terms).values()

    def exceeds(count: int) -> bool:
        return not all(account.with_charge(event, count).is_admitted() for account in accounts)

    high = 1
    while high < 2 * MANY and not exceeds(high):
        high *= 2
    return bisect_left(range(high), True, lo=high // 2 + 1, key=exceeds) - 1


def is_within_cap(log: Log, scope: str, cap: Cost, terms: Terms) -> bool:
    """Return True if the charges in and below ``scope`` stay within a cap.

    **Guarantees.** Never True if some record was charged beyond the cap.

    **Edge cases.** Sums over partitions take the maximum count of each event, which may be too
    large. If such a sum exceeds the cap, every way in which a record can lie in partitions is
    checked, unless there are too many ways.
    """
    opening = _opening(log, scope, cap, terms)
    paths = {s for s, _, _ in log.charges() if s.startswith(scope)}

    def holds_for(charged: Charged) -> bool:
        return _account(charged, cap, opening, terms).is_admitted()

    # ``{path}=/`` is a record of ``path`` in none of its partitions, which have other paths.
    if all(holds_for(partial(charges_along_path, log, scope, f"{path}=/")) for path in paths):
        return True
    records = [partial(charges_of_record, log, scope, lies) for lies in iter_memberships(paths)]
    return bool(records) and all(holds_for(charged) for charged in records)


def check_caps(log: Log, terms: Terms) -> None:
    """Raise LedgerError if the charges of any scope exceed its cap."""
    for scope, body in log.scopes().items():
        if not is_within_cap(log, scope, parse_cap(body), terms):
            raise LedgerError(
                f"The charges in scope {scope!r} exceed its cap {body}. Release nothing more from "
                "this ledger, and find out how they were written."
            )


def check_scope_name(parameter: str, name: str) -> None:
    """Raise ValueError for a name that can look like another name of the same alphabets."""
    for character in name:
        # Not printable: control, format (zero width, bidirectional), surrogate, private use,
        # unassigned, and every separator except the space.
        if not character.isprintable() or character in _INVISIBLE_CHARACTERS:
            known = unicodedata.name(character, "control or unassigned character")
            raise ValueError(
                f"{parameter}={name!a} must not contain U+{ord(character):04X} ({known}): the "
                "name could look like another scope's name. Remove the character."
            )
    if name != name.strip():
        raise ValueError(
            f"{parameter}={name!r} must not begin or end with a blank. Pass {name.strip()!r}."
        )
    if unicodedata.category(name[0]).startswith("M"):
        raise ValueError(
            f"{parameter}={name!a} must not begin with U+{ord(name[0]):04X} "
            f"({unicodedata.name(name[0])}), which combines with the character before the name. "
            "Remove the character."
        )
    if not unicodedata.is_normalized("NFC", name):
        raise ValueError(
            f"{parameter}={name!a} must be in Unicode normal form NFC, as the same name has two "
            'spellings otherwise. Pass unicodedata.normalize("NFC", name).'
        )


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
    """Yield, for each way to lie in partitions, whether a path charges it; none if over 10,000."""
    divided = _divided_scopes(paths)
    if _count_ways(divided) > _MAX_WAYS:
        return
    for chosen in itertools.product(*map(sorted, divided.values())):
        yield partial(_lies_in, set(zip(divided, chosen, strict=True)))


def count_memberships(paths: Iterable[str]) -> int:
    """Count the ways that :func:`iter_memberships` yields."""
    count = _count_ways(_divided_scopes(paths))
    return count if count <= _MAX_WAYS else 0


def _list_accounts(log: Log, leaf: str, terms: Terms) -> dict[str, Account]:
    """Return the account of every scope with a cap that contains ``leaf``."""
    accounts = {}
    for scope, body in log.scopes().items():
        if leaf.startswith(scope):
            cap = parse_cap(body)
            opening = _opening(log, scope, cap, terms)
            accounts[scope] = _account(
                partial(charges_along_path, log, scope, leaf), cap, opening, terms
            )
    return accounts


def _account(charged: Charged, cap: Cost, opening: Opening | None, terms: Terms) -> Account:
    account = Account(cap, terms["filter"], terms["relation"])
    if terms["filter"] != "adaptive":
        return account.with_counts(charged())
    if opening is None:
        return account.with_added(charged())
    before, since = charged(before=opening.charge), charged(since=opening.charge)
    return account.with_added(before).with_counts(since, opening.event, opening.left)


def _opening(log: Log, scope: str, cap: Cost, terms: Terms) -> Opening | None:
    """Return the first charge in a scope that basic composition with earlier charges refuses.

    **Guarantees.** The result depends only on the lines up to that charge, and never changes. All
    partitions share one opening. A record is charged in its partition and, with others, in the
    enclosing scopes; the same rules must account for it in both.
    """
    relation = terms["relation"]
    if terms["filter"] != "adaptive":
        return None
    key = scope, cap, relation
    if key not in log.openings and (found := _find_opening(log, scope, cap, relation)):
        log.openings[key] = found
    return log.openings.get(key)


def _find_opening(log: Log, scope: str, cap: Cost, relation: str) -> Opening | None:
    if sum_epsilons_and_deltas(charges_along_path(log, scope, scope), relation).is_within(cap):
        return None  # the sums grow, so all earlier ones were within the cap too
    counts: Counter[tuple[str, Event]] = Counter()
    plain = Cost(0.0, 0.0)
    for charge, path, body in log.reserves(scope):
        event = parse_event(body)
        one = sum_epsilons_and_deltas(Counter({event: 1}), relation)
        plain = Cost(plain.epsilon + one.epsilon, plain.delta + one.delta)
        if not plain.is_within(cap):  # else the sum fits even if all charges concern one record
            before = sum_charges([(p, e, n) for (p, e), n in counts.items()], scope, path)
            after = Account(cap, "adaptive", relation).with_added(before).with_charge(event)
            if after.opened is not None:
                return Opening(charge, event, after.opened)
        counts[path, event] += 1
    return None


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
