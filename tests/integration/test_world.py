"""Whatever breaks, in whatever order: no wrong sum, nobody twice, no false end.

A world is a whole deployment on virtual time (`tests.support.world`): real server,
gRPC server, nodes, ledgers and journal over simulated processes, threads, disks and
network. `make soak-world` runs thousands more. The tests below the first show that a
world repeats itself, that schedules shrink, and that checks see what they are there
for.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support.world import simulation
from tests.support.world.disk import half_written, leave_files_of, simulated_disks
from tests.support.world.invariants import problems
from tests.support.world.processes import PROCESS, Process, WorldLoop
from tests.support.world.schedule import KINDS, Fault, Schedule, drawn
from tests.support.world.simulation import simulate
from tests.support.world.soak import run_worlds, shrunk
from tests.support.world.threads import (
    ThreadsOfEachProcess,
    VirtualExecutor,
    block,
)
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.rollback_counter import CounterState, RollbackCounter
from wallflower.clients.node.spends import Spend
from wallflower.strategy.bandit.policy import Policy
from wallflower.strategy.run.drawing import can_fill_round
from wallflower.strategy.run.recruiting import Recruiter

CALM = Schedule(
    seed=1,
    transport="server",
    backend="sealed",
    server="semi-honest",
    nodes=4,
    users=56,
    arms=2,
    first_batch=12,
    dropout="1/4",
    gap=400,
    blocking=False,
    faults=(),
)


# Not traced: the same lines again and again, which other worlds run too.
@pytest.mark.no_cover
@pytest.mark.parametrize("first", range(0, 100, 10))
def test_nothing_that_must_hold_breaks_under_seeded_faults(first: int) -> None:
    tally = run_worlds(range(first, first + 10))
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.faults.total() >= 10, str(tally)


@pytest.mark.parametrize("transport", ["server", "local"])
@pytest.mark.parametrize("backend", ["sealed", "secagg-plus"])
def test_a_world_without_faults_finishes_at_the_first_start(
    transport: str, backend: str
) -> None:
    world = {"transport": transport, "backend": backend}
    outcome = simulate(Schedule(**(_fields(CALM) | world)))  # type: ignore[arg-type]
    assert (outcome.ended, outcome.starts, outcome.broken) == ("finished", 1, [])


def test_the_same_seed_is_the_same_course_of_events() -> None:
    for seed in (3, 10, 18):
        one, other = simulate(drawn(seed)), simulate(drawn(seed))
        assert one.trace == other.trace
        assert one.injected == other.injected


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fault_strikes(kind: str) -> None:
    worlds = (run_worlds([seed], [kind]) for seed in range(6))
    assert any(world.faults[kind] for world in worlds)


def test_a_schedule_shrinks_to_the_faults_that_matter() -> None:
    faults = [Fault("flap", at=float(second)) for second in range(9)]
    guilty = {faults[2], faults[7]}
    short = shrunk(CALM.only(faults), lambda plan: guilty <= set(plan.faults))
    assert set(short.faults) == guilty


# --- the checks see what they are there for


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ended")
    outcome = simulate(CALM, keep=folder)
    assert outcome.ended == "finished"
    assert problems(CALM, folder, "finished") == []
    return folder


@pytest.fixture
def folder(ended: Path, tmp_path: Path) -> Path:
    for file in ended.rglob("*.sqlite"):
        copy = tmp_path / file.relative_to(ended)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(file.read_bytes())
    return tmp_path


def _alter(path: Path, *statements: str) -> None:
    database = sqlite3.connect(path)
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()


def test_a_wrong_sum_is_seen(folder: Path) -> None:
    _alter(
        folder / "server" / "journal.sqlite",
        "UPDATE cohort SET result = json_set(result, '$.total', "
        "CAST(1 + json_extract(result, '$.total') AS TEXT)) WHERE arm = 0",
    )
    found = problems(CALM, folder, "finished")
    assert any("its users give" in problem for problem in found)


def test_a_user_asked_twice_is_seen(folder: Path) -> None:
    _alter(
        folder / "server" / "journal.sqlite",
        "UPDATE invitation SET users = (SELECT users FROM invitation AS other WHERE "
        "other.node_id = invitation.node_id ORDER BY cohort_id LIMIT 1)",
    )
    found = problems(CALM, folder, "finished")
    assert any("was invited" in problem for problem in found)


def test_an_answer_without_a_row_in_its_ledger_is_seen(folder: Path) -> None:
    _alter(
        folder / "node-1" / "ledger.sqlite",
        "DROP TRIGGER spend_is_not_removed",
        "DELETE FROM spend WHERE number = 1",
    )
    found = problems(CALM, folder, "finished")
    assert any("in ledgers" in problem for problem in found)


def test_a_spend_that_nobody_was_invited_to_is_seen(folder: Path) -> None:
    _alter(
        folder / "server" / "journal.sqlite",
        "DELETE FROM invitation WHERE node_id = 'node-2'",
    )
    found = problems(CALM, folder, "finished")
    assert any("spent uninvited" in problem for problem in found)


def test_a_false_end_is_seen(folder: Path) -> None:
    last = "number = (SELECT max(number) FROM round)"
    journal = folder / "server" / "journal.sqlite"
    _alter(journal, f"UPDATE round SET finished = 'users-exhausted' WHERE {last}")
    found = problems(CALM, folder, "finished")
    assert any("were never asked" in problem for problem in found)
    _alter(journal, f"UPDATE round SET finished = NULL WHERE {last}")
    found = problems(CALM, folder, "finished")
    assert "a run ended as finished, and its journal is not" in found


# --- rules that were wrong once, put back: worlds must notice


def test_too_few_nodes_taken_for_an_end_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A round once took whoever was connected at its beginning for everybody."""

    async def exhausted(recruiter: Any, policy: Policy) -> bool:
        away = recruiter._registry.known.keys() - set(await recruiter._refresh())
        everybody = recruiter._registry, recruiter._config, policy.next_cohorts()
        return not can_fill_round(*everybody, away)

    monkeypatch.setattr(Recruiter, "is_exhausted", exhausted)
    worlds = (run_worlds([seed], ["flap", "partition"]) for seed in range(10))
    assert any(
        "were never asked" in output for world in worlds for output in world.failures
    )


