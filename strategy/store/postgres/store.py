"""A run in PostgreSQL: its schema, its pointer, what an operator asks of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from psycopg.sql import SQL, Identifier

from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.private import write_anew
from wallflower.protocol.files.settings import read_toml, settings_from
from wallflower.strategy.store import operator_requests, sql
from wallflower.strategy.store.database import (
    POINTER_FILE,
    Database,
    Explain,
    Lease,
    RunStore,
)
from wallflower.strategy.store.postgres import statements
from wallflower.strategy.store.postgres.connecting import Connector, native
from wallflower.strategy.store.postgres.database import (
    PostgresDatabase,
    PostgresSnapshot,
)
from wallflower.strategy.store.postgres.lease import PostgresLease

_CONNECTIONS = 4  # of a worker
_LONGEST_SCHEMA = 40


@dataclass(frozen=True, slots=True)
class Pointer:
    """What `store.toml` says: in which database a run is, and in which schema of it."""

    url: str
    schema: str

    @classmethod
    def for_run(cls, url: str, run_id: str) -> Pointer:
        """Name the schema of a new run."""
        digest = hashlib.sha256(run_id.encode()).hexdigest()[:8]
        word = re.sub(r"[^a-z0-9]+", "_", run_id.lower())[:_LONGEST_SCHEMA]
        return cls(url, f"run_{word.strip('_')}_{digest}")

    @classmethod
    def read(cls, run_dir: Path) -> Pointer:
        """Read the pointer of a run directory."""
        path = run_dir / POINTER_FILE
        return settings_from(cls, read_toml(path), str(path))

    def write(self, run_dir: Path) -> None:
        """Write the pointer, so that the directory stands for the run."""
        lines = (f"{key} = {json.dumps(getattr(self, key))}" for key in self.__slots__)
        write_anew(run_dir / POINTER_FILE, ("\n".join(lines) + "\n").encode())


class PostgresRequests(operator_requests.OperatorRequests):
    """Requests as rows, which reach a server on any host."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def request_pause(self) -> None:
        """Write the row."""
        self._connector.run(statements.ADD_REQUEST, statements.PAUSE, "")

    def is_pause_requested(self) -> bool:
        """Look for the row."""
        return statements.PAUSE in dict(self._connector.run(statements.REQUESTS))

    def withdraw_pause(self) -> None:
        """Remove the row."""
        self._connector.run(statements.DROP_REQUEST, statements.PAUSE)

    def request_retirement(self, arm: int, reason: str) -> None:
        """Write a row with the reason."""
        self._connector.run(statements.ADD_REQUEST, arm, reason)

    def read_retirements(self) -> Mapping[int, str]:
        """Read all rows."""
        found = dict(self._connector.run(statements.REQUESTS))
        found.pop(statements.PAUSE, None)
        return found

    def withdraw_retirement(self, arm: int) -> None:
        """Remove the row."""
        self._connector.run(statements.DROP_REQUEST, arm)


class PostgresStore(RunStore):
    """A schema in a database, which processes on several hosts share."""

    def __init__(self, run_dir: Path, pointer: Pointer) -> None:
        self.run_dir, self._pointer = run_dir, pointer
        self._connector = Connector(pointer.url, pointer.schema)
        self.name = self.spool_name = self._connector.name

    def holds_run(self) -> bool:
        """Return whether the schema has a journal."""
        with self._connector.connect() as connection:
            table = f'"{self._pointer.schema}".meta'
            [(found,)] = connection.execute(
                "SELECT to_regclass(%s) IS NOT NULL", [table]
            ).fetchall()
            return bool(found)

    def prepare(self) -> None:
        """Make the schema and the lease."""
        with (
            self._connector.explaining(self._connector.explain),
            self._connector.connect() as connection,
        ):
            connection.execute(
                SQL("CREATE SCHEMA IF NOT EXISTS {}").format(
                    Identifier(self._pointer.schema)
                )
            )
            for statement in statements.LEASE_SCHEMA.split(";"):
                connection.execute(native(statement))

    def point(self) -> None:
        """Write `store.toml`."""
        self._pointer.write(self.run_dir)

    def discard(self) -> None:
        """Remove the schema and the pointer."""
        with (
            contextlib.suppress(UnavailableError),
            self._connector.connect() as connection,
        ):
            connection.execute(
                SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(
                    Identifier(self._pointer.schema)
                )
            )
        (self.run_dir / POINTER_FILE).unlink(missing_ok=True)

    def acquire(self) -> PostgresLease:
        """Take the lease."""
        return PostgresLease(self._connector, self.run_dir)

    def is_held(self) -> bool:
        """Return whether somebody renews the lease."""
        found = self._connector.run(statements.LEASE)
        return any(is_valid for _, is_valid, _ in found)

    def open_journal(self, explain: Explain, lease: Lease | None) -> Database:
        """Open the journal's tables."""
        if lease is None:
            return PostgresSnapshot(self._connector, explain)
        return PostgresDatabase(self._connector, explain, lease=_own(lease))

    def open_spool(self, lease: Lease, explain: Explain) -> Database:
        """Open the spool's tables; make them where they are missing."""
        database = PostgresDatabase(self._connector, explain, lease=_own(lease))
        try:
            statements = sql.SPOOL_SCHEMA.split(";")[:-1]
            database.write(*((statement, [()]) for statement in statements))
        except BaseException:
            database.close()
            raise
        return database

    def open_seats(self, explain: Explain) -> Database:
        """Open the seats' tables."""
        url, schema = self._pointer.url, self._pointer.schema
        by_index = Connector(url, schema, by_index=True)
        return PostgresDatabase(by_index, explain, threads=_CONNECTIONS)

    @property
    def requests(self) -> operator_requests.OperatorRequests:
        """Rows of a table."""
        return PostgresRequests(self._connector)


def _own(lease: Lease) -> PostgresLease:
    assert isinstance(lease, PostgresLease)
    return lease
