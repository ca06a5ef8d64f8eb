"""The ledger: an append-only, hash-chained log that many processes may share."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Ledger", "LedgerError", "Record", "SQLiteLedger", "ledger_at"]

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
        who TEXT NOT NULL,
        body TEXT NOT NULL,
        digest TEXT NOT NULL
    )
    """,
    "CREATE INDEX charges ON log (kind, scope, body)",
    "CREATE UNIQUE INDEX outcomes ON log (ref) WHERE ref IS NOT NULL",
)
_GUARDS = (
    "CREATE TRIGGER no_update BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'append only'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'append only'); END",
)
_LAST = 2**31 - 1  # of what PostgreSQL holds as an INTEGER
_COLUMNS = "seq, kind, ref, at, scope, who, body, digest"


class LedgerError(OSError):
    """The ledger cannot be read, written or trusted; nothing may be released."""


class Record(NamedTuple):
    """One line of the log; ``digest`` covers it and, through the line before, all earlier ones."""

    seq: int
    kind: str
    ref: int | None
    at: float
    scope: str
    who: str
    body: str
    digest: str


def _digest(previous: str, *values: Any) -> str:
    text = json.dumps([previous, *values], separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


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
    def transaction(self) -> Iterator[_Log]:
        """Hold the only write lock; commit on leaving, roll back on an error."""
        with self._connection() as connection:
            for statement in self._begin:
                connection.execute(statement)
            try:
                log = _Log(connection)
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
        return row[0]

    def records(self) -> list[Record]:
        """Return the whole log, checked against its digests.

        Raises
        ------
        LedgerError
            If a line is missing, altered or out of place.
        """
        with self._connection() as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM log ORDER BY seq").fetchall()
        records = [Record(*row) for row in rows]
        previous = ""
        for place, record in enumerate(records, start=1):
            if record.seq != place or record.digest != _digest(previous, *record[:-1]):
                raise LedgerError(
                    f"The privacy ledger {self.address} was altered: line {place} does not fit its "
                    "digest. Nothing more will be released from it."
                )
            previous = record.digest
        return records


def ledger_at(address: str | Path) -> Ledger:
    """Return the ledger in a file, or at ``postgresql://user@host/database#name``."""
    if str(address).startswith(("postgresql://", "postgres://")):
        from ._postgres import PostgresLedger

        return PostgresLedger(str(address))
    return SQLiteLedger(address)


class SQLiteLedger(Ledger):
    """A log file.

    Parameters
    ----------
    path : str or Path
    timeout : float, default=60.0
        Seconds to wait for another process's transaction.

    Notes
    -----
    Every operation opens its own connection, so that nothing is shared across threads or ``fork``.
    Commits reach the disk (write-ahead log, ``synchronous=FULL``) before they return.
    """

    _begin = ("BEGIN IMMEDIATE",)

    def __init__(self, path: str | Path, timeout: float = 60.0) -> None:
        self.path = Path(path).resolve()
        self.address = str(self.path)
        self.timeout = timeout

    def _missing(self, error: BaseException) -> LedgerError:
        return LedgerError(
            f"There is no privacy ledger at {self.address} ({error}); nothing was released. A "
            "budget that was pickled, alone or with a model, remembers where its ledger is, not "
            "what is in it: bring the file back to this place, or use a budget on another ledger. "
            "A missing ledger is never made anew."
        )

    def create(self, body: str) -> None:
        # Made elsewhere and linked into place: nobody ever sees half a ledger.
        draft = SQLiteLedger(self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex}"))
        try:
            draft.path.touch(exist_ok=False)
            draft._fill(body)
            os.link(draft.path, self.path)
        except FileExistsError:
            raise
        except LedgerError as error:  # which names the draft
            raise self._broken(error.__cause__ or error) from error.__cause__
        except OSError as error:
            raise self._broken(error) from error
        finally:
            for rest in ("", "-wal", "-shm"):  # SQLite's, if it could not tidy up
                Path(f"{draft.path}{rest}").unlink(missing_ok=True)

    def _fill(self, body: str) -> None:
        with self._connection() as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            for statement in SCHEMA + _GUARDS:
                connection.execute(statement)
        with self.transaction() as log:
            log.append("budget", "/", "", body)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            uri = f"{self.path.as_uri()}?mode=rw"
            opened = sqlite3.connect(
                uri, uri=True, timeout=self.timeout, isolation_level=None, check_same_thread=False
            )
            with closing(opened) as connection:
                connection.execute("PRAGMA synchronous=FULL")
                yield connection
        except sqlite3.Error as error:
            found = self.path.exists()
            raise (self._broken if found else self._missing)(error) from error


class _Log:
    """The log, within a transaction."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def _last(self, count: int) -> list[Record]:
        query = f"SELECT {_COLUMNS} FROM log ORDER BY seq DESC LIMIT ?"
        return [Record(*row) for row in self._connection.execute(query, (count,))]

    def check_tail(self) -> None:
        """Refuse to go on from a last line that does not follow from the one before it."""
        tail = self._last(2)
        previous = tail[1].digest if len(tail) > 1 else ""
        if tail and tail[0].digest != _digest(previous, *tail[0][:-1]):
            raise LedgerError(
                f"The privacy ledger was altered at line {tail[0].seq}; nothing was released."
            )

    def append(self, kind: str, scope: str, who: str, body: str, ref: int | None = None) -> int:
        """Add a line and return its number."""
        tail = self._last(1)
        seq, previous = (tail[0].seq + 1, tail[0].digest) if tail else (1, "")
        values = (seq, kind, ref, time.time(), scope, who, body)
        self._connection.execute(
            f"INSERT INTO log ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*values, _digest(previous, *values)),
        )
        return seq

    def charges(self, since: int = 0, before: int | None = None) -> list[tuple[str, str, int]]:
        """Return how often each event was reserved in each scope, whatever became of it."""
        return self._connection.execute(
            "SELECT scope, body, COUNT(*) FROM log WHERE kind = 'reserve' AND seq >= ? AND seq < ? "
            "GROUP BY scope, body",
            (since, _LAST if before is None else before),
        ).fetchall()

    def reserves(self, scope: str) -> Iterator[tuple[int, str, str]]:
        """Yield number, scope and event of the charges in and below a scope, as they came."""
        last = 0
        while True:
            page = self._connection.execute(
                "SELECT seq, scope, body FROM log WHERE kind = 'reserve' AND seq > ? "
                "AND substr(scope, 1, ?) = ? ORDER BY seq LIMIT 1000",
                (last, len(scope), scope),
            ).fetchall()
            if not page:
                return
            yield from page
            last = page[-1][0]

    def scopes(self) -> dict[str, str]:
        """Return the description of every scope that has one."""
        return dict(
            self._connection.execute(
                "SELECT scope, body FROM log WHERE kind IN ('budget', 'scope') ORDER BY seq"
            ).fetchall()
        )

    def settled(self) -> tuple[str | None, str | None]:
        """Return the relation and the unit that the first charge settled, if they were left open.

        **Edge cases.** Before there were units, the line held a relation only: of records.
        """
        row = self._connection.execute("SELECT body FROM log WHERE kind = 'relation'").fetchone()
        if row is None:
            return None, None
        if not row[0].startswith("{"):
            return row[0], "record"
        values = json.loads(row[0])
        return values["relation"], values["unit"]

    def settle(self, relation: str, unit: str) -> None:
        """Write down the relation and the unit of all charges."""
        body = json.dumps({"relation": relation, "unit": unit}, sort_keys=True)
        self.append("relation", "/", "", body)

    def outcome(self, ref: int) -> str | None:
        """Return 'commit' or 'fail' if the charge has been settled; fail if there is no charge."""
        row = self._connection.execute("SELECT kind FROM log WHERE seq = ?", (ref,)).fetchone()
        if row is None or row[0] != "reserve":
            raise ValueError(f"charge={ref!r} is not a charge of this ledger.")
        row = self._connection.execute("SELECT kind FROM log WHERE ref = ?", (ref,)).fetchone()
        return row[0] if row else None
