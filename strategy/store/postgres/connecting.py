"""Connections to a run's tables, and what their failures mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import conninfo, errors
from psycopg.sql import SQL, Identifier

from wallflower.protocol.errors import UnavailableError
from wallflower.strategy.store.database import Explain
from wallflower.strategy.store.postgres.statements import translate

# A holder of the lease that stopped within a transaction would hold a standby up.
_LONGEST_IDLE_MS = 1000
# PostgreSQL soon ends the session of a host that is gone, and frees what it locked.
_GONE = {
    "tcp_keepalives_idle": 2,
    "tcp_keepalives_interval": 1,
    "tcp_keepalives_count": 2,
}
_NETWORK: Mapping[str, str | int] = {
    "application_name": "wallflower",
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


class LostConnectionError(UnavailableError):
    """The database went away; nothing of the transaction under way was kept."""


class Connector:
    """Opens connections to one run's schema.

    Attributes
    ----------
    schema : of the run's tables.
    name : what a message calls them; no password is in it.
    conninfo : for connections of a pool.
    by_index : whether a table is read as a whole only where no index serves. A worker's
        plans are made while a round is new and its tables are small, and kept.
    """

    def __init__(self, url: str, schema: str, *, by_index: bool = False) -> None:
        self._by_index = by_index
        parts = conninfo.conninfo_to_dict(url)
        known = {key: parts[key] for key in ("host", "port", "dbname") if key in parts}
        where = ", ".join(f"{key} {value}" for key, value in known.items())
        self.schema = schema
        self.name = f"schema {schema} of PostgreSQL ({where or 'local'})"
        self.conninfo = conninfo.make_conninfo(url, **{**_NETWORK, **parts})

    def connect(self) -> psycopg.Connection[Any]:
        """Open a connection of one's own; raises UnavailableError."""
        with self.explaining(self.explain):
            connection = psycopg.connect(self.conninfo, autocommit=True)
            try:
                self.configure(connection)
            except BaseException:
                connection.close()
                raise
            return connection

    def configure(self, connection: psycopg.Connection[Any]) -> None:
        """Point a new connection to the run's tables."""
        settings = {"idle_in_transaction_session_timeout": _LONGEST_IDLE_MS, **_GONE}
        parts = [SQL("SET search_path TO {}").format(Identifier(self.schema))]
        parts += [
            SQL("SET {} TO {}").format(Identifier(name), value)
            for name, value in settings.items()
        ]
        connection.execute(SQL("; ").join(parts))
        if self._by_index:
            connection.execute("SET enable_seqscan TO off")

    def run(self, statement: str, *values: object) -> list[Any]:
        """Run one statement on a connection of its own; return what it found."""
        with self.explaining(self.explain), self.connect() as connection:
            cursor = connection.execute(native(statement), values or None)
            return cursor.fetchall() if cursor.description else []

    def explain(self, error: Exception, no_room: bool) -> UnavailableError:
        """Say that a request to the database failed."""
        why = "has no room" if no_room else "refuses"
        return UnavailableError(f"{self.name} {why}: {error}")

    @contextmanager
    def explaining(self, explain: Explain) -> Iterator[None]:
        """Say what a failure means; no message repeats values of a statement."""
        try:
            yield
        except errors.DiskFull as error:
            raise explain(Exception(_brief(error)), True) from None
        except (
            psycopg.OperationalError,
            psycopg.InterfaceError,
            errors.IdleInTransactionSessionTimeout,  # this process stood still
        ) as error:
            raise LostConnectionError(
                f"{self.name} cannot be reached ({_brief(error)}); nothing of this "
                "step was kept: start PostgreSQL, then go on"
            ) from None
        except psycopg.Error as error:
            raise explain(Exception(_brief(error)), False) from None


def native(statement: str) -> Any:
    """Translate a statement, one of ours: nothing from outside is ever in it."""
    return translate(statement)


def _brief(error: psycopg.Error) -> str:
    """Return what went wrong, without the rows that it concerns."""
    return error.diag.message_primary or " ".join(str(error).split("\n")[:1])
