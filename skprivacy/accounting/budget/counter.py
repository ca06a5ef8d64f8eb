"""Monotonic counter outside the ledger, which detects a ledger restored from an older copy.

The counter holds the number and the digest of one line of the ledger, in a second SQLite file or in
PostgreSQL. ``Ledger.transaction`` follows three rules:

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

from collections.abc import Iterator
from contextlib import contextmanager

from .ledger import Ledger, LedgerVersion
from .log import LedgerError

__all__ = ["Counter"]

_TABLE = (
    "CREATE TABLE counter (line INTEGER NOT NULL, digest TEXT NOT NULL)",
    "INSERT INTO counter VALUES (0, '')",
)


class Counter:
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
            return self.read()
        return 0, ""

    def read(self) -> LedgerVersion:
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
            moved = connection.execute(
                "UPDATE counter SET line = ?, digest = ? WHERE line = ? AND digest = ?",
                (*last, *known),
            )
            return bool(moved.rowcount)

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
