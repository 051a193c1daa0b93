from __future__ import annotations

import asyncio
import dataclasses
import os
import socket
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from deploy.harness.processes import free_port
from wallflower.engines.local import run_local
from wallflower.engines.registry import EngineJob
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.sections import SecureSumSettings, TransportSettings
from wallflower.strategy.store import events
from wallflower.strategy.store.event_log import EventLog
from wallflower.strategy.store.events import Event
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.spool import Spool

MEANS = (0.1, 0.9, 0.2)


def config(**sections: object) -> ExperimentConfig:
    given: dict[str, object] = {
        "experiment": ExperimentSettings("test", ("a", "b", "c")),
        "policy": PolicySettings(first_batch=40),
        "nodes": NodeSettings(12, 60),
        "rewards": RewardSettings(means=MEANS),
    }
    return ExperimentConfig(**(given | sections))  # type: ignore[arg-type]


async def run(experiment: ExperimentConfig, run_dir: Path) -> list[Event]:
    heard: list[Event] = []

    async def listen(event: Event) -> None:
        heard.append(event)

    Journal.create(run_dir, "test-run", experiment, "local").close()
    await run_local(EngineJob(experiment, run_dir, "test-run", listen))
    return heard


def last_views(heard: list[Event]) -> list[bool]:
    finished = [event for event in heard if isinstance(event, events.RoundFinished)]
    assert finished[-1].finished == "winner"
    return [view.active for view in finished[-1].views]


@pytest.mark.parametrize("backend", ["sealed", "secagg-plus"])
async def test_a_private_experiment_finds_the_best_arm(
    backend: str, tmp_path: Path
) -> None:
    # Gaps of 0.7 at radius < 0.5 and failure probability 1/20: a false alarm is rarer
    # than 1 in 20 by the experiment's own promise.
    heard = await run(
        config(secure_sum=SecureSumSettings(backend=backend)), tmp_path / "run"
    )
    assert last_views(heard) == [False, True, False]


async def only_these_are_left(before: set[asyncio.Task[Any]]) -> None:
    async with asyncio.timeout(60):
        while not asyncio.all_tasks() <= before:  # noqa: ASYNC110 - gRPC ends its own
            await asyncio.sleep(0.01)


async def test_the_same_experiment_runs_over_grpc_and_leaves_nothing_open(
    tmp_path: Path,
) -> None:
    before = asyncio.all_tasks()
    heard = await run(
        config(transport=TransportSettings(kind="grpc")), tmp_path / "run"
    )
    assert last_views(heard) == [False, True, False]
    await only_these_are_left(before)


async def test_a_lying_server_is_withstood_with_enrolled_nodes(tmp_path: Path) -> None:
    secure_sum = SecureSumSettings(server="malicious")
    heard = await run(config(secure_sum=secure_sum), tmp_path / "run")
    assert last_views(heard) == [False, True, False]


async def test_nobody_is_invited_twice_and_every_invitation_is_in_the_journal(
    tmp_path: Path,
) -> None:
    heard = await run(config(), tmp_path / "run")
    with Journal.read(tmp_path / "run") as journal:
        invited = Counter(
            (node, user) for _, node, users in journal.invitations() for user in users
        )
    assert set(invited.values()) == {1}
    asked = sum(e.users for e in heard if isinstance(e, events.CohortAsked))
    assert asked == invited.total()


async def test_events_hold_counts_and_bounds_but_no_sum_of_a_cohort(
    tmp_path: Path,
) -> None:
    heard = await run(config(), tmp_path / "run")
    with Journal.read(tmp_path / "run") as journal:
        sums = {c.cohort_id: c.result for c in journal.cohorts() if c.result}
    for event in heard:
        if isinstance(event, events.CohortEnded) and event.cohort_id in sums:
            result, fields = sums[event.cohort_id], dataclasses.asdict(event)
            assert fields.pop("survivors") == result.survivors
            # Small counts may happen to be as large as the sum.
            for count in ("arm", "attempt", "lost", "returned"):
                del fields[count]
            assert str(result.released) not in map(str, fields.values())


async def test_cancelling_a_run_over_grpc_leaves_no_task_and_no_open_port(
    tmp_path: Path,
) -> None:
    before = asyncio.all_tasks()
    asked = asyncio.Event()

    async def listen(event: Event) -> None:
        if isinstance(event, events.CohortAsked):
            asked.set()

    port = free_port()
    experiment = config(transport=TransportSettings(kind="grpc", port=port))
    Journal.create(tmp_path / "run", "test-run", experiment, "local").close()
    job = EngineJob(experiment, tmp_path / "run", "test-run", listen)
    running = asyncio.create_task(run_local(job))
    await asked.wait()
    socket.create_connection(("127.0.0.1", port)).close()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    await only_these_are_left(before)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    await run_local(job)  # and the run can be resumed
    with Journal.read(tmp_path / "run") as journal:
        last = journal.last_round()
    assert last is not None
    assert last.finished == "winner"


async def test_a_failure_behind_the_grpc_server_is_reported_as_itself(
    tmp_path: Path,
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("smallest-cohort = 1000000\n")
    experiment = config(
        transport=TransportSettings(kind="grpc", attempts=1),
        nodes=NodeSettings(12, 60, policy),
    )
    with pytest.raises(UnavailableError, match="terms: cohort-too-small"):
        await run(experiment, tmp_path / "run")


async def test_nobody_else_on_the_machine_may_read_what_a_run_writes(
    tmp_path: Path,
) -> None:
    seen: dict[Path, int] = {}

    async def look(event: Event) -> None:
        # While it runs SQLite's -wal and -shm are there too.
        for path in [run_dir, *run_dir.iterdir()]:
            seen[path] = stat.S_IMODE(path.stat().st_mode)

    run_dir = tmp_path / "run"
    before = os.umask(0)
    try:
        Journal.create(run_dir, "test-run", config(), "local").close()
        with EventLog(run_dir), Spool(run_dir / "spool.sqlite"):
            await run_local(EngineJob(config(), run_dir, "test-run", look))
    finally:
        os.umask(before)
    assert {path.name for path in seen} >= {
        "journal.sqlite",
        "journal.sqlite-wal",
        "journal.sqlite-shm",
        "spool.sqlite-wal",
        "events.jsonl",
        "ledger.sqlite",
        "ledger.sqlite-wal",
    }
    assert {path.name: mode for path, mode in seen.items() if mode & 0o077} == {}
