"""PostgreSQL is killed and started again: nothing is lost, nothing is done twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.strategy.store.test_journal import cohort, config, finished, summed
from tests.support.postgres_server import PostgresServer
from tests.support.stored_seats import FIRST, Server, names
from wallflower.protocol.errors import JournalError, UnavailableError
from wallflower.strategy.sections import StoreSettings
from wallflower.strategy.store import seat_sql, sql
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.postgres import connecting, lease
from wallflower.strategy.store.run_store import is_held
from wallflower.strategy.store.seats import AnswerResult, SeatCounts, TakenSeat

RESTARTS = 2


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def journal(run_dir: Path, store_url: str) -> Iterator[Journal]:
    settings = config(store=StoreSettings(store_url))
    with Journal.create(run_dir, os.urandom(8).hex(), settings, "local") as journal:
        yield journal


def test_people_are_seated_and_heard_once_while_postgresql_is_killed(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    server = Server(tmp_path / "run", postgres.url)
    try:
        people = 40
        cohorts = server.open_round(seats=people // 2)
        worker, kill_now = server.worker(), threading.Barrier(2)
        results = list[AnswerResult]()

        def serve() -> None:
            for place, name in enumerate(names(people)):
                if place % (people // RESTARTS) == 5:
                    kill_now.wait()
                seat = worker.take_seat(name, FIRST)
                assert isinstance(seat, TakenSeat)
                results.append(
                    worker.store_answer(name, FIRST, seat.cohort_id, b"body")
                )

        thread = threading.Thread(target=serve)
        thread.start()
        for _ in range(RESTARTS):
            kill_now.wait()
            postgres.restart(signal.SIGKILL)
        thread.join()
        assert results == [AnswerResult.TAKEN] * people
        counts = server.register.close_seats(cohorts)
        assert set(counts.values()) == {SeatCounts(answered=people // 2)}
        assert server.journal.count_participations() == {1: people}
        assert list(server.journal.breaks()) == []
    finally:
        server.close()


def test_a_journal_goes_on_over_a_restart(
    journal: Journal, postgres: PostgresServer
) -> None:
    journal.invite([cohort("c1")])
    postgres.restart(signal.SIGKILL)
    journal.finish_round(finished(1), [summed("c1")])
    postgres.restart(signal.SIGQUIT)
    journal.invite([cohort("c2", number=2)])
    assert [one.state for one in journal.cohorts()] == ["summed", "invited"]
    assert list(journal.breaks()) == []


# --- the answer to a commit is lost ---------------------------------------------------

Execute = Callable[..., Any]


def lose_one_answer(monkeypatch: pytest.MonkeyPatch, *, committed: bool) -> list[int]:
    """Let the connection break at the next commit, before or after it is done."""
    execute: Execute = psycopg.Connection.execute
    lost = list[int]()

    def breaking(connection: psycopg.Connection[Any], query: Any, *rest: Any) -> Any:
        if query != "COMMIT" or lost:
            return execute(connection, query, *rest)
        lost.append(1)
        if committed:
            with connection.pipeline():  # which waits at its end
                execute(connection, query, *rest)
        connection.close()
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(psycopg.Connection, "execute", breaking)
    return lost


@pytest.mark.parametrize("committed", [True, False])
def test_a_step_whose_commit_was_not_heard_is_done_once(
    committed: bool, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = lose_one_answer(monkeypatch, committed=committed)
    journal.invite([cohort("c1")])
    assert lost
    assert journal.cohort_ids() == {"c1"}
    assert [entry.kind for entry in journal.entries()] == ["founded", "invited"]
    journal.finish_round(finished(1), [summed("c1")])
    assert list(journal.breaks()) == []


@pytest.mark.parametrize("committed", [True, False])
def test_a_seat_whose_commit_was_not_heard_is_taken_once(
    committed: bool,
    tmp_path: Path,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(tmp_path / "run", postgres.url)
    try:
        [cohort_id] = server.open_round(seats=3, arms=1)
        worker = server.worker()
        with monkeypatch.context() as patch:
            lose_one_answer(patch, committed=committed)
            assert worker.take_seat("v", FIRST) == TakenSeat(cohort_id, 0)
        with monkeypatch.context() as patch:
            lose_one_answer(patch, committed=committed)
            result = worker.store_answer("v", FIRST, cohort_id, b"body")
        assert result is AnswerResult.TAKEN
        assert server.register.close_seats([cohort_id])[cohort_id] == SeatCounts(
            2, 0, 1
        )
    finally:
        server.close()


def test_nothing_is_kept_of_a_call_with_a_statement_that_fails(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    server = Server(tmp_path / "run", postgres.url)
    try:
        [cohort_id] = server.open_round(seats=3, arms=1)
        worker = server.worker()
        assert worker.take_seat("v", FIRST) == TakenSeat(cohort_id, 0)
        answer = seat_sql.ANSWER_SEAT, [(1,)]
        with pytest.raises(JournalError, match="violates"):
            worker.database.write(
                answer, (seat_sql.ADD_CONTRIBUTION, [(99, b"no such seat")])
            )
        assert worker.take_seat("v", FIRST) == TakenSeat(cohort_id, 0)
        assert server.register.count_seats()[cohort_id] == SeatCounts(2, 1, 0)
    finally:
        server.close()


@pytest.mark.timeout(60)
def test_a_worker_that_stands_still_within_a_call_holds_up_nobody(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    server = Server(tmp_path / "run", postgres.url)
    try:
        [cohort_id] = server.open_round(seats=3, arms=1)
        stuck, other = server.worker(), server.worker()

        def stand_still() -> None:
            with stuck.database.transaction() as connection:
                lock = connection.execute(seat_sql.LOCK_VISITORS, ['["v"]'])
                lock.fetchall()
                # PostgreSQL ends the call that stands still, and this one goes on.
                assert other.take_seat("v", FIRST) == TakenSeat(cohort_id, 0)

        with pytest.raises(UnavailableError, match="nothing of this step was kept"):
            stand_still()
        assert stuck.take_seat("v", FIRST) == TakenSeat(cohort_id, 0)
    finally:
        server.close()


def test_a_reader_may_compute_for_long_between_two_queries(
    journal: Journal, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "_LONGEST_IDLE_MS", 50)
    with Journal.read(run_dir) as reader:
        before = reader.head
        time.sleep(0.5)  # as replaying a large run does
        assert reader.head == before


def test_a_server_that_stood_still_within_a_step_does_it_again(
    journal: Journal, postgres: PostgresServer
) -> None:
    stood_still = list[int]()

    def step() -> None:
        with journal.database.transaction() as connection:
            if not stood_still:
                [(pid,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
                stood_still.append(pid)
                wait_for_end(postgres, pid)
            connection.execute(sql.ADD_META, ("stood", "still"))

    journal.database.repeat(step)
    assert stood_still


def wait_for_end(postgres: PostgresServer, pid: int) -> None:
    """Return when PostgreSQL has ended a session that does nothing."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
        while connection.execute(query, [pid]).fetchall() != [(0,)]:
            time.sleep(0.05)


