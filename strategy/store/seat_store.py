"""The workers' half of the seats: whoever arrives takes one, and answers once.

Every call is in one transaction, and calls that wait at the same time in one process
share it: `SeatQueue`. Which seat somebody gets is on the disk before the call returns.
"""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from wallflower.protocol.errors import (
    InputError,
    JournalError,
    UnavailableError,
    WallflowerError,
)
from wallflower.protocol.files.sqlite import Closing
from wallflower.strategy.store import seat_sql
from wallflower.strategy.store.database import Database, repeats
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import store_of
from wallflower.strategy.store.seats import (
    AnswerResult,
    NoFreeSeat,
    SeatedCohort,
    SeatState,
    TakenSeat,
)

ALREADY_ANSWERED, NO_FREE_SEAT = "already-answered", "no-free-seat"
Arrival: TypeAlias = tuple[str, bytes]  # visitor, arrival
Answer: TypeAlias = tuple[str, bytes, str, bytes]  # visitor, arrival, cohort, body
_Rows: TypeAlias = Callable[..., list[Any]]
_LONGEST_NAME = 200
_MOST_AT_ONCE = 256  # calls in one transaction


@dataclass(frozen=True, slots=True)
class _Cohort:
    """What never changes about a cohort; workers keep it."""

    number: int
    cohort_id: str
    arm: int
    deck: int
    seats_until: float
    answers_until: float


@dataclass(slots=True)
class _Seat:
    """A seat that somebody has; `in_open_deck` while anything of its round is open."""

    number: int
    cohort: _Cohort
    state: SeatState
    arrival: bytes
    in_open_deck: bool

    def takes_answers(self, now: float) -> bool:
        """Return whether an answer comes in time."""
        return self.state is SeatState.TAKEN and now <= self.cohort.answers_until


