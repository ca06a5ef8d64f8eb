"""Dry run of a series of charges against a budget, without charging it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from ..guarantee import PrivacyGuarantee
from .exported import export_lines
from .ledger import Ledger
from .log import COLUMNS, SCHEMA
from .privacy_budget import PrivacyBudget

__all__ = ["rehearse_charges"]


class _CopiedLedger(Ledger):
    """Copy of a ledger's lines in memory, to which trial charges are added."""

    _begin = ("BEGIN",)
    _counter = None  # trial charges do not move the counter

    def __init__(self, address: str, connection: sqlite3.Connection) -> None:
        self.address, self._memory = address, connection
        self.forget()

    def create_tables(
        self, statements: Sequence[str], fill: Callable[[Any], None] | None = None
    ) -> None:
        raise FileExistsError(self.address)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        yield self._memory


def rehearse_charges(budget: PrivacyBudget, planned: Iterable[PrivacyGuarantee]) -> None:
    """Raise the budget's error if it would refuse one of the planned releases, in order.

    Nothing is charged. **Edge cases.** Others may charge the budget before the releases, so a
    series that fits now may be refused later.
    """
    scope, lines = export_lines(budget)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in SCHEMA:
            connection.execute(statement)
        connection.executemany(
            f"INSERT INTO log ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", lines
        )
        copy = PrivacyBudget.__new__(PrivacyBudget)
        copy._attach(_CopiedLedger(f"a copy of {budget.path}", connection), scope)
        try:
            for number, release in enumerate(planned, 1):
                copy.reserve(release.event, f"Release {number}", release.relation, release.unit)
        finally:
            copy._ledger.forget()
