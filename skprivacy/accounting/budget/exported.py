"""A ledger that was exported: its lines can be checked and added up, but not added to."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from .._work import MAX_WORK, WorkLimitError
from .ledger import Ledger
from .log import COLUMNS, SCHEMA, LedgerError
from .scopes import count_memberships, event_of, scope_of
from .statement import Statement

__all__ = ["check_ledger_work", "lines_of", "statement_of"]


_MOST_WORK = 4 * MAX_WORK  # most compositions of a ledger are remembered or computed together
_WORK_PER_KIND = 100.0


class _ExportedLedger(Ledger):
    """The lines of a ledger, without the ledger.

    Parameters
    ----------
    address : str
        A name for error messages.
    lines : sequence of tuple
        What ``Ledger.records`` returned.
    """

    _counter = None  # it belongs to the ledger that was exported
    is_witnessed = True  # whoever passes the lines answers for their being all

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
                    f"{self.address} holds no lines of a ledger ({error})."
                ) from error


def lines_of(budget: Statement) -> tuple[str, list[list[Any]]]:
    """Return the scope of a budget, and all lines of its ledger, checked."""
    return budget._scope, [list(line) for line in budget._ledger.records()]


def statement_of(name: str, scope: str, lines: Sequence[Sequence[Any]]) -> Statement:
    """Return what the lines of a ledger say: its charges, their sum, and ``verify()``."""
    statement = Statement.__new__(Statement)
    statement._attach(_ExportedLedger(name, lines), scope_of(scope))
    return statement


def check_ledger_work(lines: Sequence[Sequence[Any]]) -> None:
    """Raise WorkLimitError if checking the caps of a stranger's ledger would take too long.

    Each cap is checked for the charges along each path below it and, if that fails, for each way
    in which a record can lie in partitions. The first charge that is composed tightly is looked
    for among all charges, with each kind of event before it.
    """
    charges = [(line[4], line[6]) for line in lines if line[1] == "reserve"]
    caps = {line[4] for line in lines if line[1] in ("budget", "scope")}
    work = 0.0
    for cap in caps:
        below = [(scope, body) for scope, body in charges if scope.startswith(cap)]
        paths, kinds = {scope for scope, _ in below}, {body for _, body in below}
        times = len(paths) + count_memberships(paths)
        work += times * sum(event_of(body).work() for body in kinds)
        work += _WORK_PER_KIND * len(below) * len(kinds)
    if not work <= _MOST_WORK:
        raise WorkLimitError(
            f"Checking the caps of this ledger would compute about {work:.0e} numbers; the limit "
            f"is {_MOST_WORK:.0e}. Ask for a certificate of a ledger with fewer scopes or charges."
        )
