"""Hash chain of a ledger: each line has a digest of itself and all earlier lines."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..._input import parse_json
from ..._output import displayable

__all__ = ["COLUMNS", "SCHEMA", "LedgerError", "Log", "Record"]

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
    "CREATE UNIQUE INDEX outcomes ON log (ref) WHERE ref IS NOT NULL",
)
COLUMNS = "seq, kind, ref, at, scope, who, body, digest"


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
    who: str
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

    def append(self, kind: str, scope: str, who: str, body: str, ref: int | None = None) -> int:
        """Add a line and return its number."""
        values = (self.tail.seq + 1, kind, ref, time.time(), scope, who, body)
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
        """Return the relation and the unit if the first charge fixed them.

        **Edge cases.** In ledgers older than units the line holds only a relation, and the unit is
        the record.
        """
        if self._relation is None:
            return None, None
        if not self._relation.startswith("{"):
            return self._relation, "record"
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


def _digest(previous: str, *values: Any) -> str:
    try:
        text = json.dumps([previous, *values], separators=(",", ":"), ensure_ascii=True)
    except TypeError:  # a value has not the type of its column: the line was altered
        return ""
    return hashlib.sha256(text.encode()).hexdigest()
