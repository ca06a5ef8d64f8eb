"""Exported ledgers: lines that can be verified and summed, but not extended."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from .._work import MAX_WORK, WorkLimitError
from .ledger import Ledger
from .log import COLUMNS, SCHEMA, LedgerError
from .scopes import count_memberships, parse_event, scope_of
from .statement import Statement

__all__ = ["check_ledger_work", "export_lines", "open_exported_ledger"]


_MAX_LEDGER_WORK = 4 * MAX_WORK  # caching saves most of the compositions of a ledger
_WORK_PER_KIND = 100.0


class _ExportedLedger(Ledger):
    """Read-only ledger of given lines (``Ledger.records``); ``address`` names it in errors."""

    _counter = None  # the counter belongs to the original ledger
    is_witnessed = True  # the caller is responsible for passing all lines

    def __init__(self, address: str, lines: Sequence[Sequence[Any]]) -> None:
        self.address = address
        self._lines = [tuple(line) for line in lines]
        self.forget()

    def create_tables(
        self, statements: Sequence[str], fill: Callable[[Any], None] | None = None
    ) -> None:
        raise LedgerError(f"{self.address} is a copy of a ledger and cannot be written to.")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            try:
                connection.execute(SCHEMA[0])
                connection.executemany(
                    f"INSERT INTO log ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self._lines
                )
                connection.execute("PRAGMA query_only=ON")
                yield connection
            except (sqlite3.Error, OverflowError) as error:
                raise LedgerError(
                    f"{self.address} does not hold lines of a ledger ({error})."
                ) from error


def export_lines(budget: Statement) -> tuple[str, list[list[Any]]]:
    """Return the scope of a budget and all verified lines of its ledger."""
    return budget._scope, [list(line) for line in budget._ledger.records()]


def open_exported_ledger(name: str, scope: str, lines: Sequence[Sequence[Any]]) -> Statement:
    """Open the lines of a ledger read-only, to sum its charges and ``verify()`` it."""
    statement = Statement.__new__(Statement)
    statement._attach(_ExportedLedger(name, lines), scope_of(scope))
    return statement


def check_ledger_work(lines: Sequence[Sequence[Any]]) -> None:
    """Raise WorkLimitError if checking the caps of a stranger's ledger would take too long.

    Each cap is checked for the charges along each path below it. If that fails, it is checked for
    each way in which a record can lie in partitions. The search for the first tightly composed
    charge takes one step for each charge and each kind of event.
    """
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
