"""PostgreSQL ledger, for teams on several machines; needs ``psycopg``."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl, urldefrag, urlsplit

from .ledger import Ledger, ledger_at

__all__ = ["PostgresLedger"]

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


class PostgresLedger(Ledger):
    """Log in the schema ``skprivacy_name`` of ``postgresql://user@host/database#name``.

    A thread holds one connection to each server, for all its ledgers there, and opens a new one
    after an error, a ``fork`` or a restart of the server. Commits wait for the server's disk even
    if that is not the server's default. ``timeout`` is in seconds.
    """

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

    def _ledger_at(self, address: str) -> Ledger:
        return ledger_at(address)

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


_local = threading.local()
_inherited: list[Any] = []  # connections of the parent process, never closed here


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
