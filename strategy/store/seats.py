"""Seats for people who arrive: what the orchestrator and all workers must agree on.

A round opens one cohort per active arm, each with as many seats as it asks people. The
seats of a round are one *deck*, in the order in which they are given. Workers are many
processes, maybe on many hosts (`seat_store`). Each of their calls is in one
transaction, so that a kill at any moment loses nothing and seats nobody twice. The
orchestrator opens and closes (`seat_register`); it never waits for a worker.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

RUN_OVER = "run-over"  # why somebody is shown an arm and not asked


class SeatState(enum.Enum):
    """What became of a seat; the last two are those of a closed cohort."""

    FREE = "free"
    TAKEN = "taken"  # somebody was assigned to it, and their answer is not here yet
    ANSWERED = "answered"
    UNUSED = "unused"  # nobody came
    LOST = "lost"  # taken, and no answer came in time


@dataclass(frozen=True, slots=True)
class SeatedCohort:
    """A cohort with seats, as workers need it.

    Attributes
    ----------
    cohort_id : the cohort; in the journal before its seats are open.
    arm : what is shown on its seats.
    seats : how many there are: the cohort's size.
    terms : a serialized NodeRequest without a visitor's name, made once for all seats
        (`strategy.secure_sum.contributions.seat_terms`).
    seats_until : seconds since the epoch after which no seat is given.
    answers_until : seconds since the epoch after which no answer is taken.
    """

    cohort_id: str
    arm: int
    seats: int
    terms: bytes
    seats_until: float
    answers_until: float


@dataclass(frozen=True, slots=True)
class TakenSeat:
    """A seat that somebody has, also when they ask for it again."""

    cohort_id: str
    arm: int


@dataclass(frozen=True, slots=True)
class NoFreeSeat:
    """Nobody is measured now: the arm to show all the same, and why."""

    arm: int
    reason: str  # "no-free-seat", "paused", "run-over", "already-answered"


class AnswerResult(enum.Enum):
    """What became of an answer."""

    TAKEN = "taken"  # it is in the store, also when the very same one came before
    ANOTHER = "another"  # a different answer of this seat is in the store, and stands
    TOO_LATE = "too-late"  # the cohort is closed
    NO_SEAT = "no-seat"  # no seat of this cohort is this visitor's by this arrival


@dataclass(frozen=True, slots=True)
class SeatRecord:
    """One seat of a round: whose cohort, who took it, and whether they answered."""

    cohort_id: str
    visitor: str | None  # None: it stayed free
    answered: bool


@dataclass(frozen=True, slots=True)
class SeatCounts:
    """How many seats of a cohort are free (or unused), taken (or lost), answered."""

    free: int = 0
    taken: int = 0
    answered: int = 0

    @classmethod
    def count(cls, states: Mapping[str, int]) -> SeatCounts:
        """Put the states of an open and of a closed cohort together."""
        found = {SeatState(state): seats for state, seats in states.items()}
        return cls(
            found.get(SeatState.FREE, 0) + found.get(SeatState.UNUSED, 0),
            found.get(SeatState.TAKEN, 0) + found.get(SeatState.LOST, 0),
            found.get(SeatState.ANSWERED, 0),
        )


@dataclass(frozen=True, slots=True)
class SeatedRecord:
    """What the record says of a cohort with seats.

    `deck` numbers the seats that were opened at once. `is_closed` says that no answer
    can come any more and that the chain commits to who was seated and who answered.
    """

    cohort_id: str
    deck: int
    arm: int
    seats: int
    seats_until: float
    answers_until: float
    is_closed: bool
    counts: SeatCounts
