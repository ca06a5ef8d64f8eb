"""Ledger: an append-only, hash-chained log of charges that several processes may share.

Each line has a digest of itself and of all earlier lines. Start reading at
:meth:`Ledger.transaction`.

A monotonic counter outside the ledger detects a ledger restored from an older copy. It holds the
number and the digest of one line of the ledger, in a second SQLite file or in PostgreSQL. A
transaction follows three rules:

1. The ledger is committed first, then the counter is moved, then the charge is granted.
2. A transaction is refused if the ledger does not hold the counter's line.
3. The counter is moved by compare-and-swap, from a line that the ledger holds to a later line.

**Guarantees.** By rule 1 the counter covers every granted charge, so no older copy of the ledger
passes rule 2. The counter never leads the ledger. If a process dies between the two commits, the
counter lags by the lines of that transaction, whose charge was not granted and stays charged. The
next transaction catches up. By rule 3, if two copies of a ledger are charged at once, one is
refused.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from typing import Any, NamedTuple

from ..._files import displayable, parse_json

_TABLE = (
    "CREATE TABLE counter (line INTEGER NOT NULL, digest TEXT NOT NULL)",
    "INSERT INTO counter VALUES (0, '')",
)
_MAX_CACHED_LOGS = 16  # in the memory of a thread
LedgerVersion = tuple[int, str]  # number and digest of a line
_local = threading.local()
SCHEMA = (
    """
    CREATE TABLE log (
        seq INTEGER PRIMARY KEY,
        kind TEXT NOT NULL CHECK (
            kind IN ('budget', 'relation', 'scope', 'reserve', 'commit', 'fail')
        ),
        ref INTEGER,
        at DOUBLE PRECISION NOT NULL,
        scope TEXT NOT NULL,
        source TEXT NOT NULL,
        body TEXT NOT NULL,
        digest TEXT NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX outcomes ON log (ref) WHERE ref IS NOT NULL",
)
COLUMNS = "seq, kind, ref, at, scope, source, body, digest"


class LedgerError(OSError):
    """The ledger cannot be read, written or trusted; nothing may be released."""

    def __str__(self) -> str:
        return displayable(super().__str__())  # names of files and scopes are arbitrary


class Record(NamedTuple):
    """One line of the log; ``digest`` covers it and, by the previous digest, all earlier lines."""

    seq: int
    kind: str
    ref: int | None
    at: float
    scope: str
    source: str
    body: str
    digest: str


