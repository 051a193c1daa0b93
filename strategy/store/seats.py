"""Seats for people who arrive: what the orchestrator and all workers must agree on.

A round opens one cohort per active arm, each with as many seats as it asks people.
Workers are many processes, maybe on many hosts. Each of their calls is one transaction,
so that a kill at any moment loses nothing and seats nobody twice. The orchestrator
opens and closes; it never waits for a worker.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class SeatState(enum.Enum):
    """What became of a seat."""

    FREE = "free"
    TAKEN = "taken"  # somebody was assigned to it, and their answer is not here yet
    ANSWERED = "answered"


@dataclass(frozen=True, slots=True)
class SeatedCohort:
    """A cohort with seats, as workers need it.

    Attributes
    ----------
    cohort_id : the cohort; in the journal before its seats are open.
    arm : what is shown on its seats.
    seats : how many there are: the cohort's size.
    terms : a serialized NodeRequest without a party's name, made once for all seats.
    answers_until : seconds since the epoch after which no answer is taken.
    """

    cohort_id: str
    arm: int
    seats: int
    terms: bytes
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

    TAKEN = "taken"  # it is in the store, also when it came before
    TOO_LATE = "too-late"  # the cohort is closed
    NO_SEAT = "no-seat"  # this visitor never had a seat with this arrival


@dataclass(frozen=True, slots=True)
class SeatCounts:
    """How many seats of a cohort are in each state."""

    free: int
    taken: int
    answered: int


class SeatStore(Protocol):
    """The seats of one run.

    The orchestrator calls the first half, workers call the second.
    """

    def open_seats(self, cohorts: Sequence[SeatedCohort], deck: Sequence[str]) -> None:
        """Open the seats of a round, in the order in which they will be given.

        `deck` names the cohort of each seat: random permuted blocks, so that at any
        moment all cohorts have had the same number of people, up to one.
        """
        ...

    def close_seats(self, cohort_ids: Sequence[str]) -> Mapping[str, SeatCounts]:
        """Close cohorts; afterwards no seat is taken and no answer is stored."""
        ...

    def count_seats(self) -> Mapping[str, SeatCounts]:
        """Count the seats of the cohorts that are open."""
        ...

    def read_contributions(self, cohort_id: str) -> Iterator[tuple[str, bytes]]:
        """Return the answers of a closed cohort by visitor, sorted by visitor."""
        ...

    def forget_contributions(self, cohort_ids: Sequence[str]) -> None:
        """Drop the answers of cohorts whose outcome is written down."""
        ...

    def show_unmeasured(self, arm: int, reason: str) -> None:
        """Say what to show to whoever gets no seat from now on, and why."""
        ...

    def read_cohort(self, cohort_id: str) -> SeatedCohort | None:
        """Return an open cohort; a worker keeps what it read."""
        ...

    def take_seat(self, visitor: str, arrival: bytes) -> TakenSeat | NoFreeSeat:
        """Give the next free seat, or the one this visitor has already.

        The same visitor and arrival have the same seat. A visitor who has taken part
        as often as is allowed gets none, whatever the arrival: it is looked up and
        written in one transaction, so that one invitation is used once.
        """
        ...

    def store_answer(self, visitor: str, arrival: bytes, body: bytes) -> AnswerResult:
        """Keep a contribution that was checked; the same one again changes nothing."""
        ...
