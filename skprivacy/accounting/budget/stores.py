"""Stores of ledgers: an SQLite file, or PostgreSQL for teams on several machines.

PostgreSQL needs ``psycopg``. Start reading at :func:`ledger_at`, which opens a ledger by its
address.

**Fork guard.** No process is forked while one of its threads has an SQLite connection open. A
forked child inherits SQLite's record of its locks, but neither the locks nor the thread that would
release them. It could never charge the ledger, and would read while others write.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urldefrag, urlsplit

from ..._extras import name_missing_extra
from ..._files import SQLITE_SUFFIXES, is_database
from .ledger import Ledger, LedgerCounter, LedgerError, LedgerVersion

# Seconds that a fork waits for a transaction. One that takes longer waits for a lock itself.
_FORK_TIMEOUT = 5.0
_gate = threading.Condition()
_inside: Counter[int] = Counter()  # number of open connections by thread
_TRIGGER_BODY = " BEGIN RAISE EXCEPTION 'append only'; END "
_POSTGRES_GUARDS = (
    f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $${_TRIGGER_BODY}$$",
    "CREATE TRIGGER guard BEFORE UPDATE OR DELETE ON log FOR EACH ROW EXECUTE FUNCTION refuse()",
    "CREATE TRIGGER whole BEFORE TRUNCATE ON log FOR EACH STATEMENT EXECUTE FUNCTION refuse()",
    # Without ALWAYS, session_replication_role could turn the triggers off.
    "ALTER TABLE log ENABLE ALWAYS TRIGGER guard",
    "ALTER TABLE log ENABLE ALWAYS TRIGGER whole",
)
# Bits of tgtype: 1 for each row, 2 before, 8 delete, 16 update, 32 truncate. Rules are listed too,
# since a rule could turn an INSERT into nothing.
_POSTGRES_GUARDS_QUERY = """
    SELECT tgname::text, tgenabled::text, tgtype::integer, tgqual IS NULL AND tgattr::text = '',
        prosrc
    FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid
    WHERE tgrelid = 'log'::regclass AND NOT tgisinternal
    UNION ALL
    SELECT rulename::text, ev_enabled::text, NULL, NULL, 'a rule'
    FROM pg_rewrite WHERE ev_class = 'log'::regclass
"""
_POSTGRES_GUARDS_FOUND = frozenset(
    {
        ("guard", "A", 1 + 2 + 8 + 16, True, _TRIGGER_BODY),
        ("whole", "A", 2 + 32, True, _TRIGGER_BODY),
    }
)
_local = threading.local()
_inherited: list[Any] = []  # connections of the parent process, never closed here
_SQLITE_GUARDS = (
    "CREATE TRIGGER no_update BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'append only'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'append only'); END",
)
# Suffixes of files beside a ledger that SQLite may delete. It locks none of them, so they may be
# opened here. To open and close a locked file, such as the ledger, would release its locks.
_DELETED_SUFFIXES = ("-journal", "-wal")


def ledger_at(address: str | Path, seen: LedgerVersion | None = None) -> Ledger:
    """Return the ledger in a file, or at ``postgresql://user@host/database#name``."""
    ledger: Ledger
    if str(address).startswith(("postgresql://", "postgres://")):
        ledger = PostgresLedger(str(address))
    else:
        ledger = SQLiteLedger(address)
    ledger.seen, ledger.is_witnessed = seen, seen is not None
    return ledger


def counter_at(address: str | Path) -> LedgerCounter:
    """Return the counter in a file, or at ``postgresql://user@host/database#name``."""
    return LedgerCounter(ledger_at(address))


class SQLiteLedger(Ledger):
    """Log in an SQLite file; ``timeout`` is the wait for another transaction, in seconds.

    Every operation opens a new connection, so threads and forked processes share nothing. A
    connection that outlived its file would also write old pages into the file that replaced it.
    Commits reach the disk (rollback journal, ``synchronous=EXTRA``) before they return. Without a
    write-ahead log, the file alone is the whole ledger between commits. So it can be moved without
    loss, and read from a read-only disk. A ledger with one is converted at its first write.
    """

    _ledger_at = staticmethod(ledger_at)
    _begin = ("PRAGMA journal_mode=DELETE", "BEGIN IMMEDIATE")
    _guards = _SQLITE_GUARDS
    _guards_query = "SELECT sql FROM sqlite_master WHERE type = 'trigger'"
    _guards_found = frozenset((statement,) for statement in _SQLITE_GUARDS)

    def __init__(self, path: str | Path, timeout: float = 60.0) -> None:
        self.path = _resolve_path(path)
        self.address = str(self.path)
        self.timeout = timeout

    def _missing_error(self, error: BaseException) -> LedgerError:
        return LedgerError(
            f"There is no privacy ledger at {self.address} ({error}), and a missing ledger is "
            "never created again: a pickled budget, alone or in a model, stores only the path of "
            "its ledger. Restore the file at this path, or use a budget with another ledger."
        )

    def create_tables(
        self, statements: Sequence[str], fill: Callable[[Any], None] | None = None
    ) -> None:
        if self.path.name.endswith(SQLITE_SUFFIXES):
            raise ValueError(
                f"path={self.address!r} is the name of a file that SQLite writes beside another "
                f"ledger, and deletes. Pass a path that ends in none of "
                f"{', '.join(SQLITE_SUFFIXES)}."
            )
        self._check_files_beside()
        for rest in SQLITE_SUFFIXES:
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
            for rest in ("", *SQLITE_SUFFIXES):
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