class Log:
    """Lines of a ledger in memory, each checked as it is read; ``address`` is for errors.

    **Guarantees.** All answers follow from lines whose digests were checked, and from nothing else:
    a line that is altered later cannot make an earlier charge cheaper.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection: Any = None
        self._reserves: list[tuple[int, str, str]] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self._counts_before: dict[int, Counter[tuple[str, str]]] = {}
        self._caps: dict[str, str] = {}
        self._outcomes: dict[int, str | None] = {}
        self._relation: str | None = None
        self.first = ""  # the body of the first line
        self.tail = Record(0, "", None, 0.0, "", "", "", "")
        self.openings: dict[Any, Any] = {}  # cache of admission._opening

    def follow(self, connection: Any) -> None:
        """Read and check the lines that were added since the last call."""
        query = f"SELECT {COLUMNS} FROM log WHERE seq >= ? ORDER BY seq"
        rows = connection.execute(query, (self.tail.seq,)).fetchall()
        lines = [Record(*row) for row in rows]
        if self.tail.seq and (not lines or lines.pop(0) != self.tail):
            raise self._altered(self.tail.seq)
        for line in lines:
            self._take(line)
        if not self.tail.seq:
            raise LedgerError(
                f"The privacy ledger {self._address} is empty. Restore it from a copy."
            )
        self._connection = connection

    @classmethod
    def begin(cls, connection: Any, body: str) -> None:
        """Write the first line into an empty table."""
        log = cls("")
        log._connection = connection
        log.append("budget", "/", "", body)

    def append(self, kind: str, scope: str, source: str, body: str, ref: int | None = None) -> int:
        """Add a line and return its number."""
        values = (self.tail.seq + 1, kind, ref, time.time(), scope, source, body)
        line = Record(*values, _digest(self.tail.digest, *values))
        self._connection.execute(
            f"INSERT INTO log ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", tuple(line)
        )
        self._take(line)
        return line.seq

    def _take(self, line: Record) -> None:
        number = self.tail.seq + 1
        if line.seq != number or line.digest != _digest(self.tail.digest, *line[:-1]):
            raise self._altered(number)
        if line.kind == "reserve":
            self._reserves.append((line.seq, line.scope, line.body))
            self._counts[line.scope, line.body] += 1
            self._outcomes[line.seq] = None
        elif line.kind in ("commit", "fail") and line.ref is not None:
            self._outcomes[line.ref] = line.kind
        elif line.kind == "relation":
            self._relation = line.body
        else:
            self._caps[line.scope] = line.body
        self.first = self.first or line.body
        self.tail = line

    def _altered(self, number: int) -> LedgerError:
        return LedgerError(
            f"The privacy ledger {self._address} was altered: line {number} does not match its "
            "digest. Nothing more is released from it. Restore it from a copy."
        )

    def charges(self, since: int = 0, before: int | None = None) -> list[tuple[str, str, int]]:
        """Count how often each event was reserved in each scope, whatever its outcome."""
        counts = self._counts if before is None else self._counts_up_to(before)
        if since:
            counts = counts - self._counts_up_to(since)
        return [(scope, body, n) for (scope, body), n in counts.items()]

    def _counts_up_to(self, before: int) -> Counter[tuple[str, str]]:
        if before not in self._counts_before:
            earlier = ((s, b) for seq, s, b in self._reserves if seq < before)
            self._counts_before[before] = Counter(earlier)
        return self._counts_before[before]

    def reserves(self, scope: str) -> Iterator[tuple[int, str, str]]:
        """Yield number, scope and event of the charges in and below a scope, in order."""
        return (line for line in self._reserves if line[1].startswith(scope))

    def scopes(self) -> dict[str, str]:
        """Return for every scope with a cap the body of the line that sets it."""
        return self._caps

    def settled(self) -> tuple[str | None, str | None]:
        """Return the relation and the unit if the first charge fixed them."""
        if self._relation is None:
            return None, None
        try:
            values = parse_json(self._relation)
            return values["relation"], values["unit"]
        except (ValueError, KeyError, TypeError):
            raise LedgerError(
                f"The privacy ledger was altered: its relation line reads {self._relation!r}. "
                "Restore it from a copy."
            ) from None

    def settle(self, relation: str, unit: str) -> None:
        """Append the line that fixes the relation and the unit of all charges."""
        body = json.dumps({"relation": relation, "unit": unit}, sort_keys=True)
        self.append("relation", "/", "", body)

    def outcome(self, ref: int) -> str | None:
        """Return the outcome of a charge, 'commit' or 'fail', or None if none is recorded."""
        if ref not in self._outcomes:
            raise ValueError(
                f"charge_id={ref!r} is not a charge of this ledger. Pass the charge_id of a "
                "receipt."
            )
        return self._outcomes[ref]


class Ledger(ABC):
    """Storage of a budget's log; refuses a log without the last line that this object has seen."""

    address: str  # as passed to ledger_at()
    seen: LedgerVersion | None = None
    is_witnessed = False  # whether an older copy would lack a line that is known from elsewhere
    _ledger_at: Callable[[str], Ledger]  # opens the ledger in which the counter is stored
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
        covered = None if counter is None else counter.read_version()
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
    def _counter(self) -> LedgerCounter | None:
        """Counter named in the first line, which never changes."""
        try:
            address = parse_json(self.read_log().first).get("counter")
        except (ValueError, AttributeError):  # Statement._terms refuses such a line
            return None
        return None if address is None else LedgerCounter(self._ledger_at(address))

    def check_guards_and_counter(self) -> None:
        """Raise LedgerError if the triggers were changed, or the counter's line is missing."""
        counter = self._counter
        covered = None if counter is None else counter.read_version()
        with self._connection() as connection:
            self._check_guards(connection)
            if counter is not None and covered is not None:
                self._check_covered(connection, counter, covered)

    def _check_covered(
        self, connection: Any, counter: LedgerCounter, covered: LedgerVersion
    ) -> None:
        number, digest = covered
        if number and not _holds_line(connection, number, digest):
            raise LedgerError(
                f"The privacy ledger {self.address} is behind its counter {counter.address}: it "
                f"does not hold line {number} with the digest {digest[:16]}. It was restored from "
                "an older copy, or another copy of it was charged. Restore the latest copy."
            )

    def _move_counter(
        self, counter: LedgerCounter, covered: LedgerVersion, last: LedgerVersion
    ) -> None:
        """Move the counter to ``last``, unless it covers a later line of this ledger."""
        while covered[0] < last[0] and not counter.move(covered, last):
            covered = counter.read_version()
            with self._connection() as connection:
                self._check_covered(connection, counter, covered)

    def _file_identity(self) -> Any:
        """Return the identity of the file at the address; None if it is not a file."""
        return None

    def read_log(self) -> Log:
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

    def _check_guards(self, connection: Any) -> None:
        """Raise LedgerError if the triggers that forbid changes were themselves changed."""
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


