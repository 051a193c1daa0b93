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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wallflower.protocol.errors import JournalError
from wallflower.protocol.files.sqlite import Closing
from wallflower.protocol.secure_sum.session import PartyId, SecureSum, Void
from wallflower.strategy.store import sql
from wallflower.strategy.store.database import (
    Database,
    Explain,
    SqliteDatabase,
)


@dataclass(frozen=True, slots=True)
class StageEvent:
    """A party's answer in the current stage; `lost` says why there is none."""

    party: PartyId
    body: bytes | None = None
    lost: str | None = None

    def __repr__(self) -> str:
        """Show who and how much, not what."""
        size = None if self.body is None else len(self.body)
        return f"StageEvent({self.party!r}, bytes={size}, lost={self.lost!r})"


class Spool(Closing):
    """The answers to all cohorts of a run that are not summed; one thread writes them.

    Parameters
    ----------
    path : Path | str
        The file, made with mode 0600 if it is not there; or what a message calls it.
    open_tables : Callable[[Explain], Database], optional
        How to open the tables that lie elsewhere: `Journal.open_spool`.
    """

    def __init__(
        self,
        path: Path | str,
        open_tables: Callable[[Explain], Database] | None = None,
    ) -> None:
        self._path = path
        self._is_open = False
        self._database = (
            SqliteDatabase(Path(path), self._explain, schema=sql.SPOOL_SCHEMA)
            if open_tables is None
            else open_tables(self._explain)
        )
        self._is_open = True

    def _explain(self, error: Exception, _no_room: bool) -> JournalError:
        if not self._is_open:
            return JournalError(f"spool {self._path} cannot be opened: {error}")
        return JournalError(
            f"spool {self._path} cannot be written: {error}; free the disk or "
            "move the run directory, then resume"
        )

    def close(self) -> None:
        """Write what is noted, close the file, end the thread."""
        self._database.close()

    def cohort(self, cohort_id: str) -> CohortSpool:
        """Return the part of the spool that belongs to one cohort."""
        return CohortSpool(self._database, cohort_id)

    async def open_cohorts(self) -> Sequence[str]:
        """Name the cohorts that were not forgotten."""
        rows = await self._database.call(self._database.rows, sql.SPOOLED_COHORTS)
        return [cohort_id for (cohort_id,) in rows]


class CohortSpool:
    """The spool of one cohort, used by `run_session`."""

    def __init__(self, database: Database, cohort_id: str) -> None:
        self._database = database
        self._cohort_id = cohort_id
        self._noted: list[tuple[int, StageEvent]] = []
        self._next_number = 0
        self._writing = False
        self._failure: BaseException | None = None

    async def stage(self) -> str | None:
        """Return the stage of the last snapshot; None for a cohort never started."""
        stage: str | None = (await self._read_kept())[0]
        return stage

    async def snapshot(self) -> bytes | None:
        """The last snapshot, or None for a cohort that never started or is over."""
        snapshot: bytes | None = (await self._read_kept())[1]
        return snapshot

    async def outcome(self) -> SecureSum | Void | None:
        """Return how the cohort ended, or None while it is open."""
        text = (await self._read_kept())[2]
        if text is None:
            return None
        fields = json.loads(text)
        if fields.pop("kind") == "void":
            return Void(**fields)
        fields["survivors"] = tuple(fields["survivors"])
        return SecureSum(**fields)

    async def events(self) -> Sequence[StageEvent]:
        """Return the answers since the snapshot, in the order in which they came."""
        rows = await self._read(sql.SPOOLED_EVENTS)
        if rows:
            self._next_number = rows[-1][0] + 1
        return [StageEvent(*event) for _, *event in rows]

    async def enter_stage(self, stage: str, snapshot: bytes) -> None:
        """Keep the machine's state; returns when it is on disk.

        The snapshot contains every answer heard so far, so their rows go.
        """
        await self._replace(sql.SPOOL_STAGE, stage, snapshot)

    def note(self, event: StageEvent) -> None:
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
            (self._cohort_id, number, event.party, event.lost, event.body)
            for number, event in batch
        ]
        self._writing = True
        writing = self._database.submit(self._database.write, (sql.SPOOL_EVENT, rows))
        writing.add_done_callback(self._end_write)

    def _end_write(self, future: asyncio.Future[None]) -> None:
        self._writing = False
        self._failure = None if future.cancelled() else future.exception()
        if self._failure is None:
            self._write_noted()

    async def finish(self, outcome: SecureSum | Void) -> None:
        """Keep the outcome and drop everything else of the cohort."""
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
        await self._replace(sql.SPOOL_OUTCOME, json.dumps(fields))

    async def forget(self) -> None:
        """Drop the cohort, once its outcome is written down elsewhere."""
        cohort = (self._cohort_id,)
        await self._database.call(self._database.write, (sql.DROP_COHORT, [cohort]))

    async def _replace(self, statement: str, *values: object) -> None:
        """Write the cohort's row anew and drop the answers that are in it."""
        self._noted.clear()
        await self._database.call(
            self._database.write,
            (sql.DROP_EVENTS, [(self._cohort_id,)]),
            (statement, [(self._cohort_id, *values)]),
        )

    async def _read_kept(self) -> tuple[Any, Any, Any]:
        rows = await self._read(sql.SPOOLED_COHORT)
        return rows[0] if rows else (None, None, None)

    async def _read(self, query: str) -> list[Any]:
        return await self._database.call(self._database.rows, query, self._cohort_id)
