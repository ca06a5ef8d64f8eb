"""The ledger: an append-only, hash-chained log that several processes may share."""

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

__all__ = ["Ledger", "Seen", "counter_at", "ledger_at"]

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
    is_witnessed = False  # whether an older copy would lack a line that is known from elsewhere
    _begin: tuple[str, ...]  # statements that take the only write lock
    _guards: tuple[str, ...] = ()  # statements that create the triggers that forbid changes
    _guards_query = ""  # finds the triggers; empty where nobody else can write
    _guards_found: frozenset[tuple[Any, ...]]  # what it finds in a ledger as it was created

    def create(self, body: str) -> None:
        """Create the log with ``body`` as its first line; FileExistsError if there is a log."""
        self.create_tables(SCHEMA + self._guards, lambda connection: Log.begin(connection, body))
        self.is_witnessed = True

    @abstractmethod
    def create_tables(
        self, statements: Sequence[str], fill: Callable[[Any], None] | None = None
    ) -> None:
        """Create tables in one transaction; FileExistsError if there is something."""

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
        failure undid for one that was cut off. They are in the file that stands at the address. If
        the ledger has a counter, it covers them.
        """
        counter = self._counter
        # Before the lock is taken: the counter stands at a line that was committed.
        covered = None if counter is None else counter.read()
        place = self._place()
        with self._connection() as connection:
            try:
                for statement in self._begin:
                    connection.execute(statement)
                log = self._followed(connection)
                self._check_guards(connection)
                if counter is not None and covered is not None:
                    self._check_covered(connection, counter, covered)
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
        if counter is not None and covered is not None:
            self._move_counter(counter, covered, (log.tail.seq, log.tail.digest))

    @cached_property
    def _counter(self) -> Counter | None:
        """The counter that the first line names, which never changes."""
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

    def _check_covered(self, connection: Any, counter: Counter, covered: Seen) -> None:
        number, digest = covered
        if number and not _holds_line(connection, number, digest):
            raise LedgerError(
                f"The privacy ledger {self.address} is behind its counter {counter.address}: it "
                f"does not hold line {number} with the digest {digest[:16]}. It was restored from "
                "an older copy, or another copy of it was charged. Restore the latest copy."
            )

    def _move_counter(self, counter: Counter, covered: Seen, last: Seen) -> None:
        """Let the counter cover ``last``, unless it covers a later line of this ledger."""
        while covered[0] < last[0] and not counter.move(covered, last):
            covered = counter.read()
            with self._connection() as connection:
                self._check_covered(connection, counter, covered)

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
        if not _holds_line(connection, number, digest):
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
        """Raise LedgerError if the triggers that forbid changes are not those of its creation."""
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
    ledger.seen, ledger.is_witnessed = seen, seen is not None
    return ledger


def counter_at(address: str | Path) -> Counter:
    """Return the counter in a file, or at ``postgresql://user@host/database#name``."""
    from .counter import Counter

    return Counter(ledger_at(address))
