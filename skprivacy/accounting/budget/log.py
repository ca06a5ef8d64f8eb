"""The lines of a ledger: append-only, each with a digest of itself and all earlier lines."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["COLUMNS", "SCHEMA", "LedgerError", "Log", "Record", "digest_of"]

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
_LAST = 2**31 - 1  # largest INTEGER of PostgreSQL
COLUMNS = "seq, kind, ref, at, scope, who, body, digest"


class LedgerError(OSError):
    """The ledger cannot be read, written or trusted; nothing may be released."""


class Record(NamedTuple):
    """One line of the log; ``digest`` covers it and, by the previous digest, all earlier lines."""

    seq: int
    kind: str
    ref: int | None
    at: float
    scope: str
    who: str
    body: str
    digest: str


def digest_of(previous: str, *values: Any) -> str:
    text = json.dumps([previous, *values], separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


class Log:
    """The log of a ledger, within a transaction.

    Parameters
    ----------
    connection : object
        With ``execute(statement, values)``, where question marks stand for the values.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def _last(self, count: int) -> list[Record]:
        query = f"SELECT {COLUMNS} FROM log ORDER BY seq DESC LIMIT ?"
        return [Record(*row) for row in self._connection.execute(query, (count,))]

    def check_tail(self) -> None:
        """Raise LedgerError if the digest of the last line does not match."""
        tail = self._last(2)
        previous = tail[1].digest if len(tail) > 1 else ""
        if tail and tail[0].digest != digest_of(previous, *tail[0][:-1]):
            raise LedgerError(
                f"The privacy ledger was altered at line {tail[0].seq}; nothing was released. "
                "Restore it from a copy."
            )

    def append(self, kind: str, scope: str, who: str, body: str, ref: int | None = None) -> int:
        """Add a line and return its number."""
        tail = self._last(1)
        seq, previous = (tail[0].seq + 1, tail[0].digest) if tail else (1, "")
        values = (seq, kind, ref, time.time(), scope, who, body)
        self._connection.execute(
            f"INSERT INTO log ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*values, digest_of(previous, *values)),
        )
        return seq

    def charges(self, since: int = 0, before: int | None = None) -> list[tuple[str, str, int]]:
        """Return how often each event was reserved in each scope, whatever its outcome."""
        rows = self._connection.execute(
            "SELECT scope, body, COUNT(*) FROM log WHERE kind = 'reserve' AND seq >= ? AND seq < ? "
            "GROUP BY scope, body",
            (since, _LAST if before is None else before),
        ).fetchall()
        return [(scope, body, int(n)) for scope, body, n in rows]

    def reserves(self, scope: str) -> Iterator[tuple[int, str, str]]:
        """Yield number, scope and event of the charges in and below a scope, in order."""
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
        """Return the body of the line that sets the cap, for every scope with one."""
        return dict(
            self._connection.execute(
                "SELECT scope, body FROM log WHERE kind IN ('budget', 'scope') ORDER BY seq"
            ).fetchall()
        )

    def settled(self) -> tuple[str | None, str | None]:
        """Return the relation and the unit that the first charge fixed, if they were left open.

        **Edge cases.** In ledgers from before units existed, the line holds only a relation, and
        the unit is the record.
        """
        row = self._connection.execute("SELECT body FROM log WHERE kind = 'relation'").fetchone()
        if row is None:
            return None, None
        if not row[0].startswith("{"):
            return row[0], "record"
        try:
            values = json.loads(row[0])
            return values["relation"], values["unit"]
        except (json.JSONDecodeError, KeyError, TypeError):
            raise LedgerError(
                f"The privacy ledger was altered: its relation line reads {row[0]!r}. Restore it "
                "from a copy."
            ) from None

    def settle(self, relation: str, unit: str) -> None:
        """Append the relation and the unit of all charges."""
        body = json.dumps({"relation": relation, "unit": unit}, sort_keys=True)
        self.append("relation", "/", "", body)

    def outcome(self, ref: int) -> str | None:
        """Return the recorded outcome, 'commit' or 'fail', or None; ValueError without a charge."""
        row = self._connection.execute("SELECT kind FROM log WHERE seq = ?", (ref,)).fetchone()
        if row is None or row[0] != "reserve":
            raise ValueError(
                f"charge={ref!r} is not a charge of this ledger. Pass a number that reserve() "
                "returned."
            )
        row = self._connection.execute("SELECT kind FROM log WHERE ref = ?", (ref,)).fetchone()
        return row[0] if row else None
