"""One door to SQLite: private files, and what was committed is on the disk.

Every table a run or a node keeps is opened here, so that the promises about it stand in
one place: nobody else's account can read it, a commit is flushed before it returns, a
second process waits for the first, and a transaction keeps everything or nothing.
"""

from __future__ import annotations

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from wallflower.protocol.files.private import private_file

# A file that is closed at the end of its ``with``.


class Closing(ABC):
    """Something open that must be closed, whatever happens meanwhile."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close it."""


_WAIT_S = 30.0
_LOOK_S = 0.001
# The primary codes of what SQLite says where it may not make a file.
_NO_WRITING = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}


def open_database(
    path: Path,
    *,
    wait_s: float = _WAIT_S,
    durable: bool = True,
    leaves_no_trace: bool = False,
    any_thread: bool = False,
) -> sqlite3.Connection:
    """Open a file for reading and writing; make it, for this account alone, if need be.

    Parameters
    ----------
    path : Path
        The file; its folder is there.
    wait_s : float
        How long another process's transaction is waited for.
    durable : bool
        Flush every commit to the disk before going on.
    leaves_no_trace : bool
        Overwrite what is deleted with zeros and keep no write-ahead log, for secrets.
    any_thread : bool
        The caller sees to it that one thread at a time uses it.

    Raises
    ------
    OSError, sqlite3.Error
        The caller names the file and says what follows from it.
    """
    private_file(path)
    database = sqlite3.connect(
        path, timeout=wait_s, isolation_level=None, check_same_thread=not any_thread
    )
    try:
        if leaves_no_trace:
            database.execute("PRAGMA secure_delete = ON")
            database.execute("PRAGMA journal_mode = TRUNCATE")
        else:
            database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
        database.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        database.close()
        raise
    return database


def read_database(path: Path, *, any_thread: bool = False) -> sqlite3.Connection:
    """Open a file that is there, for reading only; a read-only disk will do.

    Beside a database with a write-ahead log SQLite makes files even to read it. Where
    it cannot, and no log holds anything, the file alone is the whole of it.
    """

    def connect(how: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{path.resolve().as_uri()}?{how}",
            uri=True,
            timeout=_WAIT_S,
            isolation_level=None,
            check_same_thread=not any_thread,
        )

    database = connect("mode=ro")
    try:
        database.execute("PRAGMA schema_version").fetchone()
    except sqlite3.OperationalError as error:
        database.close()
        if error.sqlite_errorcode & 0xFF not in _NO_WRITING or _has_log(path):
            raise
        return connect("immutable=1")
    except BaseException:
        database.close()
        raise
    return database


def _has_log(path: Path) -> bool:
    """Return whether a write-ahead log holds anything that the file lacks."""
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def _begin(database: sqlite3.Connection) -> None:
    """Begin to write as soon as nobody else does.

    SQLite itself sleeps for up to 100 ms between two looks. Where several processes
    write all the time, one of them would hardly ever look at the right moment.
    """
    [(wait_ms,)] = database.execute("PRAGMA busy_timeout").fetchall()
    give_up = time.monotonic() + wait_ms / 1000
    database.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                database.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() >= give_up:
                    raise
            else:
                return
            time.sleep(_LOOK_S)
    finally:
        database.execute(f"PRAGMA busy_timeout = {wait_ms}")


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Keep everything written inside, or nothing of it."""
    _begin(database)
    try:
        yield database
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