class PostgresLedger(Ledger):
    """Log in the schema ``skprivacy_name`` of ``postgresql://user@host/database#name``.

    A thread holds one connection to each server, for all its ledgers there, and opens a new one
    after an error, a ``fork`` or a restart of the server. Commits wait for the server's disk even
    if that is not the server's default. ``timeout`` is in seconds.
    """

    _ledger_at = staticmethod(ledger_at)
    # EXCLUSIVE lets others read and blocks every other writer.
    _begin = ("BEGIN", "LOCK TABLE log IN EXCLUSIVE MODE")
    _guards = _POSTGRES_GUARDS
    _guards_query = _POSTGRES_GUARDS_QUERY
    _guards_found = _POSTGRES_GUARDS_FOUND

    def __init__(self, address: str, timeout: float = 60.0) -> None:
        _check_no_password(address)
        self.address, self.timeout = address, timeout
        self._server, name = urldefrag(address)
        if not name.isidentifier():
            raise ValueError(
                f"path={address!r} must end in '#name', the name of the ledger. Use letters, "
                "digits and underscores."
            )
        self._schema = f"skprivacy_{name.lower()}"

    def create_tables(
        self, statements: Sequence[str], fill: Callable[[Any], None] | None = None
    ) -> None:
        with self._connection() as connection:
            # The lock lets only one of two concurrent processes create the schema.
            connection.execute("BEGIN")
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(?))", (self._schema,))
            found = connection.execute(
                "SELECT 1 FROM pg_namespace WHERE nspname = ?", (self._schema,)
            ).fetchone()
            if found:
                connection.execute("ROLLBACK")
                raise FileExistsError(self.address)
            connection.execute(f"CREATE SCHEMA {self._schema}")
            for statement in statements:
                connection.execute(statement)
            if fill is not None:
                fill(connection)
            connection.execute("COMMIT")

    @contextmanager
    def _connection(self) -> Iterator[_Connection]:
        try:
            with name_missing_extra():
                psycopg = import_module("psycopg")
        except ImportError as error:
            raise self._unusable_error(error) from error
        try:
            with _close_on_failure(self._open_connection(psycopg)) as opened:
                yield _Connection(opened)
            _idle_connections()[self._server] = _IdleConnection(opened)
        except psycopg.Error as error:
            raise self._unusable_error(error) from error

    def _open_connection(self, psycopg: Any) -> Any:
        """Return this thread's idle connection if it still works, or a new one."""
        if kept := _idle_connections().pop(self._server, None):
            with suppress(psycopg.Error), _close_on_failure(kept.take()) as opened:
                self._set_up(opened)
                return opened
        milliseconds = int(1000 * self.timeout)
        new = psycopg.connect(
            self._server,
            autocommit=True,
            connect_timeout=int(self.timeout),
            tcp_user_timeout=milliseconds,  # the server of an idle connection may be gone
        )
        with _close_on_failure(new):
            self._set_up(new)
        return new

    def _set_up(self, opened: Any) -> None:
        opened.execute(
            f"SET search_path TO {self._schema}; "
            f"SET lock_timeout TO {int(1000 * self.timeout)}; "
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )


@contextmanager
def no_fork() -> Iterator[None]:
    """Delay forks by other threads until the context ends."""
    me = threading.get_ident()
    with _gate:
        _inside[me] += 1
    try:
        yield
    finally:
        with _gate:
            _inside[me] -= 1
            if _inside[me] <= 0:  # negative in a child that was forked inside the context
                del _inside[me]
            _gate.notify_all()


def _wait_for_connections() -> None:
    _gate.acquire()
    me = threading.get_ident()
    _gate.wait_for(lambda: not _inside.keys() - {me}, _FORK_TIMEOUT)


def _reset_in_child() -> None:
    _inside.clear()
    _gate.release()


@contextmanager
def _close_on_failure(opened: Any) -> Iterator[Any]:
    """Close a connection if the block fails."""
    try:
        yield opened
    except BaseException:
        opened.close()
        raise


class _IdleConnection:
    """Idle connection. The process that opened it closes it; a forked process does not."""

    def __init__(self, opened: Any) -> None:
        self._opened, self._owner = opened, os.getpid()

    def take(self) -> Any:
        opened, self._opened = self._opened, None
        return opened

    def __del__(self) -> None:
        if self._opened is None:
            return
        if self._owner == os.getpid():
            self._opened.close()
        else:
            _inherited.append(self._opened)


def _idle_connections() -> dict[str, _IdleConnection]:
    """Return the idle connections of this thread, by server."""
    if _local.__dict__.get("process") != os.getpid():
        _local.process, _local.connections = os.getpid(), {}
    found: dict[str, _IdleConnection] = _local.connections
    return found


def _check_no_password(address: str) -> None:
    try:
        parts = urlsplit(address)
        holds = parts.password is not None or "password" in dict(parse_qsl(parts.query))
    except ValueError:  # its text is dropped, as it may quote the password
        raise ValueError(
            "path= must be an address such as 'postgresql://user@host/database#name'."
        ) from None
    if holds:
        raise ValueError(
            "path= must not contain a password: the address is pickled with the budget and shown "
            "in errors. Keep the password in ~/.pgpass or the environment variable PGPASSWORD."
        )


class _Connection:
    """Connection that takes SQLite's question marks as placeholders."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        if not values:
            return self._opened.execute(statement)
        return self._opened.execute(statement.replace("?", "%s"), values)


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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_wait_for_connections, after_in_parent=_gate.release, after_in_child=_reset_in_child
    )
