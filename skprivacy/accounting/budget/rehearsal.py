"""What a budget would say to a series of charges, without charging any."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from ..guarantee import PrivacyGuarantee
from .exported import lines_of
from .ledger import Ledger
from .log import COLUMNS, SCHEMA
from .privacy_budget import PrivacyBudget

__all__ = ["rehearse_charges"]


class _CopiedLedger(Ledger):
    """The lines of a ledger in a database of its own, where more can be tried."""

    _begin = ("BEGIN",)
    _counter = None  # trials do not count

    def __init__(self, address: str, connection: sqlite3.Connection) -> None:
        self.address, self._only = address, connection
        self.forget()

    def create_tables(
        self, statements: Sequence[str], fill: Callable[[Any], None] | None = None
    ) -> None:
        raise FileExistsError(self.address)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        yield self._only


def rehearse_charges(budget: PrivacyBudget, planned: Iterable[PrivacyGuarantee]) -> None:
    """Refuse a series of releases if a budget would refuse one of them.

    Parameters
    ----------
    budget : PrivacyBudget
        Nothing is charged to it.
    planned : iterable of PrivacyGuarantee
        What each release would guarantee, in their order.

    Raises
    ------
    BudgetExceededError
        By the first release that would not fit beside those before it.
    ValueError
        If one is stated for another relation or unit than the budget's.

    Notes
    -----
    **Edge cases.** Others may charge the budget meanwhile: that a series fits now promises
    nothing.
    """
    scope, lines = lines_of(budget)
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
