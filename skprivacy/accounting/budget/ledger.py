"""The ledger: an append-only, hash-chained log that several processes may share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from .log import COLUMNS, LedgerError, Log, Record, digest_of

__all__ = ["Ledger", "ledger_at"]


class Ledger(ABC):
    """Storage of a budget's log."""

    address: str  # as passed to ledger_at()
    _begin: tuple[str, ...]  # statements that take the only write lock

    @abstractmethod
    def create(self, body: str) -> None:
        """Create the log with ``body`` as its first line; FileExistsError if there is a log."""

    @abstractmethod
    def _connection(self) -> AbstractContextManager[Any]:
        """Open a new connection, which raises its errors as LedgerError."""

    def _broken(self, error: BaseException) -> LedgerError:
        return LedgerError(
            f"The privacy ledger {self.address} cannot be used ({error}); nothing was released. "
            "Check that it exists, is writable, is not locked by a stuck process and that its disk "
            "is not full; restore it from a copy if it is damaged."
        )

    @contextmanager
    def transaction(self) -> Iterator[Log]:
        """Hold the only write lock; commit on leaving, roll back on an error."""
        with self._connection() as connection:
            for statement in self._begin:
                connection.execute(statement)
            try:
                log = Log(connection)
                log.check_tail()
                yield log
            except BaseException:
                with suppress(Exception):  # the first error is the one to report
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def first(self) -> str:
        """Return the body that the ledger was created with."""
        with self._connection() as connection:
            row = connection.execute("SELECT body FROM log WHERE seq = 1").fetchone()
        if row is None:
            raise LedgerError(
                f"The privacy ledger {self.address} is empty; nothing was released. Restore it "
                "from a copy."
            )
        return str(row[0])

    def records(self) -> list[Record]:
        """Return the whole log after checking it against its digests.

        Raises
        ------
        LedgerError
            If a line is missing, altered or out of order.
        """
        with self._connection() as connection:
            rows = connection.execute(f"SELECT {COLUMNS} FROM log ORDER BY seq").fetchall()
        records = [Record(*row) for row in rows]
        previous = ""
        for number, record in enumerate(records, start=1):
            if record.seq != number or record.digest != digest_of(previous, *record[:-1]):
                raise LedgerError(
                    f"The privacy ledger {self.address} was altered: line {number} does not match "
                    "its digest. Nothing more is released from it. Restore it from a copy."
                )
            previous = record.digest
        return records


def ledger_at(address: str | Path) -> Ledger:
    """Return the ledger in a file, or at ``postgresql://user@host/database#name``."""
    if str(address).startswith(("postgresql://", "postgres://")):
        from .postgres import PostgresLedger

        return PostgresLedger(str(address))
    from .sqlite import SQLiteLedger

    return SQLiteLedger(address)
