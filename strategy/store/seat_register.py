"""The orchestrator's half of the seats: it opens decks, closes cohorts, reads answers.

What was opened and what was closed is in the chain (`opened`, `closed`), so that nobody
can change later in which order seats were given, who had them, or who answered.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from wallflower.protocol.errors import InputError, JournalError
from wallflower.strategy.store import chain, entries, seat_sql
from wallflower.strategy.store.database import Database, Transaction, repeats
from wallflower.strategy.store.seats import (
    SeatCounts,
    SeatedCohort,
    SeatedRecord,
    SeatRecord,
)

_AT_ONCE = 2_000  # contributions read or dropped in one transaction


class SeatRegister:
    """The seats of one run, as the orchestrator or a reader of the run sees them.

    Parameters
    ----------
    database : Database
        That of the run's journal, open for writing or for reading.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    # --- writing ---------------------------------------------------------------

    @repeats
    def open_seats(self, cohorts: Sequence[SeatedCohort], deck: Sequence[str]) -> None:
        """Open the seats of a round, in the order in which they will be given.

        `deck` names the cohort of each seat: random permuted blocks, so that at any
        moment all cohorts have had the same number of people, up to one. The cohorts
        are in the journal already. Opening what was opened before changes nothing.
        """
        _check_deck(cohorts, deck)
        with self.database.transaction() as connection:
            if _are_open(connection, cohorts):
                return
            [(number, first, seat)] = connection.execute(
                seat_sql.NEXT_NUMBERS
            ).fetchall()
            numbers = {
                cohort.cohort_id: first + place for place, cohort in enumerate(cohorts)
            }
            connection.executemany(
                seat_sql.ADD_SEATED,
                [
                    (
                        numbers[cohort.cohort_id],
                        cohort.cohort_id,
                        number,
                        seat,
                        cohort.arm,
                        cohort.seats,
                        cohort.terms,
                        cohort.seats_until,
                        cohort.answers_until,
                    )
                    for cohort in cohorts
                ],
            )
            order = json.dumps([numbers[name] for name in deck])
            connection.execute(seat_sql.ADD_SEATS, (seat, order))
            connection.execute(seat_sql.AFTER_OPENING)
            chain.append(connection, entries.OPENED, [str(number)])

    def close_seats(self, cohort_ids: Sequence[str]) -> Mapping[str, SeatCounts]:
        """Close cohorts; afterwards no seat is taken and no answer is stored.

        A cohort that was closed before, or whose closing a crash cut short, may be
        closed again. One cohort of a deck may be closed alone.
        """
        closing = self._begin_closing(cohort_ids)
        # Nothing changes these seats any more, so nobody waits while they are read.
        digests = {
            cohort_id: chain.digest_seats(self.database.rows, entries.CLOSED, cohort_id)
            for cohort_id in closing
        }
        if closing:
            self._end_closing(closing, digests)
        return {cohort_id: self._count(cohort_id) for cohort_id in cohort_ids}

    @repeats
    def _begin_closing(self, cohort_ids: Sequence[str]) -> dict[str, int]:
        """End all seats; return the numbers of the cohorts that are not yet closed."""
        closing: dict[str, int] = {}
        with self.database.transaction() as connection:
            connection.execute(seat_sql.LOCK_SEATS)
            for cohort_id in cohort_ids:
                rows = connection.execute(
                    seat_sql.STATE_OF_SEATED, (cohort_id,)
                ).fetchall()
                if not rows:
                    raise _no_seats(cohort_id)
                [(number, state, _)] = rows
                if state != "closed":
                    closing[cohort_id] = number
                if state == "open":
                    connection.execute(seat_sql.BEGIN_CLOSING, (number,))
                    connection.execute(seat_sql.END_UNANSWERED, (number,))
        return closing

    @repeats
    def _end_closing(
        self, closing: Mapping[str, int], digests: Mapping[str, str]
    ) -> None:
        with self.database.transaction() as connection:
            connection.executemany(
                seat_sql.END_CLOSING, [(number,) for number in closing.values()]
            )
            chain.append(connection, entries.CLOSED, list(closing), digests)

    def forget_contributions(self, cohort_ids: Sequence[str]) -> None:
        """Drop the answers of cohorts whose outcome is written down."""
        for cohort_id in cohort_ids:
            for part in self._read_answered(cohort_id):
                numbers = json.dumps([number for _, number in part])
                self.database.write((seat_sql.FORGET_BODIES, [(numbers,)]))

    def show_unmeasured(self, arm: int, reason: str) -> None:
        """Say what to show to whoever gets no seat from now on, and why."""
        self.database.write((seat_sql.SHOW_UNMEASURED, [(arm, reason)]))

    # --- reading ---------------------------------------------------------------

    def count_seats(self) -> Mapping[str, SeatCounts]:
        """Count the seats of the cohorts that are open."""
        found = _counts(self.database.rows(seat_sql.COUNT_OPEN))
        return {
            cohort_id: found.get(cohort_id, SeatCounts())
            for (cohort_id,) in self.database.rows(seat_sql.OPEN_SEATED)
        }

    def read_contributions(self, cohort_id: str) -> Iterator[tuple[str, bytes]]:
        """Return the answers of a closed cohort by visitor, sorted by visitor."""
        for part in self._read_answered(cohort_id):
            numbers = json.dumps([number for _, number in part])
            bodies = dict(self.database.rows(seat_sql.BODIES, numbers))
            for visitor, number in part:
                if number not in bodies:
                    raise JournalError(
                        f"the answer to seat {number} of cohort {cohort_id} is gone: "
                        "it was dropped when the cohort's outcome was written down"
                    )
                yield visitor, bodies[number]

    def seated(self) -> list[SeatedRecord]:
        """Return every cohort that ever had seats, in order."""
        found = _counts(self.database.rows(seat_sql.COUNT_ALL))
        return [
            SeatedRecord(*(*terms, found.get(terms[0], SeatCounts())))
            for terms in self.database.rows(seat_sql.SEATED)
        ]

    def read_seats(self, cohort_ids: Sequence[str]) -> Iterator[SeatRecord]:
        """Return all seats of closed cohorts in the order of their deck."""
        decks = sorted({self._find_closed(cohort_id)[1] for cohort_id in cohort_ids})
        wanted = set(cohort_ids)
        for deck in decks:
            names = dict(self.database.rows(seat_sql.DECK_COHORTS, deck))
            [(after, last)] = self.database.rows(seat_sql.SEATS_OF_DECK[0], str(deck))
            while part := self.database.rows(
                seat_sql.SEAT_RECORDS, after, int(last), _AT_ONCE
            ):
                after = part[-1][0]
                for _, cohort, visitor, answered in part:
                    if names.get(cohort) in wanted:
                        yield SeatRecord(names[cohort], visitor, bool(answered))

    def _count(self, cohort_id: str) -> SeatCounts:
        number, _ = self._find_closed(cohort_id)
        return SeatCounts.count(dict(self.database.rows(seat_sql.COUNT_COHORT, number)))

    def _read_answered(self, cohort_id: str) -> Iterator[list[tuple[str, int]]]:
        number, _ = self._find_closed(cohort_id)
        seats = self.database.rows(seat_sql.ANSWERED_SEATS, number)
        for first in range(0, len(seats), _AT_ONCE):
            yield seats[first : first + _AT_ONCE]

    def _find_closed(self, cohort_id: str) -> tuple[int, int]:
        """Return the numbers of a closed cohort and of its deck."""
        rows = self.database.rows(seat_sql.STATE_OF_SEATED, cohort_id)
        if not rows:
            raise _no_seats(cohort_id)
        [(number, state, deck)] = rows
        if state == "open":
            raise JournalError(f"cohort {cohort_id} is open: close its seats first")
        return number, deck


