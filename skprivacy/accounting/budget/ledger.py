"""Ledger: an append-only, hash-chained log that several processes may share."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._input import parse_json
from .log import COLUMNS, SCHEMA, LedgerError, Log, Record

if TYPE_CHECKING:
    from .counter import Counter

__all__ = ["Ledger", "LedgerVersion", "counter_at", "ledger_at"]

_MAX_CACHED_LOGS = 16  # in the memory of a thread

LedgerVersion = tuple[int, str]  # number and digest of a line


class Ledger(ABC):
    """Storage of a budget's log.

    **Guarantees.** A ledger object stores the last line that it has seen. A log without that line
    was replaced, cut or restored from an older copy, and is refused.
    """

    address: str  # as passed to ledger_at()
    seen: LedgerVersion | None = None
    is_witnessed = False  # whether an older copy would lack a line that is known from elsewhere
    _begin: tuple[str, ...]  # statements that take the only write lock
    _guards: tuple[str, ...] = ()  # statements that create the triggers that forbid changes
    _guards_query = ""  # finds the triggers; empty where nobody else can write
    _guards_found: frozenset[tuple[Any, ...]]  # the query's rows in a new ledger

    def create(self, body: str) -> None:
        """Create the log with ``body`` as its first line; FileExistsError if a log exists."""
        self.create_tables(SCHEMA + self._guards, lambda connection: Log.begin(connection, body))
        self.is_witnessed = True

    @abstractmethod
    def create_tables(
        self, statements: Sequence[str], fill: Callable[[Any], None] | None = None
    ) -> None:
        """Create tables in one transaction; FileExistsError if the address is in use."""

    @abstractmethod
    def _connection(self) -> AbstractContextManager[Any]:
        """Open a connection for exclusive use, which raises its errors as LedgerError."""

    def _unusable_error(self, error: BaseException) -> LedgerError:
        return LedgerError(
            f"The privacy ledger {self.address} cannot be used ({error}). Check that it exists, is "
            "writable, is not locked by a stuck process and that its disk is not full; restore it "
            "from a copy if it is damaged."
        )

    @contextmanager
    def transaction(self) -> Iterator[Log]:
        """Hold the only write lock; commit on leaving, roll back on an error.

        **Guarantees.** On return, the new lines are on the disk, in the file at the address, and
        the counter covers them if there is one. This includes outcomes: budgets store the last line
        that they have seen, and auditors its digest. They would read a line that a power failure
        undid as a line that was cut off.
        """
        counter = self._counter
        # Read before the lock is taken, so the counter stands at a committed line.
        covered = None if counter is None else counter.read()
        place = self._file_identity()
        with self._connection() as connection:
            try:
                for statement in self._begin:
                    connection.execute(statement)
                log = self._read_log(connection)
                self._check_guards(connection)
                if counter is not None and covered is not None:
                    self._check_covered(connection, counter, covered)
                yield log
                connection.execute("COMMIT")
            except BaseException:
                with suppress(Exception):  # the first error is the one to report
                    connection.execute("ROLLBACK")
                raise
        if self._file_identity() != place:
            raise LedgerError(
                f"The privacy ledger {self.address} was replaced or deleted while it was written; "
                "what was written is gone with the earlier file. Find out what handles the file, "
                "such as a backup that restores it or a service that synchronises folders."
            )
        self._keep(log)  # not earlier, since it held lines that were not yet written
        if counter is not None and covered is not None:
            self._move_counter(counter, covered, (log.tail.seq, log.tail.digest))

    @cached_property
    def _counter(self) -> Counter | None:
        """Counter named in the first line, which never changes."""
        from .counter import Counter

        try:
            address = parse_json(self.read().first).get("counter")
        except (ValueError, AttributeError):  # Handle._terms refuses such a line
            return None
        return None if address is None else Counter(self._ledger_at(address))

    def _ledger_at(self, address: str) -> Ledger:
        """Return the ledger at another address: the one in which the counter is stored."""
        raise NotImplementedError(f"{type(self).__name__} has no counter.")

    def check_counter(self) -> None:
        """Raise LedgerError if the ledger does not hold the line at which its counter stands."""
        if (counter := self._counter) is not None:
            covered = counter.read()
            with self._connection() as connection:
                self._check_covered(connection, counter, covered)

    def _check_covered(self, connection: Any, counter: Counter, covered: LedgerVersion) -> None:
        number, digest = covered
        if number and not _holds_line(connection, number, digest):
            raise LedgerError(
                f"The privacy ledger {self.address} is behind its counter {counter.address}: it "
                f"does not hold line {number} with the digest {digest[:16]}. It was restored from "
                "an older copy, or another copy of it was charged. Restore the latest copy."
            )

    def _move_counter(self, counter: Counter, covered: LedgerVersion, last: LedgerVersion) -> None:
        """Move the counter to ``last``, unless it covers a later line of this ledger."""
        while covered[0] < last[0] and not counter.move(covered, last):
            covered = counter.read()
            with self._connection() as connection:
                self._check_covered(connection, counter, covered)

    def _file_identity(self) -> Any:
        """Return the identity of the file at the address; None if it is not a file."""
        return None

    def read(self) -> Log:
        """Read the current log without a lock that blocks others."""
        with self._connection() as connection:
            log = self._read_log(connection)
        self._keep(log)
        return log

    def forget(self) -> None:
        """Drop the cached log, so that the next use reads and checks every line again."""
        _cached_logs().pop(self.address, None)

    def _read_log(self, connection: Any) -> Log:
        log = _cached_logs().pop(self.address, None) or Log(self.address)
        try:
            log.follow(connection)
        except LedgerError:  # another ledger may stand at this address by now
            log = Log(self.address)
            log.follow(connection)
        self._check_identity(connection)
        return log

    def _keep(self, log: Log) -> None:
        if self.seen is None or self.seen[0] < log.tail.seq:  # another thread may have read more
            self.seen = log.tail.seq, log.tail.digest
        logs = _cached_logs()
        logs[self.address] = log
        while len(logs) > _MAX_CACHED_LOGS:
            logs.pop(next(iter(logs)))

    def _check_identity(self, connection: Any) -> None:
        if self.seen is None:
            return
        number, digest = self.seen
        if not _holds_line(connection, number, digest):
            raise LedgerError(
                f"The privacy ledger {self.address} is not the one that this budget has used: its "
                f"line {number} is another or is missing. It was replaced, cut, or restored from "
                "an older copy. Restore it, or open the new ledger on purpose with "
                "PrivacyBudget.open(path)."
            )

    def records(self) -> list[Record]:
        """Read the whole log again and check it against its digests."""
        self.forget()
        with self._connection() as connection:
            self._read_log(connection)
            rows = connection.execute(f"SELECT {COLUMNS} FROM log ORDER BY seq").fetchall()
        return [Record(*row) for row in rows]

    def check_guards(self) -> None:
        """Raise LedgerError if the triggers that forbid changes were themselves changed."""
        with self._connection() as connection:
            self._check_guards(connection)

    def _check_guards(self, connection: Any) -> None:
        if not self._guards_query:
            return
        found = {tuple(row) for row in connection.execute(self._guards_query).fetchall()}
        if found != self._guards_found:
            kept = len(found & self._guards_found)
            added = len(found - self._guards_found)
            raise LedgerError(
                f"The privacy ledger {self.address} has {kept} of the {len(self._guards_found)} "
                f"triggers that forbid changes, and {added} others: somebody has changed them. "
                "Find out why, and restore the ledger from a copy."
            )


def _holds_line(connection: Any, number: int, digest: str) -> bool:
    row = connection.execute("SELECT digest FROM log WHERE seq = ?", (number,)).fetchone()
    return row is not None and bool(row[0] == digest)


_local = threading.local()


def _cached_logs() -> dict[str, Log]:
    """Return the logs cached by this thread, by address, least recently used first."""
    found: dict[str, Log] = _local.__dict__.setdefault("logs", {})
    return found


def ledger_at(address: str | Path, seen: LedgerVersion | None = None) -> Ledger:
    """Return the ledger in a file, or at ``postgresql://user@host/database#name``."""
    ledger: Ledger
    if str(address).startswith(("postgresql://", "postgres://")):
        from .postgres import PostgresLedger

        ledger = PostgresLedger(str(address))
    else:
        from .sqlite import SQLiteLedger

        ledger = SQLiteLedger(address)
    ledger.seen, ledger.is_witnessed = seen, seen is not None
    return ledger


def counter_at(address: str | Path) -> Counter:
    """Return the counter in a file, or at ``postgresql://user@host/database#name``."""
    from .counter import Counter

    return Counter(ledger_at(address))
