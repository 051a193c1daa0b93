"""What the chain shows of seats, and what processes that race or die can do to them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from tests.support.stored_seats import FIRST, NOW, Server, names
from wallflower.strategy.store.seat_store import SeatStore
from wallflower.strategy.store.seats import AnswerResult, SeatCounts, TakenSeat

SPAWN = multiprocessing.get_context("spawn")


# --- the chain --------------------------------------------------------------------

TAMPERING = {
    "another order": "UPDATE seat SET cohort = 3 - cohort WHERE number IN (1, 2)",
    "another visitor": "UPDATE seat SET visitor = 'x' WHERE number = 1",
    "a lost answer": "UPDATE seat SET state = 'lost' WHERE number = 1",
    "an invented answer": "UPDATE seat SET state = 'answered' WHERE number = 2",
    "one seat less": "DELETE FROM seat WHERE number = 4",
    "one seat more": "INSERT INTO seat VALUES (5, 2, 'unused', NULL, NULL)",
    "other terms": "UPDATE seated SET terms = CAST('other' AS BLOB) WHERE number = 1",
    "open again": "UPDATE seated SET state = 'open' WHERE number = 1",
    "a cohort less": "UPDATE seated SET deck = 2 WHERE number = 2",
}


@pytest.mark.parametrize("change", TAMPERING)
def test_the_chain_shows_a_change_of(change: str, server: Server) -> None:
    cohorts = server.open_round(seats=2)
    worker = server.worker()
    for name in names(3):
        worker.take_seat(name, FIRST)
    worker.store_answer(names(1)[0], FIRST, "r1-a0", b"body")
    server.register.close_seats(cohorts)
    server.register.forget_contributions(cohorts)
    assert list(server.journal.breaks()) == []
    with server.journal.database.transaction() as connection:
        connection.execute(TAMPERING[change])
    assert list(server.journal.breaks()) != []


def test_the_chain_shows_seats_that_it_never_had(server: Server) -> None:
    server.open_round(seats=1)
    with server.journal.database.transaction() as connection:
        connection.execute("DELETE FROM entry WHERE kind = 'opened'")
    assert "seats of deck 1 are not in the chain" in list(server.journal.breaks())


def test_a_closing_that_a_crash_cut_short_is_gone_on_with(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohorts = server.open_round(seats=1)
    worker = server.worker()
    worker.take_seat("v", FIRST)

    def killed(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("wallflower.strategy.store.chain.digest_seats", killed)
        with pytest.raises(KeyboardInterrupt):
            server.register.close_seats(cohorts)
    assert worker.store_answer("v", FIRST, "r1-a0", b"body") is AnswerResult.TOO_LATE
    assert list(server.journal.breaks()) == []
    server.register.close_seats(cohorts)
    assert [entry.kind for entry in server.journal.entries()][-2:] == ["closed"] * 2
    assert list(server.journal.breaks()) == []


# --- several processes --------------------------------------------------------------


def take_all(
    run_dir: Path, visitors: Sequence[str], together: Barrier, dies: bool
) -> list[str]:
    """Arrive and answer for each visitor; the one who dies does it after arriving."""
    found = list[str]()
    with SeatStore.open(run_dir, lambda: NOW) as store:
        together.wait()
        for visitor in visitors:
            reply = store.take_seat(visitor, FIRST)
            if isinstance(reply, TakenSeat):
                found.append(reply.cohort_id)
                if dies:
                    os.kill(os.getpid(), signal.SIGKILL)
                store.store_answer(visitor, FIRST, reply.cohort_id, b"body")
    return found


def race(run_dir: Path, visitors: Sequence[Sequence[str]], dies: bool = False) -> None:
    together = SPAWN.Barrier(len(visitors))
    workers = [
        SPAWN.Process(target=take_all, args=(run_dir, group, together, dies))
        for group in visitors
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert {worker.exitcode for worker in workers} == {-signal.SIGKILL if dies else 0}


def test_processes_that_race_for_the_last_seats_give_each_once(server: Server) -> None:
    cohorts = server.open_round(seats=20)
    race(server.run_dir, [names(60), names(60, first=60)])
    counts = server.register.close_seats(cohorts)
    assert set(counts.values()) == {SeatCounts(answered=20)}
    visitors = [
        visitor
        for cohort in cohorts
        for visitor, _ in server.register.read_contributions(cohort)
    ]
    assert len(set(visitors)) == 40


def test_one_invitation_at_two_processes_at_once_has_one_seat(server: Server) -> None:
    cohorts = server.open_round(seats=100)
    race(server.run_dir, [names(40), names(40)])
    counts = server.register.close_seats(cohorts)
    assert sum(one.answered for one in counts.values()) == 40
    assert server.journal.count_participations() == {1: 40}


def test_a_kill_between_taking_and_answering_loses_nothing(server: Server) -> None:
    [cohort] = server.open_round(seats=2, arms=1)
    race(server.run_dir, [["v"]], dies=True)
    worker = server.worker()
    assert worker.take_seat("v", FIRST) == TakenSeat(cohort, 0)
    assert worker.store_answer("v", FIRST, "r1-a0", b"body") is AnswerResult.TAKEN
    assert server.register.close_seats([cohort])[cohort] == SeatCounts(1, 0, 1)
