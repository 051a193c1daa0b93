"""Transactions on PostgreSQL, repeated where the server was away."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import psycopg_pool

from wallflower.strategy.store.database import (
    Cursor,
    Database,
    Explain,
    Result,
    Transaction,
)
from wallflower.strategy.store.postgres import statements
from wallflower.strategy.store.postgres.connecting import (
    Connector,
    LostConnectionError,
    native,
)
from wallflower.strategy.store.postgres.lease import PostgresLease

# How long a server that is being started again is waited for: one restart and its
# recovery.
PATIENCE_S = 60.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_POOL_WAIT_S = 2.0


class _Statements:
    """Runs SQLite's statements in one transaction of PostgreSQL."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Cursor:
        """Run one statement."""
        return self._connection.execute(native(statement), values or None)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each row of values."""
        with self._connection.cursor() as cursor:
            cursor.executemany(native(statement), rows)


class _Synced:
    """What a statement of a pipeline found, once PostgreSQL is asked for it.

    PostgreSQL takes a connection that is only flushed for a busy one, and would keep
    the locks of a worker whose host is gone. After a `sync` it waits a second.
    """

    def __init__(self, cursor: Cursor, pipeline: psycopg.Pipeline) -> None:
        self._cursor, self._pipeline = cursor, pipeline

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        self._pipeline.sync()
        return self._cursor.rowcount

    def fetchone(self) -> Any:
        """Return the next row."""
        self._pipeline.sync()
        return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        """Return all rows."""
        self._pipeline.sync()
        return self._cursor.fetchall()


class _PipelinedStatements(_Statements):
    """Sends statements together, up to the next one whose rows are read."""

    def __init__(
        self, connection: psycopg.Connection[Any], pipeline: psycopg.Pipeline
    ) -> None:
        super().__init__(connection)
        self._pipeline = pipeline

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Cursor:
        """Send one statement."""
        return _Synced(super().execute(statement, values), self._pipeline)


class PostgresDatabase(Database):
    """The tables of one run, over connections that are made anew when they break.

    Parameters
    ----------
    connector : Connector
        Opens connections to them.
    explain : Explain
        Says what a failure means for the run.
    lease : PostgresLease | None
        Of whoever writes the run; workers need none, since all their calls may be
        repeated.
    threads : int
        How many transactions may be under way at once.
    """

    def __init__(
        self,
        connector: Connector,
        explain: Explain,
        *,
        lease: PostgresLease | None = None,
        threads: int = 1,
    ) -> None:
        self._connector, self._explain, self._lease = connector, explain, lease
        with connector.connect():  # the pool would only say that it has no connection
            pass
        self._pool = psycopg_pool.ConnectionPool(
            connector.conninfo,
            kwargs={"autocommit": True},
            configure=connector.configure,
            min_size=1,
            max_size=threads,
            timeout=_POOL_WAIT_S,
            reconnect_timeout=_POOL_WAIT_S / 2,
            open=True,
        )
        super().__init__("postgres", threads)

    def close(self) -> None:
        """Do what was asked for, then close the connections."""
        super().close()
        self._pool.close()

    def repeat(self, work: Callable[[], Result]) -> Result:
        """Do something again where the server was away; give up after a minute."""
        give_up, pause_s = time.monotonic() + PATIENCE_S, _FIRST_PAUSE_S
        while True:
            try:
                return work()
            except LostConnectionError:
                if time.monotonic() + pause_s > give_up:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Keep everything written inside, or nothing of it."""
        with (
            self._connector.explaining(self._explain),
            self._pool.connection() as connection,
        ):
            begun = self._write_fenced if self._lease else self._write_pipelined
            try:
                with begun(connection) as statements:
                    yield statements
            except BaseException:
                with contextlib.suppress(psycopg.Error):
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _write_pipelined(
        self, connection: psycopg.Connection[Any]
    ) -> Iterator[_Statements]:
        """Make three journeys of a worker's call instead of eight.

        It may be repeated, so that what became of a commit that was not heard need not
        be known.
        """
        with connection.pipeline() as pipeline:
            connection.execute("BEGIN")
            yield _PipelinedStatements(connection, pipeline)
            connection.execute("COMMIT")

    @contextmanager
    def _write_fenced(
        self, connection: psycopg.Connection[Any]
    ) -> Iterator[_Statements]:
        """Look at the lease first; ask what became of a commit that was not heard."""
        assert self._lease is not None
        connection.execute("BEGIN")
        number = self._lease.fence(connection)
        yield _Statements(connection)
        try:
            connection.execute("COMMIT")
        except psycopg.OperationalError:
            if not self._is_committed(number):
                raise

    def rows(self, query: str, *values: object) -> list[Any]:
        """Read all rows of a query."""

        def read() -> list[Any]:
            with (
                self._connector.explaining(self._explain),
                self._pool.connection() as connection,
            ):
                return connection.execute(native(query), values or None).fetchall()

        return self.repeat(read)

    def _is_committed(self, number: str) -> bool:
        """Ask what became of a transaction whose end was not heard."""

        def ask() -> bool:
            # Not by the pool: it may have no other than the broken connection.
            [(outcome,)] = self._connector.run(statements.OUTCOME, number)
            if outcome == "in progress":
                raise LostConnectionError(
                    f"a transaction of {self._connector.name} hangs"
                )
            return bool(outcome == "committed")

        return self.repeat(ask)


# Who reads a large run computes for long between two queries, and holds nobody up.
_READING = "SET LOCAL idle_in_transaction_session_timeout TO '1h'"


class PostgresSnapshot(Database):
    """A run as it was when it was opened for reading, whatever is written since."""

    def __init__(self, connector: Connector, explain: Explain) -> None:
        self._connector, self._explain = connector, explain
        self._mutex = threading.Lock()
        self._connection = connector.connect()
        try:
            with connector.explaining(explain):
                self._connection.execute(
                    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
                )
                self._connection.execute(_READING)
                # The snapshot is taken by the first query, not by BEGIN.
                self._connection.execute("SELECT 1")
        except BaseException:
            self._connection.close()
            raise
        super().__init__("postgres-reader")

    def close(self) -> None:
        """Do what was asked for, then close the connection."""
        super().close()
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Refuse: PostgreSQL lets nobody write here."""
        with self._mutex, self._connector.explaining(self._explain):
            yield _Statements(self._connection)

    def rows(self, query: str, *values: object) -> list[Any]:
        """Read all rows of a query."""
        with self._mutex, self._connector.explaining(self._explain):
            return self._connection.execute(native(query), values or None).fetchall()
