"""What orchestrator and workers may rely on when people arrive, whatever the store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from tests.support.stored_seats import (
    ANSWERS_UNTIL,
    FIRST,
    SEATS_UNTIL,
    SECOND,
    Server,
    names,
)
from wallflower.protocol.errors import InputError, JournalError
from wallflower.strategy.store.entries import CohortRecord
from wallflower.strategy.store.seat_store import Arrival, SeatQueue
from wallflower.strategy.store.seats import (
    AnswerResult,
    NoFreeSeat,
    SeatCounts,
    SeatedCohort,
    SeatRecord,
    TakenSeat,
)


def cohort_of(reply: TakenSeat | NoFreeSeat) -> str:
    assert isinstance(reply, TakenSeat)
    return reply.cohort_id


# --- arriving -------------------------------------------------------------------


def test_seats_are_given_in_the_order_of_the_deck(server: Server) -> None:
    cohorts = server.open_round(seats=2)
    worker, other = server.worker(), server.worker()
    taken = [
        cohort_of(one.take_seat(name, FIRST))
        for one, name in zip((worker, other) * 2, names(4), strict=True)
    ]
    assert taken == cohorts * 2


def test_the_same_arrival_has_the_same_seat_at_any_worker(server: Server) -> None:
    server.open_round(seats=5)
    seat = server.worker().take_seat("v", FIRST)
    assert server.worker().take_seat("v", FIRST) == seat
    assert sum(one.taken for one in server.register.count_seats().values()) == 1


def test_who_has_a_seat_gets_no_second_one_by_arriving_anew(server: Server) -> None:
    server.open_round(seats=5)
    worker = server.worker()
    seat = worker.take_seat("v", FIRST)
    assert isinstance(seat, TakenSeat)
    assert worker.take_seat("v", SECOND) == NoFreeSeat(seat.arm, "already-answered")


def test_nobody_has_more_seats_than_participations(
    new_server: Callable[..., Server],
) -> None:
    server = new_server(most=2)
    worker, replies = server.worker(), list[TakenSeat | NoFreeSeat]()
    for number in range(3):
        cohorts = server.open_round(seats=1)
        replies.append(worker.take_seat("v", bytes([number]) * 16))
        server.register.close_seats(cohorts)
    assert [type(reply) for reply in replies] == [TakenSeat, TakenSeat, NoFreeSeat]


def test_nobody_is_twice_in_one_round(new_server: Callable[..., Server]) -> None:
    server = new_server(most=5)
    [first, _] = server.open_round(seats=3)
    worker = server.worker()
    assert cohort_of(worker.take_seat("v", FIRST)) == first
    worker.store_answer("v", FIRST, "r1-a0", b"body")
    server.register.close_seats([first])  # the other arm's cohort is open still
    assert worker.take_seat("v", SECOND) == NoFreeSeat(0, "already-answered")


def test_whoever_finds_no_free_seat_is_shown_what_the_orchestrator_said(
    server: Server,
) -> None:
    worker = server.worker()
    assert worker.take_seat("v", FIRST) == NoFreeSeat(0, "no-free-seat")
    server.register.show_unmeasured(1, "paused")
    server.register.show_unmeasured(1, "run-over")
    assert worker.take_seat("v", FIRST) == NoFreeSeat(1, "run-over")


def test_who_found_no_free_seat_is_not_written_down(server: Server) -> None:
    server.open_round(seats=1, arms=1)
    worker = server.worker()
    worker.take_seat("v", FIRST)
    assert worker.take_seat("w", FIRST) == NoFreeSeat(0, "no-free-seat")
    [(found,)] = worker.database.rows("SELECT count(*) FROM seat WHERE visitor = 'w'")
    assert found == 0


def test_no_seat_is_given_when_its_answer_would_be_too_late(server: Server) -> None:
    server.open_round(seats=3)
    worker = server.worker()
    server.clock.now = SEATS_UNTIL + 1
    assert worker.take_seat("v", FIRST) == NoFreeSeat(0, "no-free-seat")


def test_arrivals_of_one_batch_are_as_good_as_one_after_another(
    server: Server,
) -> None:
    [cohort] = server.open_round(seats=2, arms=1)
    seat = TakenSeat(cohort, 0)
    batch = [("v", FIRST), ("v", FIRST), ("v", SECOND), ("w", FIRST), ("x", FIRST)]
    assert server.worker().take_seats(batch) == [
        seat,
        seat,
        NoFreeSeat(0, "already-answered"),
        seat,
        NoFreeSeat(0, "no-free-seat"),
    ]


def test_an_arrival_that_comes_first_in_a_batch_has_the_first_seat(
    server: Server,
) -> None:
    cohorts = server.open_round(seats=2)
    taken = server.worker().take_seats([(name, FIRST) for name in names(4)])
    assert [cohort_of(seat) for seat in taken] == cohorts * 2


# --- answering ------------------------------------------------------------------


def test_answers_are_read_by_visitor_when_the_cohort_is_closed(server: Server) -> None:
    [cohort] = server.open_round(seats=3, arms=1)
    worker = server.worker()
    for name in ("z", "a", "m"):
        worker.take_seat(name, FIRST)
        result = worker.store_answer(name, FIRST, "r1-a0", name.encode())
        assert result is AnswerResult.TAKEN
    server.register.close_seats([cohort])
    assert list(server.register.read_contributions(cohort)) == [
        ("a", b"a"),
        ("m", b"m"),
        ("z", b"z"),
    ]


def test_of_two_answers_to_one_seat_the_first_stands(server: Server) -> None:
    [cohort] = server.open_round(seats=1, arms=1)
    worker = server.worker()
    worker.take_seat("v", FIRST)
    first, second = (
        ("v", FIRST, cohort, body) for body in (b"first answer", b"second answer")
    )
    result = [AnswerResult.TAKEN, AnswerResult.TAKEN, AnswerResult.ANOTHER]
    assert worker.store_answers([first, first, second]) == result
    assert worker.store_answers([first, first, second]) == result
    server.register.close_seats([cohort])
    assert list(server.register.read_contributions(cohort)) == [("v", b"first answer")]


def test_an_answer_to_another_cohort_than_its_seats_is_not_taken(
    server: Server,
) -> None:
    _, other = server.open_round(seats=1)
    worker = server.worker()
    worker.take_seat("v", FIRST)
    assert worker.store_answer("v", FIRST, other, b"body") is AnswerResult.NO_SEAT


def test_an_answer_with_another_arrival_is_not_taken(server: Server) -> None:
    server.open_round(seats=1)
    worker = server.worker()
    worker.take_seat("v", FIRST)
    assert worker.store_answer("v", SECOND, "r1-a0", b"body") is AnswerResult.NO_SEAT
    assert worker.store_answer("w", FIRST, "r1-a0", b"body") is AnswerResult.NO_SEAT


def test_an_answer_to_a_closed_cohort_comes_too_late(server: Server) -> None:
    cohorts = server.open_round(seats=1)
    worker = server.worker()
    worker.take_seat("v", FIRST)
    counts = server.register.close_seats(cohorts)
    assert worker.store_answer("v", FIRST, "r1-a0", b"body") is AnswerResult.TOO_LATE
    assert server.register.close_seats(cohorts) == counts
    assert list(server.register.read_contributions(cohorts[0])) == []


def test_an_answer_after_the_deadline_comes_too_late(server: Server) -> None:
    server.open_round(seats=1)
    worker = server.worker()
    worker.take_seat("v", FIRST)
    server.clock.now = ANSWERS_UNTIL + 1
    assert worker.store_answer("v", FIRST, "r1-a0", b"body") is AnswerResult.TOO_LATE


def test_an_answer_that_came_in_time_may_be_repeated_for_ever(server: Server) -> None:
    cohorts = server.open_round(seats=1)
    worker = server.worker()
    worker.take_seat("v", FIRST)
    worker.store_answer("v", FIRST, "r1-a0", b"body")
    server.clock.now = ANSWERS_UNTIL + 1
    server.register.close_seats(cohorts)
    assert worker.store_answer("v", FIRST, "r1-a0", b"body") is AnswerResult.TAKEN


# --- opening and closing ----------------------------------------------------------


def test_seats_are_read_back_in_the_order_of_their_deck(server: Server) -> None:
    cohorts = server.open_round(seats=2)
    worker = server.worker()
    for name in ("v", "w", "x"):
        worker.take_seat(name, FIRST)
    worker.store_answer("w", FIRST, cohorts[1], b"body")
    server.register.close_seats(cohorts)
    expected = [
        SeatRecord(cohorts[0], "v", answered=False),
        SeatRecord(cohorts[1], "w", answered=True),
        SeatRecord(cohorts[0], "x", answered=False),
        SeatRecord(cohorts[1], None, answered=False),
    ]
    assert list(server.register.read_seats(cohorts)) == expected
    assert list(server.register.read_seats(cohorts[1:])) == expected[1::2]


def test_a_deck_that_is_open_is_not_opened_again(server: Server) -> None:
    cohorts = server.open_round(seats=2)
    server.open_seats(cohorts, 2)
    assert len(server.register.seated()) == 2
    server.journal.invite([CohortRecord("c", 2, 2, 0, 1, 2, b"spec")])
    with pytest.raises(JournalError, match="1 of 2 cohorts have seats already"):
        server.open_seats([cohorts[0], "c"], 2)


def test_a_deck_gives_each_cohort_its_seats(server: Server) -> None:
    server.journal.invite([CohortRecord("c", 1, 1, 0, 1, 2, b"spec")])
    cohort = SeatedCohort("c", 0, 2, b"terms", SEATS_UNTIL, ANSWERS_UNTIL)
    for deck in (["c"], ["c", "c", "d"], ["c"] * 3):
        with pytest.raises(InputError, match="deck is one of"):
            server.register.open_seats([cohort], deck)
    server.register.open_seats([cohort], ["c", "c"])


def test_counts_are_those_of_open_cohorts_until_they_close(server: Server) -> None:
    first, second = server.open_round(seats=3)
    worker = server.worker()
    for name in names(3):
        worker.take_seat(name, FIRST)
    worker.store_answer(names(1)[0], FIRST, "r1-a0", b"body")
    assert server.register.count_seats() == {
        first: SeatCounts(free=1, taken=1, answered=1),
        second: SeatCounts(free=2, taken=1, answered=0),
    }
    assert server.register.close_seats([first]) == {first: SeatCounts(1, 1, 1)}
    assert list(server.register.count_seats()) == [second]
    seated = server.register.seated()
    assert [(one.is_closed, one.counts.taken) for one in seated] == [
        (True, 1),
        (False, 1),
    ]


def test_the_seats_of_a_closed_cohort_are_passed_over(server: Server) -> None:
    first, second = server.open_round(seats=2)
    server.register.close_seats([first])
    worker = server.worker()
    taken = [cohort_of(worker.take_seat(name, FIRST)) for name in names(2)]
    assert taken == [second, second]


def test_a_worker_reads_the_terms_of_open_cohorts_alone(server: Server) -> None:
    first, second = server.open_round(seats=2)
    server.register.close_seats([first])
    worker = server.worker()
    assert worker.read_cohort(first) is None
    cohort = worker.read_cohort(second)
    assert cohort == SeatedCohort(second, 1, 2, b"terms", SEATS_UNTIL, ANSWERS_UNTIL)


def test_answers_are_dropped_when_their_sum_is_written_down(server: Server) -> None:
    [cohort] = server.open_round(seats=1, arms=1)
    worker = server.worker()
    worker.take_seat("v", FIRST)
    worker.store_answer("v", FIRST, "r1-a0", b"body")
    with pytest.raises(JournalError, match="is open"):
        server.register.forget_contributions([cohort])
    server.register.close_seats([cohort])
    server.register.forget_contributions([cohort])
    with pytest.raises(JournalError, match="is gone"):
        list(server.register.read_contributions(cohort))


def test_people_with_a_seat_count_as_asked(server: Server) -> None:
    first, second = server.open_round(seats=2)
    worker = server.worker()
    for name in names(3):
        worker.take_seat(name, FIRST)
    assert server.journal.count_asked() == {first: 2, second: 1}
    assert server.journal.count_participations() == {1: 3}


# --- many calls in one process --------------------------------------------------------


async def test_calls_that_wait_share_a_transaction(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohorts = server.open_round(seats=50)
    worker = server.worker()
    batches, take_seats = list[int](), worker.take_seats

    def counting(arrivals: Sequence[Arrival]) -> list[TakenSeat | NoFreeSeat]:
        batches.append(len(arrivals))
        return take_seats(arrivals)

    monkeypatch.setattr(worker, "take_seats", counting)
    queue = SeatQueue(worker)
    async with asyncio.TaskGroup() as group:
        taken = [group.create_task(queue.take_seat(v, FIRST)) for v in names(100)]
    async with asyncio.TaskGroup() as group:
        for name, cohort in zip(names(100), cohorts * 50, strict=True):
            group.create_task(queue.store_answer(name, FIRST, cohort, b"body"))
    assert Counter(cohort_of(task.result()) for task in taken) == dict.fromkeys(
        cohorts, 50
    )
    assert batches == [1, 99]
    counts = server.register.close_seats(cohorts)
    assert set(counts.values()) == {SeatCounts(answered=50)}


async def test_who_goes_away_while_waiting_holds_nobody_up(server: Server) -> None:
    server.open_round(seats=3)
    queue = SeatQueue(server.worker())
    first, second, third = (
        asyncio.create_task(queue.take_seat(name, FIRST)) for name in names(3)
    )
    await asyncio.sleep(0)
    second.cancel()
    assert isinstance(await first, TakenSeat)
    assert isinstance(await third, TakenSeat)