def _no_seats(cohort_id: str) -> JournalError:
    return JournalError(f"cohort {cohort_id} never had seats in this run")


def _check_deck(cohorts: Sequence[SeatedCohort], deck: Sequence[str]) -> None:
    wanted = {cohort.cohort_id: cohort.seats for cohort in cohorts}
    if Counter(deck) != wanted:
        raise InputError(
            "deck",
            f"one of {len(deck):,} seats",
            "each cohort as often as it has seats, which are "
            f"{sum(wanted.values()):,} in all",
        )


def _are_open(connection: Transaction, cohorts: Sequence[SeatedCohort]) -> bool:
    """Return whether cohorts had their seats before; raise where only some had."""
    known = [
        bool(
            connection.execute(seat_sql.STATE_OF_SEATED, (cohort.cohort_id,)).fetchall()
        )
        for cohort in cohorts
    ]
    if any(known) and not all(known):
        raise JournalError(
            f"{sum(known)} of {len(known)} cohorts have seats already: a deck is "
            "opened as one"
        )
    return any(known)


def _counts(rows: Sequence[tuple[str, str, int]]) -> Mapping[str, SeatCounts]:
    states: dict[str, dict[str, int]] = {}
    for cohort_id, state, seats in rows:
        states.setdefault(cohort_id, {})[state] = seats
    return {name: SeatCounts.count(found) for name, found in states.items()}
