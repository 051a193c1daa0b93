"""A run's SQLite files and its lock: transactions that keep everything or nothing."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from wallflower.protocol.errors import UnavailableError, WallflowerError
from wallflower.protocol.files.closing import Closing
from wallflower.protocol.files.sqlite import (
    open_database,
    read_database,
    transaction,
)

Result = TypeVar("Result")
# What went wrong, and whether it is for want of room or of rights → what to raise.
Explain: TypeAlias = Callable[[Exception, bool], WallflowerError]

FILE_NAME = "journal.sqlite"
LOCK_NAME = "lock"
# Whoever only looks whether a server is there has the lock for a moment.
_LOCK_ATTEMPTS, _LOCK_PAUSE_S = 10, 0.02

_NO_ROOM = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
}


class Database(Closing):
    """One file, which one thread at a time reads or writes.

    Parameters
    ----------
    path : Path
        The file; made for this account alone if need be.
    explain : Explain
        Says what a failure means for the run.
    schema : str
        Statements that make the tables where they are missing.
    read_only : bool
        See the file as it is now, whatever a server writes meanwhile.
    """

    def __init__(
        self, path: Path, explain: Explain, *, schema: str = "", read_only: bool = False
    ) -> None:
        self._explain = explain
        self._mutex = threading.Lock()
        with self._explaining((OSError, sqlite3.Error)):
            opened = read_database if read_only else open_database
            self._connection = opened(path, any_thread=True)
            try:
                self._connection.executescript("BEGIN" if read_only else schema)
            except BaseException:
                self._connection.close()
                raise
        # Of its own: a write waits for no thread that something else holds.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=path.stem)

    def close(self) -> None:
        """Do what was asked for, then close the file."""
        self._thread.shutdown()
        with self._mutex:
            self._connection.close()

    def submit(
        self, work: Callable[..., Result], *arguments: object
    ) -> asyncio.Future[Result]:
        """Do something with the file on its own thread, in the order of the calls."""
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._thread, work, *arguments)

    async def call(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Do something with the file on its own thread, and wait for it."""
        return await self.submit(work, *arguments)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Keep everything written inside, or nothing of it."""
        with self._mutex, self._explaining(), transaction(self._connection):
            yield self._connection

    def write(self, *statements: tuple[str, Sequence[Sequence[object]]]) -> None:
        """Run each statement for each of its rows of values, in one transaction."""
        with self.transaction() as connection:
            for statement, rows in statements:
                connection.executemany(statement, rows)

    def rows(self, query: str, *values: object) -> list[Any]:
        """Read all rows of a query."""
        with self._mutex, self._explaining():
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _explaining(
        self, failures: type[Exception] | tuple[type[Exception], ...] = sqlite3.Error
    ) -> Iterator[None]:
        try:
            yield
        except failures as error:
            # The low byte is the primary code; the rest says more of the same.
            code = getattr(error, "sqlite_errorcode", 0)
            no_room = code in _NO_ROOM or code & 0xFF in _NO_ROOM
            raise self._explain(error, no_room) from None


class RunLock:
    """Keeps a second server off a run; the kernel frees it when the process dies."""

    def __init__(self, run_dir: Path) -> None:
        path = run_dir / LOCK_NAME
        try:
            self._file: int | None = os.open(
                path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise cannot_open(path, error) from None
        if not _locked(self._file, fcntl.LOCK_EX, _LOCK_ATTEMPTS):
            self.release()
            raise UnavailableError(
                f"another server works on {run_dir}; stop it first, or look at the run "
                f"by `wallflower status {run_dir}`"
            )

    @staticmethod
    def is_held(run_dir: Path) -> bool:
        """Return whether a server works on a run, on this host or where its disk is."""
        try:
            looked_at = os.open(run_dir / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise cannot_open(run_dir / LOCK_NAME, error) from None
        try:
            return not _locked(looked_at, fcntl.LOCK_SH, attempts=1)
        finally:
            os.close(looked_at)

    def release(self) -> None:
        """Release the run for another server."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def cannot_open(path: Path, error: OSError) -> UnavailableError:
    """Return the error that names a file and why it cannot be opened."""
    return UnavailableError(f"{path} cannot be opened ({error.strerror})")


def _locked(file: int, kind: int, attempts: int) -> bool:
    for attempt in range(attempts):
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except OSError:
            time.sleep(_LOCK_PAUSE_S * (attempt < attempts - 1))
        else:
            return True
    return False