class SeatStore(Closing):
    """The seats of one run, as a worker sees them; any number of processes may.

    Parameters
    ----------
    database : Database
        Where the run is written down.
    most : int
        How often one visitor may have a seat: `privacy.max-participations`.
    clock : Callable[[], float]
        Seconds since the epoch.
    """

    def __init__(
        self, database: Database, most: int, clock: Callable[[], float] = time.time
    ) -> None:
        self.database = database
        self._most = most
        self._clock = clock
        self._cohorts: dict[int, _Cohort] = {}
        self._had_seats = False  # for everybody who last came, so look no further

    @classmethod
    def open(cls, run_dir: Path, clock: Callable[[], float] = time.time) -> SeatStore:
        """Open the seats of a run, whether or not an orchestrator works on it."""
        with Journal.read(run_dir) as journal:
            most = journal.config.privacy.max_participations
        store = store_of(run_dir)
        explain = functools.partial(_explain, store.name)
        return cls(store.open_seats(explain), most, clock)

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def read_cohort(self, cohort_id: str) -> SeatedCohort | None:
        """Return an open cohort; a worker keeps what it read."""
        rows = self.database.rows(seat_sql.SEATED_BY_ID, cohort_id)
        return SeatedCohort(*rows[0]) if rows else None

    def take_seat(self, visitor: str, arrival: bytes) -> TakenSeat | NoFreeSeat:
        """Give the next free seat, or the one this visitor has already.

        The same visitor and arrival have the same seat. A visitor who has taken part
        as often as is allowed, or has a seat of the same round, gets none, whatever
        the arrival.
        """
        return self.take_seats([(visitor, arrival)])[0]

    @repeats
    def take_seats(self, arrivals: Sequence[Arrival]) -> list[TakenSeat | NoFreeSeat]:
        """Do what `take_seat` does for several arrivals, all or none."""
        visitors = _encode_names(visitor for visitor, _ in arrivals)
        # Most people may come while no seat is free: they write nothing and wait for
        # nobody.
        if not (self._had_seats or self.database.rows(seat_sql.IS_ANY_FREE)):
            found = self._seats_of(self.database.rows, seat_sql.SEATS_OF, visitors)
            return self._seat(self.database.rows, arrivals, found, [])[0]
        with self.database.transaction() as connection:

            def rows(query: str, *values: object) -> list[Any]:
                return connection.execute(query, values).fetchall()

            rows(seat_sql.LOCK_VISITORS, visitors)
            found = self._seats_of(rows, seat_sql.SEATS_OF, visitors)
            wanted = sum(
                self._find_kept(found.get(visitor, ()), arrival) is None
                for visitor, arrival in arrivals
            )
            free = self._free_seats(rows, wanted) if wanted else []
            self._had_seats = len(free) == wanted
            replies, taken = self._seat(rows, arrivals, found, free)
            connection.executemany(seat_sql.TAKE_SEAT, taken)
        return replies

    def store_answer(
        self, visitor: str, arrival: bytes, cohort_id: str, body: bytes
    ) -> AnswerResult:
        """Keep a contribution that was checked; the first one of a seat stands.

        `body` is a serialized SealAnswer. It was checked against the terms of the
        cohort it names, so a seat of another cohort does not take it (NO_SEAT).
        """
        return self.store_answers([(visitor, arrival, cohort_id, body)])[0]

    @repeats
    def store_answers(self, answers: Sequence[Answer]) -> list[AnswerResult]:
        """Do what `store_answer` does for several answers, all or none."""
        results, bodies, now = [], dict[int, bytes](), self._clock()
        with self.database.transaction() as connection:

            def rows(query: str, *values: object) -> list[Any]:
                return connection.execute(query, values).fetchall()

            visitors = _encode_names(visitor for visitor, *_ in answers)
            found = self._seats_of(rows, seat_sql.SEATS_TO_ANSWER, visitors)
            for visitor, arrival, cohort_id, body in answers:
                seat = _with_arrival(found.get(visitor, []), arrival)
                if seat is None or seat.cohort.cohort_id != cohort_id:
                    results.append(AnswerResult.NO_SEAT)
                elif seat.state is SeatState.ANSWERED:
                    results.append(_compare_answer(rows, bodies, seat.number, body))
                elif not seat.takes_answers(now):
                    results.append(AnswerResult.TOO_LATE)
                else:
                    seat.state = SeatState.ANSWERED
                    bodies[seat.number] = body
                    results.append(AnswerResult.TAKEN)
            connection.executemany(
                seat_sql.ANSWER_SEAT, [(number,) for number in bodies]
            )
            connection.executemany(seat_sql.ADD_CONTRIBUTION, list(bodies.items()))
        return results

    def _seat(
        self,
        rows: _Rows,
        arrivals: Sequence[Arrival],
        found: dict[str, list[_Seat]],
        free: list[tuple[int, _Cohort]],
    ) -> tuple[list[TakenSeat | NoFreeSeat], list[tuple[str, bytes, int]]]:
        """Say who gets which of the free seats, and what to write down."""
        replies, taken = list[TakenSeat | NoFreeSeat](), []
        for visitor, arrival in arrivals:
            mine = found.setdefault(visitor, [])
            kept = self._find_kept(mine, arrival)
            if kept is None and free:
                number, cohort = free.pop()
                mine.append(_Seat(number, cohort, SeatState.TAKEN, arrival, True))
                taken.append((visitor, arrival, number))
                kept = TakenSeat(cohort.cohort_id, cohort.arm)
            replies.append(kept or self._find_unmeasured(rows))
        return replies, taken

    def _free_seats(self, rows: _Rows, most: int) -> list[tuple[int, _Cohort]]:
        """Return free seats, the first to be given last."""
        now = self._clock()
        free = [
            (number, self._cohort(rows, cohort))
            for number, cohort in rows(seat_sql.FREE_SEATS, most)
        ]
        return [seat for seat in reversed(free) if now <= seat[1].seats_until]

    def _find_kept(
        self, mine: Sequence[_Seat], arrival: bytes
    ) -> TakenSeat | NoFreeSeat | None:
        """Return what a visitor has already; None for whoever may have a seat."""
        seat = _with_arrival(mine, arrival)
        if seat is not None and seat.in_open_deck and seat.state in _HELD:
            return TakenSeat(seat.cohort.cohort_id, seat.cohort.arm)
        if (
            seat is not None
            or len(mine) >= self._most
            or any(one.in_open_deck for one in mine)
        ):
            return NoFreeSeat(mine[-1].cohort.arm, ALREADY_ANSWERED)
        return None

    def _seats_of(
        self, rows: _Rows, query: str, visitors: str
    ) -> dict[str, list[_Seat]]:
        found: dict[str, list[_Seat]] = {}
        for visitor, number, cohort, state, arrival, in_open_deck in rows(
            query, visitors
        ):
            found.setdefault(visitor, []).append(
                _Seat(
                    number,
                    self._cohort(rows, cohort),
                    SeatState(state),
                    arrival,
                    bool(in_open_deck),
                )
            )
        return found

    def _cohort(self, rows: _Rows, number: int) -> _Cohort:
        if number not in self._cohorts:
            known = max(self._cohorts, default=0)
            for facts in rows(seat_sql.SEATED_BY_NUMBER, min(known, number - 1)):
                self._cohorts[facts[0]] = _Cohort(*facts)
        return self._cohorts[number]

    def _find_unmeasured(self, rows: _Rows) -> NoFreeSeat:
        found = rows(seat_sql.UNMEASURED)
        return NoFreeSeat(*found[0]) if found else NoFreeSeat(0, NO_FREE_SEAT)


