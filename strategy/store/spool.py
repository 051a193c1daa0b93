"""What the server holds of open cohorts, on disk, so that a restart loses nothing.

Per cohort one row: the stage, the machine's snapshot taken *before* the first message
of that stage left, and at the end the outcome; and one row per answer received since.
A restart restores the snapshot, hears the spooled answers again and asks the silent
parties with the same request ids; nodes give what they have stored. Since the closed
set is inside the snapshot that precedes the tally's first message, no cohort is ever
closed in two ways, and nobody counts twice.

Answers are sealed for committee members or masked; no plain contribution is ever here.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from wallflower.protocol.errors import JournalError
from wallflower.protocol.files.closing import Closing
from wallflower.protocol.files.sqlite import open_database, transaction
from wallflower.protocol.secure_sum.session import PartyId, SecureSum, Void

_SCHEMA = """
CREATE TABLE IF NOT EXISTS cohort (
    cohort_id TEXT PRIMARY KEY,
    stage     TEXT NOT NULL,
    snapshot  BLOB,
    outcome   TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS event (
    cohort_id TEXT NOT NULL REFERENCES cohort ON DELETE CASCADE,
    number    INTEGER NOT NULL,
    party     TEXT NOT NULL,
    lost      TEXT,
    body      BLOB,
    PRIMARY KEY (cohort_id, number)
) STRICT, WITHOUT ROWID;
"""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Receipt:
    """A party's answer in the current stage."""

    party: PartyId
    body: bytes

    def __repr__(self) -> str:
        """Show who and how much, not what."""
        return f"Receipt({self.party!r}, bytes={len(self.body)})"


@dataclass(frozen=True, slots=True)
class Loss:
    """A party that refused, failed or is gone."""

    party: PartyId
    code: str


class Spool(Closing):
    """One SQLite file (WAL) for all cohorts of a run; one thread writes it.

    Parameters
    ----------
    path : Path
        The file; created with mode 0600 if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spool")
        try:
            self._database = self._thread.submit(self._open).result()
        except BaseException:
            self._thread.shutdown()
            raise

    def _open(self) -> sqlite3.Connection:
        try:
            database = open_database(self._path)
        except (OSError, sqlite3.Error) as error:
            raise self._cannot_open(error) from None
        try:
            database.executescript(_SCHEMA)
        except sqlite3.Error as error:
            database.close()
            raise self._cannot_open(error) from None
        return database

    def _cannot_open(self, error: Exception) -> JournalError:
        return JournalError(f"spool {self._path} cannot be opened: {error}")

    def close(self) -> None:
        """Write what is noted, close the file, end the thread."""
        self._thread.submit(self._database.close).result()
        self._thread.shutdown()

    def cohort(self, cohort_id: str) -> CohortSpool:
        """Return the part of the spool that belongs to one cohort."""
        return CohortSpool(self, cohort_id)

    async def open_cohorts(self) -> Sequence[str]:
        """Name the cohorts that were not forgotten."""

        def read(database: sqlite3.Connection) -> list[str]:
            rows = database.execute("SELECT cohort_id FROM cohort ORDER BY rowid")
            return [row[0] for row in rows]

        return await self.call(read)

    def submit(self, work: Callable[[sqlite3.Connection], Result]) -> Future[Result]:
        """Queue one transaction for the writing thread."""

        def run() -> Result:
            try:
                with transaction(self._database):
                    return work(self._database)
            except sqlite3.Error as error:
                raise JournalError(
                    f"spool {self._path} cannot be written: {error}; free the disk or "
                    "move the run directory, then resume"
                ) from None

        return self._thread.submit(run)

    async def call(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run one transaction and wait until it is on disk."""
        return await asyncio.wrap_future(self.submit(work))


class CohortSpool:
    """The spool of one cohort, used by `run_session`."""

    def __init__(self, spool: Spool, cohort_id: str) -> None:
        self._spool = spool
        self._cohort_id = cohort_id
        self._noted: list[tuple[int, Receipt | Loss]] = []
        self._next_number = 0
        self._writing = False
        self._failure: BaseException | None = None

    async def stage(self) -> str | None:
        """The stage of the last snapshot; None for a cohort never started."""
        stage: str | None = await self._value(
            "SELECT stage FROM cohort WHERE cohort_id = ?"
        )
        return stage

    async def snapshot(self) -> bytes | None:
        """The last snapshot, or None for a cohort that never started or is over."""
        snapshot: bytes | None = await self._value(
            "SELECT snapshot FROM cohort WHERE cohort_id = ?"
        )
        return snapshot

    async def outcome(self) -> SecureSum | Void | None:
        """How the cohort ended, or None while it is open."""
        text = await self._value("SELECT outcome FROM cohort WHERE cohort_id = ?")
        if text is None:
            return None
        fields = json.loads(text)
        if fields.pop("kind") == "void":
            return Void(**fields)
        fields["survivors"] = tuple(fields["survivors"])
        return SecureSum(**fields)

    async def events(self) -> Sequence[Receipt | Loss]:
        """The answers since the snapshot, in the order in which they came."""

        def read(database: sqlite3.Connection) -> list[Receipt | Loss]:
            rows = database.execute(
                "SELECT number, party, lost, body FROM event WHERE cohort_id = ? "
                "ORDER BY number",
                (self._cohort_id,),
            )
            events: list[Receipt | Loss] = []
            for number, party, lost, body in rows:
                self._next_number = number + 1
                events.append(
                    Receipt(party, body) if lost is None else Loss(party, lost)
                )
            return events

        return await self._spool.call(read)

    async def enter_stage(self, stage: str, snapshot: bytes) -> None:
        """Keep the machine's state; returns when it is on disk.

        The snapshot contains every answer heard so far, so their rows go.
        """
        self._noted.clear()

        def write(database: sqlite3.Connection) -> None:
            self._delete_events(database)
            database.execute(
                "INSERT INTO cohort VALUES (?, ?, ?, NULL) ON CONFLICT DO UPDATE "
                "SET stage = excluded.stage, snapshot = excluded.snapshot",
                (self._cohort_id, stage, snapshot),
            )

        await self._spool.call(write)

    def note(self, event: Receipt | Loss) -> None:
        """Keep one answer, soon; many that come together share a transaction.

        A crash before it is on disk costs nothing: the node gives the same answer to
        the same request id, and no message that depends on it has left.
        """
        if self._failure is not None:
            raise self._failure  # a full disk is an error, not a silent loss
        self._noted.append((self._next_number, event))
        self._next_number += 1
        self._write_noted()

    def _write_noted(self) -> None:
        if self._writing or not self._noted:
            return
        batch, self._noted = self._noted, []
        rows = [
            (self._cohort_id, number, event.party, event.code, None)
            if isinstance(event, Loss)
            else (self._cohort_id, number, event.party, None, event.body)
            for number, event in batch
        ]

        def write(database: sqlite3.Connection) -> None:
            database.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?)", rows)

        self._writing = True
        future = asyncio.wrap_future(self._spool.submit(write))
        future.add_done_callback(self._written)

    def _written(self, future: asyncio.Future[None]) -> None:
        self._writing = False
        self._failure = None if future.cancelled() else future.exception()
        if self._failure is None:
            self._write_noted()

    async def finish(self, outcome: SecureSum | Void) -> None:
        """Keep the outcome and drop everything else of the cohort."""
        self._noted.clear()
        if isinstance(outcome, Void):
            fields: dict[str, object] = {
                "kind": "void",
                "code": outcome.code,
                "detail": outcome.detail,
            }
        else:
            fields = {
                "kind": "sum",
                "total": outcome.total,
                "modulus": outcome.modulus,
                "survivors": outcome.survivors,
                "users": outcome.users,
            }

        def write(database: sqlite3.Connection) -> None:
            self._delete_events(database)
            database.execute(
                "INSERT INTO cohort VALUES (?, 'over', NULL, ?) ON CONFLICT DO UPDATE "
                "SET stage = 'over', snapshot = NULL, outcome = excluded.outcome",
                (self._cohort_id, json.dumps(fields)),
            )

        await self._spool.call(write)

    async def forget(self) -> None:
        """Drop the cohort, once its outcome is written down elsewhere."""
        await self._spool.call(
            lambda database: database.execute(
                "DELETE FROM cohort WHERE cohort_id = ?", (self._cohort_id,)
            )
        )

    def _delete_events(self, database: sqlite3.Connection) -> None:
        database.execute("DELETE FROM event WHERE cohort_id = ?", (self._cohort_id,))

    async def _value(self, query: str) -> Any:
        def read(database: sqlite3.Connection) -> Any:
            row = database.execute(query, (self._cohort_id,)).fetchone()
            return None if row is None else row[0]

        return await self._spool.call(read)
