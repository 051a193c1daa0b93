"""A run's SQLite file and lock: transactions that keep everything or nothing."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from wallflower.protocol.errors import JournalError, UnavailableError
from wallflower.protocol.files.closing import Closing
from wallflower.protocol.files.sqlite import (
    open_database,
    read_database,
    transaction,
)
from wallflower.strategy.store import event_log

Result = TypeVar("Result")

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


class RunLock:
    """Keeps a second server off a run; the kernel frees it when the process dies."""

    def __init__(self, run_dir: Path) -> None:
        path = run_dir / LOCK_NAME
        try:
            self._file: int | None = os.open(
                path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise _cannot_open(path, error) from None
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
            raise _cannot_open(run_dir / LOCK_NAME, error) from None
        try:
            return not _locked(looked_at, fcntl.LOCK_SH, attempts=1)
        finally:
            os.close(looked_at)

    def release(self) -> None:
        """Release the run for another server."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _cannot_open(path: Path, error: OSError) -> UnavailableError:
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


class RunStore(Closing):
    """The file, for one writer (who holds the lock) and any number of readers.

    A reader sees the record as it was when it was opened, whatever a server writes
    meanwhile; `told_bytes` is how long the events were a moment before.

    Parameters
    ----------
    run_dir : Path
        Where the file lies.
    lock : RunLock | None
        None opens for reading only.
    new : bool
        True until the run is founded: if that fails there is nothing to resume.
    """

    def __init__(
        self, run_dir: Path, lock: RunLock | None, *, new: bool = False
    ) -> None:
        self.run_dir = run_dir
        self.path = run_dir / FILE_NAME
        self._lock = lock
        self._new = new
        self._kept: dict[str, Any] = {}
        # The orchestrator writes from worker threads, one transaction at a time.
        self._mutex = threading.Lock()
        self.told_bytes = event_log.size(run_dir) if lock is None else None
        self._database = self._connect(read_only=lock is None)
        # Of its own: a write waits for no thread that something else holds.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")

    def close(self) -> None:
        """Close the file and release the lock."""
        self._thread.shutdown()
        with self._mutex:
            self._database.close()
        if self._lock is not None:
            self._lock.release()

    async def call(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Do something with the file on its own thread, and wait for it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, work, *arguments)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Keep everything written inside, or nothing of it."""
        with self._mutex:
            try:
                with transaction(self._database):
                    yield self._database
            except sqlite3.Error as error:
                raise self._failure(error) from None

    def rows(self, query: str, *values: object) -> list[Any]:
        """Read all rows of a query."""
        with self._mutex:
            try:
                return self._database.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise self._failure(error) from None

    def read_once(self, name: str, read: Callable[[], Result]) -> Result:
        """Read something; a reader, to whom it stays as it is, keeps what it read."""
        if self._lock is not None:
            return read()
        if name not in self._kept:
            self._kept[name] = read()
        kept: Result = self._kept[name]
        return kept

    def _connect(self, *, read_only: bool) -> sqlite3.Connection:
        opened = read_database if read_only else open_database
        try:
            database = opened(self.path, any_thread=True)
            if read_only:
                database.execute("BEGIN")
            return database
        except OSError as error:
            raise _cannot_open(self.path, error) from None
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def _failure(self, error: sqlite3.Error) -> JournalError | UnavailableError:
        # The low byte is the primary code; the rest says more of the same.
        code = getattr(error, "sqlite_errorcode", 0)
        if code in _NO_ROOM or code & 0xFF in _NO_ROOM:
            advice = (
                "no run was begun: make room, then start it again"
                if self._new
                else "nothing of this step was kept: make room, then `wallflower "
                f"resume {self.run_dir}`"
            )
            return UnavailableError(
                f"{self.path} cannot be written ({error}); {advice}"
            )
        return JournalError(f"{self.path}: {error}")
