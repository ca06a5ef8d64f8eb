"""A ledger in PostgreSQL, for teams on several machines; needs ``psycopg``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl, urldefrag, urlsplit

from .ledger import Ledger
from .log import SCHEMA, Log

__all__ = ["PostgresLedger"]

_GUARDS = (
    """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'append only'; END $$
    """,
    "CREATE TRIGGER guard BEFORE UPDATE OR DELETE ON log FOR EACH ROW EXECUTE FUNCTION refuse()",
    "CREATE TRIGGER whole BEFORE TRUNCATE ON log FOR EACH STATEMENT EXECUTE FUNCTION refuse()",
)


class PostgresLedger(Ledger):
    """A log in its own database schema.

    Parameters
    ----------
    address : str
        ``postgresql://user@host/database#name``, stored in the schema ``skprivacy_name``. It must
        not contain a password, as it is pickled with the budget and shown in errors: keep that in
        ``~/.pgpass`` or the environment variable ``PGPASSWORD``.
    timeout : float, default=60.0
        Seconds to wait for another transaction or for the server.
    """

    # EXCLUSIVE lets others read and makes every other writer wait.
    _begin = ("BEGIN", "LOCK TABLE log IN EXCLUSIVE MODE")
    _guards = "SELECT tgname FROM pg_trigger WHERE tgrelid = 'log'::regclass AND NOT tgisinternal"
    _n_guards = 2

    def __init__(self, address: str, timeout: float = 60.0) -> None:
        _check_no_password(address)
        self.address, self.timeout = address, timeout
        self._server, name = urldefrag(address)
        if not name.isidentifier():
            raise ValueError(
                f"path={address!r} must end in '#name', where name is that of the ledger. Use "
                "letters, digits and underscores."
            )
        self._schema = f"skprivacy_{name.lower()}"

    def create(self, body: str) -> None:
        with self._connection() as connection:
            # Of two concurrent processes, the one that creates the schema creates all of it.
            connection.execute("BEGIN")
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(?))", (self._schema,))
            found = connection.execute(
                "SELECT 1 FROM pg_namespace WHERE nspname = ?", (self._schema,)
            ).fetchone()
            if found:
                connection.execute("ROLLBACK")
                raise FileExistsError(self.address)
            connection.execute(f"CREATE SCHEMA {self._schema}")
            for statement in SCHEMA + _GUARDS:
                connection.execute(statement)
            Log.begin(connection, body)
            connection.execute("COMMIT")

    @contextmanager
    def _connection(self) -> Iterator[_Connection]:
        try:
            psycopg = import_module("psycopg")
        except ImportError as error:
            raise self._broken(error) from error
        try:
            with psycopg.connect(
                self._server, autocommit=True, connect_timeout=int(self.timeout)
            ) as opened:
                connection = _Connection(opened)
                connection.execute(f"SET search_path TO {self._schema}")
                connection.execute(f"SET lock_timeout TO {int(1000 * self.timeout)}")
                yield connection
        except psycopg.Error as error:
            raise self._broken(error) from error


def _check_no_password(address: str) -> None:
    try:
        parts = urlsplit(address)
        holds = parts.password is not None or "password" in dict(parse_qsl(parts.query))
    except ValueError:  # its text is not passed on: it may quote the password
        raise ValueError(
            "path= is not an address such as 'postgresql://user@host/database#name'."
        ) from None
    if holds:
        raise ValueError(
            "path= must not contain a password: the address is pickled with the budget and shown "
            "in errors. Keep the password in ~/.pgpass or the environment variable PGPASSWORD."
        )


class _Connection:
    """A connection that takes SQLite's question marks as placeholders."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        if not values:
            return self._opened.execute(statement)
        return self._opened.execute(statement.replace("?", "%s"), values)
