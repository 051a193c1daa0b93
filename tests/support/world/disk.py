"""Disks that fill up, and what they hold of a process that died while it wrote.

SQLite is real and so are its files. A disk that is full refuses every statement that
writes, with SQLite's own code. A process that dies leaves its files as they are then:
with a write-ahead log that nobody folded in, and, where it died in the middle of a
transaction, with only a part of that transaction's bytes, or with garbage in them.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support.world.processes import PROCESS, Process
from tests.support.world.threads import Job

_WRITES = ("INSERT", "UPDATE", "DELETE", "CREATE", "COMMIT", "REPLACE")
_connect = sqlite3.connect


class DiskConnection(sqlite3.Connection):
    """A connection on the disk of the process that opened it."""

    process: Process | None = None

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        self._check(sql)
        return super().execute(sql, *values)

    def executemany(self, sql: str, *values: Any) -> sqlite3.Cursor:
        self._check(sql)
        return super().executemany(sql, *values)

    def executescript(self, sql: str) -> sqlite3.Cursor:
        self._check(sql)
        return super().executescript(sql)

    def _check(self, sql: str) -> None:
        full = self.process is not None and self.process.disk_full
        if full and sql.lstrip().upper().startswith(_WRITES):
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            error.sqlite_errorname = "SQLITE_FULL"
            raise error


@contextmanager
def simulated_disks() -> Iterator[None]:
    """Open every database on the disk of its process."""

    def connect(*args: Any, **named: Any) -> sqlite3.Connection:
        connection = _connect(*args, **named, factory=DiskConnection)
        assert isinstance(connection, DiskConnection)
        process = connection.process = PROCESS.get()
        if process is not None:
            process.connections.append(connection)
        return connection

    with mock.patch.object(sqlite3, "connect", connect):
        yield


def leave_files_of(process: Process, source: random.Random, *, torn: bool) -> int:
    """Leave a dead process's home as its disk has it; give how many files are torn."""
    files = {
        path: bytearray(path.read_bytes())
        for path in sorted(process.home.iterdir())
        if path.is_file() and not path.name.endswith("-shm")
    }
    damaged = sum(_tear(files, job, source) for job in process.jobs) if torn else 0
    # Closing folds the log in, as a killed process does not: hence the copies.
    for connection in process.connections:
        connection.close()
    process.connections.clear()
    for path in list(process.home.iterdir()):
        path.unlink()
    for path, content in files.items():
        path.write_bytes(content)
        path.chmod(0o600)
    return damaged


def _tear(files: dict[Path, bytearray], job: Job, source: random.Random) -> int:
    """Stop a transaction somewhere on its way: into its log, or into the counter.

    A log is flushed before the counter is written, so one that is torn has a counter
    that knows nothing of it.
    """
    logs = {Path(name): sizes for name, sizes in job.grown.items()}
    if any(len(files.get(path, b"")) != after for path, (_, after) in logs.items()):
        return 0  # something later was written whole
    counters = {Path(name): change for name, change in job.counted.items()}
    if counters and source.random() < 0.5:
        for path, (old, new) in counters.items():
            files[path] = half_written(old, new, source)
        return len(counters)
    for path, (old, _) in counters.items():
        files[path] = bytearray(old)
    for path, (before, after) in logs.items():
        cut = source.randint(before, after - 1)
        garbage = source.randbytes(after - cut) if source.random() < 0.5 else b""
        files[path][cut:] = garbage
    return len(logs)


def half_written(old: bytes, new: bytes, source: random.Random) -> bytearray:
    """Write the part that changed up to some byte; beyond it nothing, or garbage."""
    old = old.ljust(len(new), b"\0")[: len(new)]
    places = [place for place, byte in enumerate(new) if byte != old[place]]
    cut = source.choice(places)
    rest = bytearray(old[cut:])
    if source.random() < 0.5:
        length = places[-1] + 1 - cut
        rest[:length] = source.randbytes(length)
    return bytearray(new[:cut]) + rest


def ledger_rows(path: Path) -> list[tuple[str, str, str]]:
    """Read a ledger with nothing but SQLite: node, cohort, users as JSON."""
    if not path.exists():
        return []
    database = _connect(path)
    try:
        return database.execute(
            "SELECT node_id, cohort_id, users FROM spend ORDER BY number"
        ).fetchall()
    finally:
        database.close()