_HELD = (SeatState.TAKEN, SeatState.ANSWERED)


def _encode_names(visitors: Iterable[str]) -> str:
    """Write names as JSON."""
    names = list(visitors)
    for name in names:
        check_visitor(name)
    return json.dumps(names)


def check_visitor(name: str) -> None:
    """Refuse a name that no database keeps as it is; raises InputError."""
    if not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME:
        allowed = f"1 to {_LONGEST_NAME} printable characters"
        raise InputError("visitor", repr(name[:40]), allowed)


def _with_arrival(seats: Sequence[_Seat], arrival: bytes) -> _Seat | None:
    return next((seat for seat in seats if seat.arrival == arrival), None)


def _compare_answer(
    rows: _Rows, bodies: Mapping[int, bytes], number: int, body: bytes
) -> AnswerResult:
    """Say whether a seat's answer is the one that is there, as far as it is kept."""
    kept = bodies.get(number)
    if kept is None:
        found = rows(seat_sql.BODY, number)
        kept = found[0][0] if found else body
    return AnswerResult.TAKEN if kept == body else AnswerResult.ANOTHER


def _explain(name: str, error: Exception, no_room: bool) -> WallflowerError:
    if no_room:
        return UnavailableError(
            f"{name} cannot be written ({error}); nothing of this call was kept: make "
            "room"
        )
    return JournalError(f"{name}: {error}")


_Call = TypeVar("_Call")
_Reply = TypeVar("_Reply")


class SeatQueue:
    """Lets many tasks of one worker use its store: those that wait share a transaction.

    A call that is cancelled may or may not be done; to repeat it is harmless.
    """

    def __init__(self, store: SeatStore) -> None:
        submit = store.database.submit
        self._store = store
        self._arrivals = _Batches(store.take_seats, submit)
        self._answers = _Batches(store.store_answers, submit)

    async def read_cohort(self, cohort_id: str) -> SeatedCohort | None:
        """See `SeatStore.read_cohort`."""
        return await self._store.database.submit(self._store.read_cohort, cohort_id)

    async def take_seat(self, visitor: str, arrival: bytes) -> TakenSeat | NoFreeSeat:
        """See `SeatStore.take_seat`."""
        check_visitor(visitor)  # alone: it is not the others' fault
        return await self._arrivals.call((visitor, arrival))

    async def store_answer(
        self, visitor: str, arrival: bytes, cohort_id: str, body: bytes
    ) -> AnswerResult:
        """See `SeatStore.store_answer`."""
        check_visitor(visitor)
        return await self._answers.call((visitor, arrival, cohort_id, body))


class _Batches(Generic[_Call, _Reply]):
    """Gathers calls while a batch is under way; the next batch has all of them."""

    def __init__(
        self,
        work: Callable[[Sequence[_Call]], Sequence[_Reply]],
        submit: Callable[..., asyncio.Future[Sequence[_Reply]]],
    ) -> None:
        self._work = work
        self._submit = submit
        self._waiting: list[tuple[_Call, asyncio.Future[_Reply]]] = []
        self._is_working = False

    async def call(self, call: _Call) -> _Reply:
        """Do one call, maybe together with others."""
        reply: asyncio.Future[_Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, reply))
        if not self._is_working:
            self._begin()
        return await reply

    def _begin(self) -> None:
        waiting = [pair for pair in self._waiting if not pair[1].done()]
        batch, self._waiting = waiting[:_MOST_AT_ONCE], waiting[_MOST_AT_ONCE:]
        self._is_working = bool(batch)
        if batch:
            work = self._submit(self._work, [call for call, _ in batch])
            work.add_done_callback(functools.partial(self._end, batch))

    def _end(
        self,
        batch: Sequence[tuple[_Call, asyncio.Future[_Reply]]],
        work: asyncio.Future[Sequence[_Reply]],
    ) -> None:
        failure = None if work.cancelled() else work.exception()
        for place, (_, reply) in enumerate(batch):
            if reply.done():
                continue
            if work.cancelled():
                reply.cancel()
            elif failure is not None:
                reply.set_exception(failure)
            else:
                reply.set_result(work.result()[place])
        self._begin()
