from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.support.secure_sums import NODE_BACKENDS
from tests.support.sum_nodes import Sum, exact, one_hot, run_spooled
from tests.support.transport_contract import Echo
from wallflower.protocol.errors import InputError
from wallflower.protocol.messages.port import (
    Answer,
    NodeHandler,
    NodeTransport,
    Request,
)
from wallflower.protocol.secure_sum.session import Ask, Finding, SecureSum, Void
from wallflower.protocol.wire.sealed_pb2 import SealedServerState
from wallflower.protocol.wire.sum_state_pb2 import ServerState
from wallflower.strategy.run.driver import LARGE, Deadlines, run_session
from wallflower.strategy.store.spool import Spool
from wallflower.strategy.transport.memory import MemoryTransport

BACKENDS = sorted(NODE_BACKENDS)


class CrashError(Exception):
    """The server process dies here."""


class CrashingPort:
    """Lets `answers` answers of a stage through, then dies before the next."""

    def __init__(self, inner: NodeTransport, stage: str, answers: int) -> None:
        self._inner = inner
        self._stage = stage
        self._answers = answers

    async def nodes(self) -> Sequence[str]:
        return await self._inner.nodes()

    async def ask(
        self, requests: Sequence[Request], *, timeout_s: float
    ) -> AsyncGenerator[Answer, None]:
        here = requests[0].request_id.endswith(f"/{self._stage}")
        if here and self._answers == 0:
            raise CrashError  # after the stage was entered, before its first message
        async with aclosing(self._inner.ask(requests, timeout_s=timeout_s)) as answers:
            heard = 0
            async for answer in answers:
                heard += 1
                try:
                    yield answer
                finally:
                    if here and heard == self._answers:
                        # A killed server abandons nothing: nodes go on working.
                        async for _ in answers:
                            pass
                        raise CrashError


# Of twelve nodes three deal a sealed sum's key, and three open it.
FEW = {"deal": 3, "open": 3}


def stages_of(backend: str) -> list[str]:
    return {
        "secagg-plus": ["advertise", "share", "mask", "unmask"],
        "sealed": ["enlist", "deal", "check", "seal", "open"],
    }[backend]


@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_sum_is_exact_when_everybody_answers(backend: str) -> None:
    nodes = one_hot(12)
    outcome = await Sum(nodes, backend).run(MemoryTransport(nodes))
    assert isinstance(outcome, SecureSum)
    assert outcome.survivors == tuple(sorted(nodes))
    assert outcome.total == 2**12 - 1


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_node_that_is_gone_or_fails_is_left_out(backend: str) -> None:
    nodes = one_hot(20)

    class Failing:
        async def handle(self, body: bytes) -> bytes:
            raise ValueError

    handlers: dict[str, NodeHandler] = {**nodes, "n03": Failing()}
    del handlers["n07"]
    outcome = await Sum(nodes, backend).run(MemoryTransport(handlers))
    assert isinstance(outcome, SecureSum)
    assert not {"n03", "n07"} & set(outcome.survivors)
    assert outcome.total == exact(nodes, outcome)


async def test_a_refusal_travels_back_and_costs_only_its_node() -> None:
    nodes = one_hot(12)
    nodes["n05"].run_id = "run-other"
    outcome = await Sum(nodes).run(MemoryTransport(nodes))
    assert isinstance(outcome, SecureSum)
    assert "n05" not in outcome.survivors
    assert outcome.total == 2**12 - 1 - 2**5


async def test_too_few_answers_by_the_deadline_give_no_sum_and_a_reason() -> None:
    nodes = one_hot(12)
    handlers = {name: nodes[name] for name in ("n00", "n01", "n02")}
    outcome = await Sum(nodes, quorum=10).run(MemoryTransport(handlers))
    assert isinstance(outcome, Void)
    assert outcome.code
    assert outcome.detail


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("heard", [0, 1, 7, 12])
async def test_a_restart_at_any_moment_gives_the_same_sum(
    tmp_path: Path, backend: str, heard: int
) -> None:
    for stage in stages_of(backend):
        nodes = one_hot(12)
        path = tmp_path / f"{stage}.sqlite"
        port = MemoryTransport(nodes)
        crashing = CrashingPort(port, stage, min(heard, FEW.get(stage, heard)))
        with pytest.raises(CrashError):
            await run_spooled(Sum(nodes, backend), crashing, path)
        outcome = await run_spooled(Sum(nodes, backend), port, path)
        assert isinstance(outcome, SecureSum), (stage, outcome)
        assert outcome.survivors == tuple(sorted(nodes))
        assert outcome.total == 2**12 - 1


async def test_a_contributor_who_vanishes_before_the_restart_still_counts(
    tmp_path: Path,
) -> None:
    """Uploads that were received are on disk: their senders need not be there."""
    nodes = one_hot(70)
    path = tmp_path / "spool.sqlite"
    for index, node in enumerate(nodes.values()):
        node.value = index
    present = dict(nodes)
    port = MemoryTransport(present)
    with pytest.raises(CrashError):
        await run_spooled(Sum(nodes, "sealed"), CrashingPort(port, "open", 0), path)
    with Spool(path) as spool:
        snapshot = await spool.cohort("c1").snapshot()
    assert snapshot is not None
    state = SealedServerState.FromString(ServerState.FromString(snapshot).own)
    committee = set(state.dealing.members)
    assert len(committee) < len(nodes)
    for name in set(nodes) - committee:
        del present[name]
    outcome = await run_spooled(Sum(nodes, "sealed"), port, path)
    assert isinstance(outcome, SecureSum)
    assert set(outcome.survivors) == set(nodes)
    assert outcome.total == exact(nodes, outcome)