class LedgerCounter:
    """The last granted line of a ledger, stored in another file or in PostgreSQL."""

    def __init__(self, store: Ledger) -> None:
        self._store = store
        self.address = store.address

    def create(self) -> LedgerVersion:
        """Create the counter at line 0 if it does not exist, and return its line."""
        try:
            with self._name_counter_in_errors():
                self._store.create_tables(_TABLE)
        except FileExistsError:
            return self.read_version()
        return 0, ""

    def read_version(self) -> LedgerVersion:
        """Return the number and the digest of the counter's line."""
        with self._name_counter_in_errors(), self._store._connection() as connection:
            rows = connection.execute("SELECT line, digest FROM counter").fetchall()
        if len(rows) != 1:
            raise LedgerError(
                f"The counter {self.address} of a privacy ledger holds {len(rows)} lines instead "
                "of one. Restore it from a copy."
            )
        line, digest = rows[0]
        return line, digest

    def move(self, known: LedgerVersion, last: LedgerVersion) -> bool:
        """Move from ``known`` to ``last``; return False if another process moved it before."""
        with self._name_counter_in_errors(), self._store._connection() as connection:
            updated = connection.execute(
                "UPDATE counter SET line = ?, digest = ? WHERE line = ? AND digest = ?",
                (*last, *known),
            )
            return bool(updated.rowcount)

    @contextmanager
    def _name_counter_in_errors(self) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise
        except LedgerError as error:
            raise LedgerError(
                f"The counter {self.address} of a privacy ledger cannot be used "
                f"({error.__cause__ or error}). A charge is granted only once the counter covers "
                "it. Make the counter reachable, or restore it from a copy."
            ) from error.__cause__


def _holds_line(connection: Any, number: int, digest: str) -> bool:
    row = connection.execute("SELECT digest FROM log WHERE seq = ?", (number,)).fetchone()
    return row is not None and bool(row[0] == digest)


def _cached_logs() -> dict[str, Log]:
    """Return the logs cached by this thread, by address, least recently used first."""
    found: dict[str, Log] = _local.__dict__.setdefault("logs", {})
    return found


def _digest(previous: str, *values: Any) -> str:
    try:
        text = json.dumps([previous, *values], separators=(",", ":"), ensure_ascii=True)
    except TypeError:  # a value has not the type of its column: the line was altered
        return ""
    return hashlib.sha256(text.encode()).hexdigest()
