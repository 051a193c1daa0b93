"""A server that stops between the last contribution and the tally, and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.orchestration import RUN, SwitchedPort, World, config, world
from wallflower.protocol.messages.port import Answer, NodeId, Request
from wallflower.strategy.run.orchestrator import Orchestrator
from wallflower.strategy.run.pending_cohorts import make_session_factory
from wallflower.strategy.sections import SecureSumSettings
from wallflower.strategy.store import events
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.spool import Spool

BACKENDS = {"sealed": "open", "secagg-plus": "unmask"}


@dataclass
class StoppingPort:
    """Stops the server when it asks for `stage`, before the request leaves."""

    inner: SwitchedPort
    stage: str
    server: asyncio.Task[None] | None = None

    async def nodes(self) -> Sequence[NodeId]:
        return await self.inner.nodes()

    async def ask(
        self, requests: Sequence[Request], *, timeout_s: float
    ) -> AsyncGenerator[Answer, None]:
        if requests[0].request_id.endswith(self.stage):
            assert self.server is not None
            self.server.cancel()
            await asyncio.Event().wait()
        async for answer in self.inner.ask(requests, timeout_s=timeout_s):
            yield answer


async def serve(there: World, port: StoppingPort | SwitchedPort) -> None:
    with (
        Journal.resume(there.run_dir) as journal,
        Spool(there.run_dir / "spool.sqlite") as spool,
    ):
        await Orchestrator(
            there.config,
            journal,
            port,
            make_session_factory(RUN, None),
            there.listen,
            expected_nodes=len(there.handlers),
            spool=spool,
        ).run()


async def stop_at(there: World, stage: str) -> None:
    port = StoppingPort(there.port, stage)
    port.server = asyncio.create_task(serve(there, port))
    with pytest.raises(asyncio.CancelledError):
        await port.server


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_closed_cohort_is_finished_without_asking_anyone_again(
    tmp_path: Path, backend: str
) -> None:
    experiment = config(secure_sum=SecureSumSettings(backend=backend))
    async with world(tmp_path, experiment) as there:
        await stop_at(there, BACKENDS[backend])
        asked_before = there.invited()
        await serve(there, there.port)
        with Journal.read(there.run_dir) as journal:
            first = [c for c in journal.cohorts() if c.round_number == 1]
            last = journal.last_round()
    finished = [cohort for cohort in first if cohort.result is not None]
    assert len(finished) == 2
    # At least the arm whose tally was being asked for had closed its set.
    assert any(cohort.cohort_id in asked_before for cohort in finished)
    for cohort in finished:
        if cohort.cohort_id in asked_before:
            assert cohort.attempt == 1
            assert there.port.asked[f"{cohort.cohort_id}/{BACKENDS[backend]}"] > 0
    assert last is not None
    assert last.finished == "winner"
    told = [e for e in there.heard if isinstance(e, events.RoundFinished)][-1]
    assert told.lost == told.invited - told.answered
    assert told.invited == sum(view.asked for view in told.views)


async def test_a_cohort_that_was_not_closed_is_void(tmp_path: Path) -> None:
    async with world(tmp_path) as there:
        await stop_at(there, "seal")
        await serve(there, there.port)
        with Journal.read(there.run_dir) as journal:
            first = [c for c in journal.cohorts() if c.round_number == 1]
    assert {c.reason for c in first if c.state == "void"} == {"server-stopped"}
    assert sorted(c.attempt for c in first if c.state == "summed") == [2, 2]


async def test_no_user_is_invited_twice_across_the_stop(tmp_path: Path) -> None:
    async with world(tmp_path) as there:
        await stop_at(there, "open")
        await serve(there, there.port)
        everyone = [
            (node, user)
            for cohort in there.invited().values()
            for node, users in cohort.items()
            for user in users
        ]
    assert len(set(everyone)) == len(everyone)


async def test_the_spool_is_empty_when_the_run_is_over(tmp_path: Path) -> None:
    async with world(tmp_path) as there:
        await serve(there, there.port)
        with Spool(there.run_dir / "spool.sqlite") as spool:
            assert await spool.open_cohorts() == []