async def test_an_answer_received_before_a_crash_in_its_stage_still_counts(
    tmp_path: Path,
) -> None:
    nodes, path = one_hot(12), tmp_path / "spool.sqlite"
    present = dict(nodes)
    port = MemoryTransport(present)

    class CrashOnceWritten(MemoryTransport):
        """Dies in the first stage once five answers are on disk."""

        async def ask(
            self, requests: Sequence[Request], *, timeout_s: float
        ) -> AsyncGenerator[Answer, None]:
            stream = port.ask(requests[:5], timeout_s=timeout_s)
            async with aclosing(stream) as answers:
                async for answer in answers:
                    yield answer
            async with asyncio.timeout(60):
                while events_in(path) < 5:  # noqa: ASYNC110 - SQLite tells nobody
                    await asyncio.sleep(0.01)
            raise CrashError

    with pytest.raises(CrashError):
        await run_spooled(Sum(nodes), CrashOnceWritten(present), path)
    asked: list[str] = []

    class Listening(MemoryTransport):
        async def ask(
            self, requests: Sequence[Request], *, timeout_s: float
        ) -> AsyncGenerator[Answer, None]:
            asked.extend(request.request_id for request in requests)
            async with aclosing(port.ask(requests, timeout_s=timeout_s)) as answers:
                async for answer in answers:
                    yield answer

    outcome = await run_spooled(Sum(nodes), Listening(present), path)
    assert isinstance(outcome, SecureSum)
    assert outcome.total == 2**12 - 1
    assert asked.count("c1/advertise") == 12 - 5  # only the silent ones are asked again


def events_in(path: Path) -> int:
    with sqlite3.connect(path) as database:
        [(count,)] = database.execute("SELECT count(*) FROM spooled_event")
    database.close()
    return int(count)


async def test_a_finished_cohort_is_not_run_again(tmp_path: Path) -> None:
    nodes = one_hot(12)
    path = tmp_path / "spool.sqlite"
    first = await run_spooled(Sum(nodes), MemoryTransport(nodes), path)
    again = await run_spooled(Sum(nodes), MemoryTransport({}), path)
    assert isinstance(first, SecureSum)
    assert again == first


async def test_the_closed_set_is_on_disk_before_the_first_message_about_it(
    tmp_path: Path,
) -> None:
    nodes = one_hot(12)
    path = tmp_path / "spool.sqlite"
    seen: list[str] = []

    class Watching(MemoryTransport):
        async def ask(
            self, requests: Sequence[Request], *, timeout_s: float
        ) -> AsyncGenerator[Answer, None]:
            with sqlite3.connect(path) as database:
                [row] = database.execute("SELECT stage FROM spooled")
            database.close()
            seen.append(f"{row[0]}:{requests[0].request_id.partition('/')[2]}")
            async with aclosing(super().ask(requests, timeout_s=timeout_s)) as inner:
                async for answer in inner:
                    yield answer

    await run_spooled(Sum(nodes), Watching(nodes), path)
    stages = ("advertise", "share", "mask", "unmask")
    assert seen == [f"{stage}:{stage}" for stage in stages]


def test_a_deadline_must_leave_time() -> None:
    with pytest.raises(InputError, match="unmask"):
        Deadlines(1.0, {"unmask": 0.0})
    assert Deadlines(1.0, {"unmask": 5.0}).of("unmask") == 5.0
    assert Deadlines(1.0, {"unmask": 5.0}).of("share") == 1.0


class Slow:
    """A session whose every step waits until the loop has turned meanwhile."""

    def __init__(self, slow: str, parties: int) -> None:
        self.slow = slow
        self.asked = {f"n{number}": b"?" for number in range(parties)}
        self.awaited = set(self.asked)
        self.working, self.turned = threading.Event(), threading.Event()
        self.stuck = False
        self.out: dict[str, str] = {}
        self.findings: tuple[Finding, ...] = ()

    def _step(self, name: str) -> None:
        if name == self.slow and not self.turned.is_set():
            self.working.set()
            self.stuck |= not self.turned.wait(60)

    def start(self) -> Ask:
        self._step("start")
        return Ask("seal", self.asked)

    def receive(self, party: str, body: bytes) -> None:
        self._step("receive")
        self.awaited.discard(party)

    def lose(self, party: str, code: str) -> None:
        self.awaited.discard(party)

    @property
    def stage_complete(self) -> bool:
        return not self.awaited

    def advance(self) -> Void:
        self._step("advance")
        return Void("done", "nothing was added up")

    def snapshot(self) -> bytes:
        self._step("snapshot")
        return b""


@pytest.mark.parametrize("step", ["start", "snapshot", "receive", "advance"])
async def test_the_loop_turns_while_a_session_works_on_many_parties(
    step: str, tmp_path: Path
) -> None:
    session = Slow(step, parties=2 * LARGE)

    async def beat() -> None:
        while not session.working.is_set():  # noqa: ASYNC110 (a thread sets it)
            await asyncio.sleep(0)
        session.turned.set()

    nodes: dict[str, NodeHandler] = {name: Echo(name) for name in session.asked}
    beating = asyncio.create_task(beat())
    with Spool(tmp_path / "spool") as spool:
        outcome = await run_session(
            session,
            MemoryTransport(nodes),
            lambda party, stage, message: Request(party, stage, message),
            lambda answer: answer.body,
            Deadlines(60),
            spool.cohort("c"),
        )
    await beating
    assert outcome == Void("done", "nothing was added up")
    assert not session.stuck
