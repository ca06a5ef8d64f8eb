"""A ledger in an SQLite file."""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from ..._output import OF_SQLITE, is_database
from .forks import no_fork
from .ledger import Ledger, ledger_at
from .log import LedgerError

__all__ = ["SQLiteLedger"]

_GUARDS = (
    "CREATE TRIGGER no_update BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'append only'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'append only'); END",
)
# Of the files beside a ledger, those that SQLite may delete. It locks none of them: to open and
# close a file that it has locked, such as the ledger itself, would give up the locks.
_DELETED = ("-journal", "-wal")


class SQLiteLedger(Ledger):
    """A log in an SQLite file.

    Parameters
    ----------
    path : str or Path
    timeout : float, default=60.0
        Seconds to wait for another process's transaction.

    Notes
    -----
    Every operation opens a new connection, so nothing is shared across threads or ``fork``, and no
    page of a file that was since replaced is remembered: a kept connection would write it back
    into the new file. Commits reach the disk (rollback journal, ``synchronous=EXTRA``) before they
    return. There is no write-ahead log: between commits, the file alone is the whole ledger, so
    that nothing is lost if it is moved, and it can be read from a read-only disk. Older ledgers are
    converted when they are first written to.
    """

    _begin = ("PRAGMA journal_mode=DELETE", "BEGIN IMMEDIATE")
    _guards = _GUARDS
    _guards_query = "SELECT sql FROM sqlite_master WHERE type = 'trigger'"
    _guards_found = frozenset((statement,) for statement in _GUARDS)

    def __init__(self, path: str | Path, timeout: float = 60.0) -> None:
        self.path = _resolved(path)
        self.address = str(self.path)
        self.timeout = timeout

    def _ledger_at(self, address: str) -> Ledger:
        return ledger_at(address)

    def _missing(self, error: BaseException) -> LedgerError:
        return LedgerError(
            f"There is no privacy ledger at {self.address} ({error}). A pickled budget, alone or "
            "in a model, stores the path of its ledger, not its content. Restore the file at this "
            "path, or use a budget with another ledger. A missing ledger is never created again."
        )

    def create_tables(
        self, statements: Sequence[str], fill: Callable[[Any], None] | None = None
    ) -> None:
        if self.path.name.endswith(OF_SQLITE):
            raise ValueError(
                f"path={self.address!r} is the name of a file that SQLite keeps beside another "
                f"ledger, and deletes. Pass one that ends in none of {', '.join(OF_SQLITE)}."
            )
        self._check_beside()
        for rest in OF_SQLITE:
            if os.path.exists(f"{self.path}{rest}"):
                if os.path.exists(self.path):  # it belongs to a process at work, or killed
                    raise FileExistsError(self.address)
                raise LedgerError(
                    f"The file {self.path}{rest} is left from another ledger at this place, and "
                    "SQLite would play it back into a new one. Move it back beside the ledger that "
                    "it belongs to, or delete it, or pass another path."
                )
        # Written under another name, then linked: no process ever sees an incomplete ledger.
        draft = SQLiteLedger(self.path.with_name(f".{uuid.uuid4().hex}"))
        try:
            draft.path.touch(exist_ok=False)
            draft._fill(statements, fill)
            os.link(draft.path, self.path)
        except FileExistsError:
            raise
        except LedgerError as error:  # its message names the draft
            raise self._broken(error.__cause__ or error) from error.__cause__
        except OSError as error:
            raise self._broken(error) from error
        finally:
            for rest in ("", *OF_SQLITE):
                with suppress(OSError):  # such as a folder that cannot be
                    os.unlink(f"{draft.path}{rest}")

    def _fill(self, statements: Sequence[str], fill: Callable[[Any], None] | None) -> None:
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                connection.execute(statement)
            if fill is not None:
                fill(connection)
            connection.execute("COMMIT")

    def _place(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except OSError:  # whoever opens it says more
            return None
        return found.st_dev, found.st_ino

    def _check_beside(self) -> None:
        """Refuse a ledger beside which a folder or another ledger has a name that SQLite needs."""
        for rest in _DELETED:
            other = Path(f"{self.path}{rest}")
            if os.path.isdir(other):  # of too long a name too, at which Path.is_dir raises
                raise LedgerError(
                    f"The folder {other} has the name of a file that SQLite keeps beside the "
                    f"ledger {self.path}, which cannot be used. Rename the folder."
                )
            try:
                found = is_database(other)
            except OSError:  # a file that cannot be read, which SQLite refuses where it matters
                continue
            if found:
                raise LedgerError(
                    f"The file {other} is a database, perhaps a ledger of its own, and SQLite "
                    f"would delete it once {self.path} is used. Rename it."
                )

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        self._check_beside()
        try:
            uri = f"{self.path.as_uri()}?mode=rw"
            opened = sqlite3.connect(
                uri, uri=True, timeout=self.timeout, isolation_level=None, check_same_thread=False
            )
            with no_fork(), closing(opened) as connection:
                connection.execute("PRAGMA synchronous=EXTRA")
                yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:  # of a damaged text, or its error
            if os.path.isdir(self.path):
                raise LedgerError(
                    f"{self.address} is a folder, not a ledger. Pass the path of a file."
                ) from error
            found = os.path.exists(self.path)
            raise (self._broken if found else self._missing)(error) from error


def _resolved(path: str | Path) -> Path:
    try:
        resolved = Path(path).resolve()
        os.fsencode(resolved)
    except TypeError:
        raise TypeError(f"path={path!r} must be a path: text, or a pathlib.Path.") from None
    except ValueError as error:
        raise ValueError(f"path={path!r} cannot be the path of a file ({error}).") from None
    except RuntimeError:
        raise ValueError(
            f"path={path!r} is a loop of symbolic links. Pass the path of a file."
        ) from None
    except OSError:  # too long: what opens it says so
        return Path(path).absolute()
    return resolved
