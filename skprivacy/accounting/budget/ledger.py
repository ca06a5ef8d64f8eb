"""The ledger: an append-only, hash-chained log that many processes may share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from .log import COLUMNS, LedgerError, Log, Record, digest_of

__all__ = ["Ledger", "ledger_at"]


class Ledger(ABC):
    """Where a budget's log is kept."""

    address: str  # what ledger_at() finds it by
    _begin: tuple[str, ...]  # takes the only write lock

    @abstractmethod
    def create(self, body: str) -> None:
        """Make the log, with ``body`` as its first line; FileExistsError if there is one."""

    @abstractmethod
    def _connection(self) -> AbstractContextManager[Any]:
        """Open a connection of its own, whose errors are LedgerErrors."""

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
                with suppress(Exception):  # the first error is the one to tell
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def first(self) -> str:
        """Return the body that the ledger was created with."""
        with self._connection() as connection:
            row = connection.execute("SELECT body FROM log WHERE seq = 1").fetchone()
        if row is None:
            raise LedgerError(f"The privacy ledger {self.address} is empty.")
        return str(row[0])

    def records(self) -> list[Record]:
        """Return the whole log, checked against its digests.

        Raises
        ------
        LedgerError
            If a line is missing, altered or out of place.
        """
        with self._connection() as connection:
            rows = connection.execute(f"SELECT {COLUMNS} FROM log ORDER BY seq").fetchall()
        records = [Record(*row) for row in rows]
        previous = ""
        for place, record in enumerate(records, start=1):
            if record.seq != place or record.digest != digest_of(previous, *record[:-1]):
                raise LedgerError(
                    f"The privacy ledger {self.address} was altered: line {place} does not fit its "
                    "digest. Nothing more will be released from it."
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
