"""What a run needs of a database: transactions that keep everything or nothing.

SQLite's files and lock are here; `postgres` has the other implementation.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import os
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from wallflower.protocol.errors import UnavailableError, WallflowerError
from wallflower.protocol.files.sqlite import (
    Closing,
    open_database,
    read_database,
    transaction,
)
from wallflower.strategy.store import archive_sql, operator_requests

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
# What went wrong, and whether it is for want of room or of rights → what to raise.
Explain: TypeAlias = Callable[[Exception, bool], WallflowerError]

FILE_NAME = "journal.sqlite"
LOCK_NAME = "lock"
POINTER_FILE = "store.toml"  # says that a run is in another database, and in which
_STANDBY_PAUSE_S = 0.25
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


class Cursor(Protocol):
    """What a statement found or changed."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row."""
        ...

    def fetchall(self) -> list[Any]:
        """Return all rows."""
        ...


class Transaction(Protocol):
    """Runs statements that are all kept or none; `sqlite3.Connection` is one."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> Cursor:
        """Run one statement."""
        ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run a statement for each row of values."""
        ...


class Database(Closing):
    """Tables that somebody reads or writes, on threads of their own.

    Parameters
    ----------
    name : str
        Of the threads.
    threads : int
        One does everything in the order of the calls.
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        # Of its own: a write waits for no thread that something else holds.
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def close(self) -> None:
        """Do what was asked for."""
        self._threads.shutdown()

    def submit(
        self, work: Callable[..., Result], *arguments: object
    ) -> asyncio.Future[Result]:
        """Do something with the tables on their own threads."""
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._threads, work, *arguments)

    async def call(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Do something with the tables on their own threads, and wait for it."""
        return await self.submit(work, *arguments)

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Transaction]:
        """Keep everything written inside, or nothing of it."""

    @abstractmethod
    def rows(self, query: str, *values: object) -> list[Any]:
        """Read all rows of a query."""

    def repeat(self, work: Callable[[], Result]) -> Result:
        """Do something that is one transaction; again where a server was restarted."""
        return work()

    def write(self, *statements: tuple[str, Sequence[Sequence[object]]]) -> None:
        """Run each statement for each of its rows of values, in one transaction."""

        def work() -> None:
            with self.transaction() as connection:
                for statement, rows in statements:
                    connection.executemany(statement, rows)

        self.repeat(work)


class _HasDatabase(Protocol):
    @property
    def database(self) -> Database: ...


Owner = TypeVar("Owner", bound=_HasDatabase)


def repeats(
    method: Callable[Concatenate[Owner, Arguments], Result],
) -> Callable[Concatenate[Owner, Arguments], Result]:
    """Let a method whose effect is one transaction survive a restarted server.

    It runs again where nothing of it was kept, and only there.
    """

    @functools.wraps(method)
    def run_again(
        owner: Owner, /, *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        return owner.database.repeat(lambda: method(owner, *arguments, **named))

    return run_again


class SqliteDatabase(Database):
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
        super().__init__(path.stem)

    def close(self) -> None:
        """Do what was asked for, then close the file."""
        super().close()
        with self._mutex:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Keep everything written inside, or nothing of it."""
        with self._mutex, self._explaining(), transaction(self._connection):
            yield self._connection

    def compact(self) -> None:
        """Leave nothing in the file, or beside it, of what was deleted."""
        with self._mutex, self._explaining():
            for statement in archive_sql.COMPACT:
                self._connection.execute(statement).fetchall()

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


class Lease(Protocol):
    """The right to write a run: one server at a time has it."""

    def release(self) -> None:
        """Leave the run to another server."""
        ...


class RunStore(ABC):
    """All that is written down of one run, and whoever may write it.

    Attributes
    ----------
    run_dir : the run's directory.
    name, spool_name : what messages call journal and spool.
    """

    run_dir: Path
    name: str
    spool_name: str

    @abstractmethod
    def holds_run(self) -> bool:
        """Return whether a run was founded here."""

    @abstractmethod
    def prepare(self) -> None:
        """Make what the lease of a new run needs."""

    @abstractmethod
    def point(self) -> None:
        """Let the run directory stand for a run that was founded."""

    @abstractmethod
    def discard(self) -> None:
        """Remove what there is of a run that could not be founded."""

    @abstractmethod
    def acquire(self) -> Lease:
        """Become the one who writes; raise UnavailableError where another server is."""

    @abstractmethod
    def is_held(self) -> bool:
        """Return whether a server works on the run, on this host or on another."""

    @abstractmethod
    def open_journal(self, explain: Explain, lease: Lease | None) -> Database:
        """Open the journal, for reading only where there is no lease."""

    @abstractmethod
    def open_spool(self, lease: Lease, explain: Explain) -> Database:
        """Open the spool for whoever has the lease."""

    @abstractmethod
    def open_seats(self, explain: Explain) -> Database:
        """Open the seats for a worker, who needs no lease."""

    @property
    @abstractmethod
    def requests(self) -> operator_requests.OperatorRequests:
        """What an operator asks of the run."""

    def acquire_when_free(self) -> Lease:
        """Wait until no other server works on the run, then take over."""
        while True:
            with contextlib.suppress(UnavailableError):
                if not self.is_held():
                    return self.acquire()
            time.sleep(_STANDBY_PAUSE_S)


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
        if not _try_lock(self._file, fcntl.LOCK_EX, _LOCK_ATTEMPTS):
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
            return not _try_lock(looked_at, fcntl.LOCK_SH, attempts=1)
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


def _try_lock(file: int, kind: int, attempts: int) -> bool:
    for attempt in range(attempts):
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except OSError:
            time.sleep(_LOCK_PAUSE_S * (attempt < attempts - 1))
        else:
            return True
    return False
