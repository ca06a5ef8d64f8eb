"""Exported ledgers: copies that can be verified, summed and charged on trial, but not extended.

Start reading at :func:`open_exported_ledger`; :func:`rehearse_charges` charges such a copy.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from ..guarantee import PrivacyGuarantee
from ..work_limit import MAX_WORK, WorkLimitError
from .admission import count_memberships, parse_event, scope_of
from .budget import PrivacyBudget
from .ledger import COLUMNS, SCHEMA, Ledger, LedgerError
from .statement import Statement

_MAX_LEDGER_WORK = 4 * MAX_WORK  # caching saves most of the compositions of a ledger
_WORK_PER_KIND = 100.0


def export_lines(budget: Statement) -> tuple[str, list[list[Any]]]:
    """Return the scope of a budget and all verified lines of its ledger."""
    return budget._scope, [list(line) for line in budget._ledger.records()]


def open_exported_ledger(name: str, scope: str, lines: Sequence[Sequence[Any]]) -> Statement:
    """Open the lines of a ledger read-only, to sum its charges and ``verify()`` it."""
    statement = Statement.__new__(Statement)
    statement._attach(_MemoryLedger(name, lines), scope_of(scope))
    return statement


def rehearse_charges(budget: PrivacyBudget, planned: Iterable[PrivacyGuarantee]) -> None:
    """Raise the budget's error if it would now refuse one of the planned releases, in order."""
    scope, lines = export_lines(budget)
    copy = PrivacyBudget.__new__(PrivacyBudget)
    copy._attach(_MemoryLedger(f"a copy of {budget.path}", lines), scope)
    try:
        for number, release in enumerate(planned, 1):
            copy.reserve(release.event, f"Release {number}", release.relation, release.unit)
    finally:
        copy._ledger.forget()


def check_ledger_work(lines: Sequence[Sequence[Any]]) -> None:
    """Raise WorkLimitError if checking the caps of a stranger's ledger would take too long."""
    charges = [(line[4], line[6]) for line in lines if line[1] == "reserve"]
    caps = {line[4] for line in lines if line[1] in ("budget", "scope")}
    work = 0.0
    for cap in caps:
        below = [(scope, body) for scope, body in charges if scope.startswith(cap)]
        paths, kinds = {scope for scope, _ in below}, {body for _, body in below}
        times = len(paths) + count_memberships(paths)
        work += times * sum(parse_event(body).work() for body in kinds)
        work += _WORK_PER_KIND * len(below) * len(kinds)
    if not work <= _MAX_LEDGER_WORK:
        raise WorkLimitError(
            f"Checking the caps of this ledger would compute about {work:.0e} numbers; the limit "
            f"is {_MAX_LEDGER_WORK:.0e}. Ask for a certificate of a ledger with fewer scopes or "
            "charges."
        )


class _MemoryLedger(Ledger):
    """Ledger of given lines (``Ledger.records``) in memory, which takes trial charges."""

    _begin = ("BEGIN",)
    _counter = None  # the counter belongs to the original ledger
    is_witnessed = True  # the caller is responsible for passing all lines

    def __init__(self, address: str, lines: Sequence[Sequence[Any]]) -> None:
        self.address = address
        self._lines = [tuple(line) for line in lines]
        self.forget()

    def create_tables(
        self, statements: Sequence[str], fill: Callable[[Any], None] | None = None
    ) -> None:
        raise FileExistsError(self.address)

    @cached_property
    def _memory(self) -> sqlite3.Connection:
        memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, memory.close)
        for statement in SCHEMA:
            memory.execute(statement)
        memory.executemany(
            f"INSERT INTO log ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self._lines
        )
        return memory

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._memory
        except (sqlite3.Error, OverflowError) as error:
            raise LedgerError(
                f"{self.address} does not hold lines of a ledger ({error})."
            ) from error
