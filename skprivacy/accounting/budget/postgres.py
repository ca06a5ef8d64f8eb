"""A ledger in PostgreSQL, for teams on several machines; needs ``psycopg``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import urldefrag

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
        ``postgresql://user@host/database#name``, stored in the schema ``skprivacy_name``. Keep
        passwords out of it (use ``~/.pgpass``): the address is pickled with the budget.
    timeout : float, default=60.0
        Seconds to wait for another transaction or for the server.
    """

    # EXCLUSIVE lets others read and makes every other writer wait.
    _begin = ("BEGIN", "LOCK TABLE log IN EXCLUSIVE MODE")

    def __init__(self, address: str, timeout: float = 60.0) -> None:
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
            Log(connection).append("budget", "/", "", body)
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


class _Connection:
    """A connection that takes SQLite's question marks as placeholders."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        if not values:
            return self._opened.execute(statement)
        return self._opened.execute(statement.replace("?", "%s"), values)
