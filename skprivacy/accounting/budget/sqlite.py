"""SQLite ledger: a log in one file."""

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

_SQLITE_GUARDS = (
    "CREATE TRIGGER no_update BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'append only'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'append only'); END",
)
# Suffixes of files beside a ledger that SQLite may delete. It locks none of them, so they may be
# opened here. To open and close a locked file, such as the ledger, would release its locks.
_DELETED_SUFFIXES = ("-journal", "-wal")


class SQLiteLedger(Ledger):
    """Log in an SQLite file; ``timeout`` is the wait for another transaction, in seconds.

    Every operation opens a new connection, so threads and forked processes share nothing. A
    connection that outlived its file would also write old pages into the file that replaced it.
    Commits reach the disk (rollback journal, ``synchronous=EXTRA``) before they return. Without a
    write-ahead log, the file alone is the whole ledger between commits. So it can be moved without
    loss, and read from a read-only disk. Older ledgers are converted at their first write.
    """

    _begin = ("PRAGMA journal_mode=DELETE", "BEGIN IMMEDIATE")
    _guards = _SQLITE_GUARDS
    _guards_query = "SELECT sql FROM sqlite_master WHERE type = 'trigger'"
    _guards_found = frozenset((statement,) for statement in _SQLITE_GUARDS)

    def __init__(self, path: str | Path, timeout: float = 60.0) -> None:
        self.path = _resolve_path(path)
        self.address = str(self.path)
        self.timeout = timeout

    def _ledger_at(self, address: str) -> Ledger:
        return ledger_at(address)

    def _missing_error(self, error: BaseException) -> LedgerError:
        return LedgerError(
            f"There is no privacy ledger at {self.address} ({error}), and a missing ledger is "
            "never created again: a pickled budget, alone or in a model, stores only the path of "
            "its ledger. Restore the file at this path, or use a budget with another ledger."
        )

    def create_tables(
        self, statements: Sequence[str], fill: Callable[[Any], None] | None = None
    ) -> None:
        if self.path.name.endswith(OF_SQLITE):
            raise ValueError(
                f"path={self.address!r} is the name of a file that SQLite writes beside another "
                f"ledger, and deletes. Pass a path that ends in none of {', '.join(OF_SQLITE)}."
            )
        self._check_files_beside()
        for rest in OF_SQLITE:
            if os.path.exists(f"{self.path}{rest}"):
                if os.path.exists(self.path):  # it belongs to a running or killed process
                    raise FileExistsError(self.address)
                raise LedgerError(
                    f"The file {self.path}{rest} is left from another ledger at this path, and "
                    "SQLite would apply it to a new ledger. Move it back to its ledger, delete it, "
                    "or pass another path."
                )
        # Written under another name, then linked: no process ever sees an incomplete ledger.
        draft = SQLiteLedger(self.path.with_name(f".{uuid.uuid4().hex}"))
        try:
            draft.path.touch(exist_ok=False)
            draft._fill_tables(statements, fill)
            os.link(draft.path, self.path)
        except FileExistsError:
            raise
        except LedgerError as error:  # its message names the draft
            raise self._unusable_error(error.__cause__ or error) from error.__cause__
        except OSError as error:
            raise self._unusable_error(error) from error
        finally:
            for rest in ("", *OF_SQLITE):
                with suppress(OSError):  # such as a folder that does not exist
                    os.unlink(f"{draft.path}{rest}")

    def _fill_tables(self, statements: Sequence[str], fill: Callable[[Any], None] | None) -> None:
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                connection.execute(statement)
            if fill is not None:
                fill(connection)
            connection.execute("COMMIT")

    def _file_identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except OSError:  # opening the file raises the clearer error
            return None
        return found.st_dev, found.st_ino

    def _check_files_beside(self) -> None:
        """Refuse a ledger if a folder or another ledger has the name of a file SQLite needs."""
        for rest in _DELETED_SUFFIXES:
            other = Path(f"{self.path}{rest}")
            if os.path.isdir(other):  # Path.is_dir raises for a name that is too long
                raise LedgerError(
                    f"The folder {other} has the name of a file that SQLite writes beside the "
                    f"ledger {self.path}, which cannot be used. Rename the folder."
                )
            try:
                found = is_database(other)
            except OSError:  # SQLite refuses an unreadable file if it needs it
                continue
            if found:
                raise LedgerError(
                    f"The file {other} is a database, perhaps another ledger, and SQLite would "
                    f"delete it once {self.path} is used. Rename it."
                )

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        self._check_files_beside()
        try:
            uri = f"{self.path.as_uri()}?mode=rw"
            opened = sqlite3.connect(
                uri, uri=True, timeout=self.timeout, isolation_level=None, check_same_thread=False
            )
            with no_fork(), closing(opened) as connection:
                connection.execute("PRAGMA synchronous=EXTRA")
                yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:  # damaged text
            if os.path.isdir(self.path):
                raise LedgerError(
                    f"{self.address} is a folder, not a ledger. Pass the path of a file."
                ) from error
            found = os.path.exists(self.path)
            raise (self._unusable_error if found else self._missing_error)(error) from error


def _resolve_path(path: str | Path) -> Path:
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
    except OSError:  # too long: opening it raises the clearer error
        return Path(path).absolute()
    return resolved
