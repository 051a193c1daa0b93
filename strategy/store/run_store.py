"""Where a run is written down: SQLite files in its directory, or a PostgreSQL database.

The run directory says which. With PostgreSQL it holds `store.toml`: the address, which
has no password in it, and the schema that holds the run's tables. A copy of that file
in another directory, on any host, stands for the same run.
"""

from __future__ import annotations

from pathlib import Path

from wallflower.protocol.errors import optional_module
from wallflower.strategy.store import operator_requests, sql
from wallflower.strategy.store.database import (
    FILE_NAME,
    LOCK_NAME,
    POINTER_FILE,
    Database,
    Explain,
    Lease,
    RunLock,
    RunStore,
    SqliteDatabase,
)

SPOOL_FILE = "spool.sqlite"


class SqliteStore(RunStore):
    """Files in the run directory, which one host's processes share."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.name = str(run_dir / FILE_NAME)
        self.spool_name = str(run_dir / SPOOL_FILE)

    def holds_run(self) -> bool:
        """Return whether the journal's file is there."""
        return (self.run_dir / FILE_NAME).is_file()

    def prepare(self) -> None:
        """Need nothing: opening makes the files."""

    def point(self) -> None:
        """Need nothing: the files are in the directory."""

    def discard(self) -> None:
        """Remove the journal's files and the lock."""
        for leftover in (
            *self.run_dir.glob(FILE_NAME + "*"),
            self.run_dir / LOCK_NAME,
        ):
            if leftover.is_file():
                leftover.unlink()

    def acquire(self) -> Lease:
        """Lock the run directory; the kernel frees it when the process dies."""
        return RunLock(self.run_dir)

    def is_held(self) -> bool:
        """Return whether somebody has the lock."""
        return RunLock.is_held(self.run_dir)

    def open_journal(self, explain: Explain, lease: Lease | None) -> Database:
        """Open `journal.sqlite`."""
        path = self.run_dir / FILE_NAME
        return SqliteDatabase(path, explain, read_only=lease is None)

    def open_spool(self, lease: Lease, explain: Explain) -> Database:
        """Open `spool.sqlite`, a file of its own: it changes much more often."""
        path = Path(self.spool_name)
        return SqliteDatabase(path, explain, schema=sql.SPOOL_SCHEMA)

    def open_seats(self, explain: Explain) -> Database:
        """Open `journal.sqlite`, where the seats are too."""
        return SqliteDatabase(self.run_dir / FILE_NAME, explain)

    @property
    def requests(self) -> operator_requests.OperatorRequests:
        """Files in the run directory."""
        return operator_requests.RequestFiles(self.run_dir)


def store_of(run_dir: Path) -> RunStore:
    """Return where a run is written down, or would be if it were begun here."""
    if not (run_dir / POINTER_FILE).exists():
        return SqliteStore(run_dir)
    _need_postgres()
    from wallflower.strategy.store.postgres.store import Pointer, PostgresStore

    return PostgresStore(run_dir, Pointer.read(run_dir))


def new_store(run_dir: Path, url: str, run_id: str) -> RunStore:
    """Return where a new run is written down; `url` is empty for SQLite."""
    if not url:
        return SqliteStore(run_dir)
    _need_postgres()
    from wallflower.strategy.store.postgres.store import Pointer, PostgresStore

    return PostgresStore(run_dir, Pointer.for_run(url, run_id))


def is_held(run_dir: Path) -> bool:
    """Return whether a server works on a run."""
    return store_of(run_dir).is_held()


def requests_of(run_dir: Path) -> operator_requests.OperatorRequests:
    """Return what an operator asks of a run."""
    return store_of(run_dir).requests


def has_run(run_dir: Path) -> bool:
    """Return whether a directory stands for a run, without asking a database."""
    return any((run_dir / name).is_file() for name in (FILE_NAME, POINTER_FILE))


def _need_postgres() -> None:
    for package in ("psycopg", "psycopg_pool"):
        optional_module(package, "postgres")