# --- the lease ------------------------------------------------------------------------

HOLDER = """
import json, sys
from pathlib import Path
from tests.strategy.store.test_journal import cohort
from wallflower.protocol.errors import JournalError, UnavailableError
from wallflower.strategy.store.journal import Journal

with Journal.resume(Path(sys.argv[1])) as journal:
    for line in sys.stdin:
        try:
            journal.invite([cohort(line.strip(), arm=int(line.strip()[1:]))])
            said = "written"
        except UnavailableError as error:
            said = str(error)
        print(json.dumps(said), flush=True)
"""


def test_who_lost_the_lease_writes_nothing_any_more(
    journal: Journal, run_dir: Path
) -> None:
    journal.close()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None

        def write(name: str) -> str:
            print(name, file=holder.stdin, flush=True)
            answer: str = json.loads(holder.stdout.readline())  # type: ignore[union-attr]
            return answer

        assert write("c1") == "written"
        holder.send_signal(signal.SIGSTOP)  # it knows nothing of what happens now
        with Journal.resume(run_dir, standby=True) as successor:
            successor.invite([cohort("c2", arm=2)])
            holder.send_signal(signal.SIGCONT)
            assert "another server took over" in write("c3")
            assert successor.cohort_ids() == {"c1", "c2"}
            assert list(successor.breaks()) == []
        holder.stdin.close()


def test_a_lease_that_nobody_renews_ends_in_time_for_a_standby() -> None:
    # Renewed at the last moment, it ends, is looked at, and one transaction is waited
    # for: all of it within five seconds.
    assert lease._RENEW_S * 2 < lease._LEASE_S
    assert lease._LEASE_S + 2 * lease._LOOK_S + 1.0 <= 5.0


def test_a_server_that_is_not_there_is_named_without_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    settings = config(store=StoreSettings(f"postgresql://w@/w?host={tmp_path}"))
    with pytest.raises(UnavailableError, match="cannot be reached") as caught:
        Journal.create(tmp_path / "run", "r1", settings, "local")
    assert "hunter2" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_another_run_of_the_same_name_is_never_dropped(
    journal: Journal, run_dir: Path, tmp_path: Path
) -> None:
    run_id, settings = journal.run_id, journal.config
    journal.close()
    with pytest.raises(JournalError, match="already holds a run"):
        Journal.create(tmp_path / "other", run_id, settings, "local")
    with Journal.read(run_dir) as reader:
        assert reader.run_id == run_id


def test_a_copy_of_the_pointer_stands_for_the_run_on_another_host(
    journal: Journal, run_dir: Path, tmp_path: Path
) -> None:
    journal.invite([cohort("c1")])
    (tmp_path / "other").mkdir()
    shutil.copy(run_dir / "store.toml", tmp_path / "other")
    assert is_held(tmp_path / "other")
    with Journal.read(tmp_path / "other") as reader:
        assert reader.cohort_ids() == {"c1"}