def test_rewards_in_the_threads_of_everything_else_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rewards that block once took the threads that ledger and journal write in."""

    def shared(*_: object, **__: object) -> VirtualExecutor:
        process = PROCESS.get()
        assert process is not None
        pool: VirtualExecutor = process.own.setdefault(
            "default pool", VirtualExecutor()
        )
        return pool

    def call(_: object, function: Callable[..., Any], *given: object) -> Any:
        return asyncio.wrap_future(shared().submit(function, *given))

    monkeypatch.setattr(simulation, "VirtualExecutor", shared)
    monkeypatch.setattr(ThreadsOfEachProcess, "call", call)
    worlds = (run_worlds([seed], ["endless-rewards"]) for seed in range(5))
    failures = (failure for world in worlds for failure in world.failures)
    assert any("hang" in failure.lower() for failure in failures)


def test_a_world_sees_who_was_shown_an_arm_without_being_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def forget(ledger: Ledger, entry: Spend) -> None:
        return

    monkeypatch.setattr(Ledger, "spend", forget)
    assert any("not charged" in problem for problem in simulate(CALM).broken)


# --- the ground that is simulated


def _in_a_process(
    home: Path, work: Callable[[Process], Coroutine[Any, Any, None]]
) -> Process:
    process = Process("server", home, random.Random(1))
    loop = WorldLoop()
    try:
        with simulated_disks():
            loop.run_until_complete(loop.spawn(process, work(process)))
    finally:
        loop.close()
    return process


def test_a_write_that_tore_is_gone_and_those_before_it_are_there(
    tmp_path: Path,
) -> None:
    def written(number: int, torn: bool) -> list[int]:
        home = tmp_path / f"{number}-{torn}"
        home.mkdir()

        async def work(process: Process) -> None:
            database = sqlite3.connect(home / "a.sqlite", isolation_level=None)
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("CREATE TABLE kept (value INTEGER)")
            thread = VirtualExecutor(1)
            await asyncio.wrap_future(
                thread.submit(database.execute, "INSERT INTO kept VALUES (1)")
            )

            def wrote(process: Process) -> None:
                leave_files_of(process, random.Random(number), torn=torn)

            process.wrote = wrote
            thread.submit(database.execute, "INSERT INTO kept VALUES (2)")
            await asyncio.sleep(1)

        _in_a_process(home, work)
        database = sqlite3.connect(home / "a.sqlite")
        rows = [row[0] for row in database.execute("SELECT value FROM kept")]
        database.close()
        return rows

    for number in range(20):
        assert written(number, torn=True) == [1]
    assert written(0, torn=False) == [1, 2]


def test_a_torn_counter_keeps_its_last_value(tmp_path: Path) -> None:
    counter = RollbackCounter(tmp_path / "ledger.counter")
    marks = [
        CounterState(b"l" * 16, number, bytes([number]) * 32, bytes(32))
        for number in (4, 5, 6)
    ]
    for mark in marks[:2]:
        counter.write(mark)
    old = counter.path.read_bytes()
    counter.write(marks[2])
    new = counter.path.read_bytes()
    for number in range(50):
        torn = half_written(old, new, random.Random(number))
        counter.path.write_bytes(torn)
        assert bytes(torn) != new
        assert counter.read() == marks[1]


def test_a_full_disk_refuses_with_the_code_of_sqlite(tmp_path: Path) -> None:
    async def work(process: Process) -> None:
        database = sqlite3.connect(tmp_path / "a.sqlite")
        process.disk_full = True
        with pytest.raises(sqlite3.OperationalError) as caught:
            database.execute("CREATE TABLE kept (value INTEGER)")
        assert caught.value.sqlite_errorcode == sqlite3.SQLITE_FULL
        database.close()

    _in_a_process(tmp_path, work)


def test_a_blocked_worker_is_missing_in_its_pool(tmp_path: Path) -> None:
    async def work(process: Process) -> None:
        loop = asyncio.get_running_loop()
        thread = VirtualExecutor(1)
        thread.submit(block, 50.0)
        await asyncio.wrap_future(thread.submit(int))
        assert loop.time() > 50

    _in_a_process(tmp_path, work)


def test_to_block_the_event_loop_itself_is_an_error(tmp_path: Path) -> None:
    async def work(process: Process) -> None:
        with pytest.raises(AssertionError, match="event loop"):
            block(1.0)

    _in_a_process(tmp_path, work)


def test_the_dead_do_nothing_any_more_and_the_stopped_do_it_later(
    tmp_path: Path,
) -> None:
    done: list[tuple[str, float]] = []

    async def work(process: Process) -> None:
        loop = asyncio.get_running_loop()

        async def tick(name: str) -> None:
            try:
                await asyncio.sleep(1)
                done.append((name, loop.time()))
            finally:
                done.append((f"{name} tidied up", loop.time()))

        PROCESS.set(None)
        assert isinstance(loop, WorldLoop)
        killed = Process("killed", tmp_path, random.Random(1))
        stopped = Process("stopped", tmp_path, random.Random(1))
        loop.spawn(killed, tick("killed"))
        loop.spawn(stopped, tick("stopped"))
        await asyncio.sleep(0.5)
        killed.die()
        stopped.stopped = True
        await asyncio.sleep(9.5)
        assert done == []
        stopped.go_on()
        await asyncio.sleep(1)
        assert [name for name, _ in done] == ["stopped", "stopped tidied up"]
        assert done[0][1] == pytest.approx(10)
        killed.bury()

    _in_a_process(tmp_path, work)


def test_a_timer_cancelled_while_its_process_stood_still_does_not_go_off(
    tmp_path: Path,
) -> None:
    output: list[str] = []

    async def work(process: Process) -> None:
        loop = asyncio.get_running_loop()

        async def wait() -> None:
            second: asyncio.TimerHandle | None = None

            def first() -> None:
                output.append("first")
                assert second is not None
                second.cancel()

            loop.call_later(1, first)
            second = loop.call_later(2, output.append, "second")

        PROCESS.set(None)
        assert isinstance(loop, WorldLoop)
        stopped = Process("stopped", tmp_path, random.Random(1))
        await loop.spawn(stopped, wait())
        stopped.stopped = True
        await asyncio.sleep(3)
        stopped.go_on()
        await asyncio.sleep(1)
        assert output == ["first"]

    _in_a_process(tmp_path, work)


def _fields(schedule: Schedule) -> dict[str, object]:
    return {name: getattr(schedule, name) for name in schedule.__slots__}
