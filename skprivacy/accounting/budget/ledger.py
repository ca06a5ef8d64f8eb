"""The ledger: an append-only, hash-chained log that several processes may share."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from .log import COLUMNS, LedgerError, Log, Record

__all__ = ["Ledger", "Seen", "ledger_at"]

_KEPT = 16  # logs that a thread keeps in memory

Seen = tuple[int, str]  # number and digest of a line


class Ledger(ABC):
    """Storage of a budget's log.

    Notes
    -----
    **Guarantees.** A ledger remembers the last line that it has seen. One that does not contain
    it any more was replaced, cut or restored from an older copy, and is refused.
    """

    address: str  # as passed to ledger_at()
    seen: Seen | None = None
    _begin: tuple[str, ...]  # statements that take the only write lock
    _guards: str  # query for the names of the triggers that forbid changes
    _n_guards: int

    @abstractmethod
    def create(self, body: str) -> None:
        """Create the log with ``body`` as its first line; FileExistsError if there is a log."""

    @abstractmethod
    def _connection(self) -> AbstractContextManager[Any]:
        """Give a connection that nobody else uses, which raises its errors as LedgerError."""

    def _broken(self, error: BaseException) -> LedgerError:
        return LedgerError(
            f"The privacy ledger {self.address} cannot be used ({error}). Check that it exists, is "
            "writable, is not locked by a stuck process and that its disk is not full; restore it "
            "from a copy if it is damaged."
        )

    @contextmanager
    def transaction(self) -> Iterator[Log]:
        """Hold the only write lock; commit on leaving, roll back on an error.

        **Guarantees.** On return, the new lines are on the disk. Outcomes too: budgets remember
        the last line that they have seen, and auditors its digest, and would take one that a power
        failure undid for one that was cut off. They are in the file that stands at the address.
        """
        place = self._place()
        with self._connection() as connection:
            try:
                for statement in self._begin:
                    connection.execute(statement)
                log = self._followed(connection)
                yield log
                connection.execute("COMMIT")
            except BaseException:
                with suppress(Exception):  # the first error is the one to report
                    connection.execute("ROLLBACK")
                raise
        if self._place() != place:
            raise LedgerError(
                f"The privacy ledger {self.address} was replaced or deleted while it was written; "
                "what was written is gone with the earlier file. Find out what handles the file, "
                "such as a backup that restores it or a service that synchronises folders."
            )
        self._keep(log)  # only now: until then it held lines that were not yet written

    def _place(self) -> Any:
        """Return what tells the file at the address from another one, if it is a file."""
        return None

    def read(self) -> Log:
        """Return the log as it is now, without a lock that others wait for."""
        with self._connection() as connection:
            log = self._followed(connection)
        self._keep(log)
        return log

    def forget(self) -> None:
        """Read and check every line anew when the ledger is needed next."""
        _logs().pop(self.address, None)

    def _followed(self, connection: Any) -> Log:
        log = _logs().pop(self.address, None) or Log(self.address)
        try:
            log.follow(connection)
        except LedgerError:  # there may be another ledger at this address by now
            log = Log(self.address)
            log.follow(connection)
        self._check_identity(connection)
        return log

    def _keep(self, log: Log) -> None:
        if self.seen is None or self.seen[0] < log.tail.seq:  # another thread may have read more
            self.seen = log.tail.seq, log.tail.digest
        logs = _logs()
        logs[self.address] = log
        while len(logs) > _KEPT:
            logs.pop(next(iter(logs)))

    def _check_identity(self, connection: Any) -> None:
        if self.seen is None:
            return
        number, digest = self.seen
        row = connection.execute("SELECT digest FROM log WHERE seq = ?", (number,)).fetchone()
        if row is None or row[0] != digest:
            raise LedgerError(
                f"The privacy ledger {self.address} is not the one that this budget has used: its "
                f"line {number} is another or is missing. It was replaced, cut, or restored from "
                "an older copy. Restore it, or open what is there now with "
                "PrivacyBudget.open(path) if that is meant."
            )

    def records(self) -> list[Record]:
        """Return the whole log after reading all of it anew and checking it against its digests.

        Raises
        ------
        LedgerError
            If a line is missing, altered or out of order, or the ledger is another one.
        """
        self.forget()
        with self._connection() as connection:
            self._followed(connection)
            rows = connection.execute(f"SELECT {COLUMNS} FROM log ORDER BY seq").fetchall()
        return [Record(*row) for row in rows]

    def check_guards(self) -> None:
        """Raise LedgerError if the triggers that forbid changes are gone."""
        with self._connection() as connection:
            found = len(connection.execute(self._guards).fetchall())
        if found < self._n_guards:
            raise LedgerError(
                f"The privacy ledger {self.address} has {found} of the {self._n_guards} triggers "
                "that forbid changes: somebody has removed them. Find out why, and restore the "
                "ledger from a copy."
            )


_local = threading.local()


def _logs() -> dict[str, Log]:
    """Return the logs in this thread's memory, by address, the least recently used first."""
    found: dict[str, Log] = _local.__dict__.setdefault("logs", {})
    return found


def ledger_at(address: str | Path, seen: Seen | None = None) -> Ledger:
    """Return the ledger in a file, or at ``postgresql://user@host/database#name``."""
    ledger: Ledger
    if str(address).startswith(("postgresql://", "postgres://")):
        from .postgres import PostgresLedger

        ledger = PostgresLedger(str(address))
    else:
        from .sqlite import SQLiteLedger

        ledger = SQLiteLedger(address)
    ledger.seen = seen
    return ledger
