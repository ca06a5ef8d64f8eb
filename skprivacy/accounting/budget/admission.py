"""Admission control: check a charge against the caps of its scope and all enclosing scopes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ..._input import parse_json
from ..events import Event
from .filters import Account
from .log import LedgerError, Log
from .rules import Cost, Counts, sum_epsilons_and_deltas
from .scopes import (
    charges_along_path,
    charges_of_record,
    iter_memberships,
    parse_event,
    sum_charges,
)

__all__ = [
    "MANY",
    "Refusal",
    "Terms",
    "check_caps",
    "count_fitting",
    "find_refusal",
    "is_within_cap",
    "parse_cap",
]

MANY = 1 << 40  # largest count of further charges

Charged = Callable[..., Counts]  # takes the line numbers ``since`` and ``before``
Terms = dict[str, Any]  # epsilon, delta, relation and filter of the whole budget


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


def parse_cap(body: str) -> Cost:
    """Read the cap from the body of a ledger line."""
    terms = parse_json(body)
    return Cost(terms["epsilon"], terms["delta"])


def find_refusal(log: Log, leaf: str, event: Event, terms: Terms) -> Refusal | None:
    """Return a refusal if a charge of ``event`` would exceed the cap of ``leaf`` or its parents."""
    for scope, before in _accounts(log, leaf, terms).items():
        after = before.with_charge(event)
        if not after.is_admitted():
            return Refusal(scope, before, after)
    return None


def count_fitting(log: Log, leaf: str, event: Event, terms: Terms, most: int = MANY) -> int:
    """Return how many more of ``event``, up to about ``most``, would be admitted."""
    accounts = _accounts(log, leaf, terms).values()

    def fits(count: int) -> bool:
        return all(account.with_charge(event, count).is_admitted() for account in accounts)

    low, high = 0, 1
    while high < 2 * most and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


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


def _accounts(log: Log, leaf: str, terms: Terms) -> dict[str, Account]:
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
