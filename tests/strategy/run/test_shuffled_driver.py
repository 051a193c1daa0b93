"""Shuffled sums: the server dies at any moment, one shuffled batch is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.strategy.run.test_driver import CrashError, CrashingPort
from tests.support.shuffled_sums import (
    ShuffledCohort,
    new_shuffler,
    shuffled_spec,
)
from wallflower.protocol.messages.port import (
    Answer,
    NodeHandler,
    NodeTransport,
    Request,
)
from wallflower.protocol.secure_sum.session import SecureSum, Void
from wallflower.protocol.secure_sum.shuffle.plan import SHUFFLER
from wallflower.protocol.wire.shuffle_pb2 import ReleaseAnswer
from wallflower.shuffler.shuffled_batch import Shuffler
from wallflower.strategy.run.driver import Deadlines, run_session
from wallflower.strategy.secure_sum import restore_session, server_session
from wallflower.strategy.store.spool import Spool
from wallflower.strategy.transport.memory import MemoryTransport


@dataclass
class Giving:
    """A shuffler behind a port; remembers the shuffled batches it gave."""

    shuffler: Shuffler
    shuffled_batches: list[bytes] = field(default_factory=list)

    async def handle(self, body: bytes) -> bytes:
        answer = self.shuffler.release(body)
        shuffled = ReleaseAnswer.FromString(answer).messages
        self.shuffled_batches += [shuffled] if shuffled else []
        return answer


@dataclass
class Node:
    """Answers once; the same request has the same answer."""

    party: str
    value: int
    cohort: ShuffledCohort
    said: dict[bytes, bytes] = field(default_factory=dict)

    async def handle(self, body: bytes) -> bytes:
        if body not in self.said:
            self.said[body] = self.cohort.node_answer(self.party, body, self.value)
        return self.said[body]


@dataclass
class World:
    """One cohort, its nodes and its shuffler."""

    folder: Path
    nodes: int = 6

    def __post_init__(self) -> None:
        self.cohort = ShuffledCohort(shuffled_spec(self.nodes))
        self.giving = Giving(new_shuffler(self.folder / "released"))
        self.handlers: dict[str, NodeHandler] = {
            party: Node(party, 1 << (number % 6), self.cohort)
            for number, party in enumerate(self.cohort.parties)
        }
        self.handlers[SHUFFLER] = self.giving

    async def run(self, port: NodeTransport | None = None) -> SecureSum | Void:
        """Run, or go on from what is on disk."""
        port = port if port is not None else MemoryTransport(self.handlers)
        cohort, keyring = self.cohort, self.cohort.keyring
        with Spool(self.folder / "spool.sqlite") as spool:
            kept = spool.cohort("cohort-1")
            snapshot = await kept.snapshot()
            session = (
                server_session(cohort.spec, cohort.parties, keyring=keyring)
                if snapshot is None
                else restore_session(snapshot, keyring=keyring)
            )
            return await run_session(
                session, port, _wrap, _unwrap, Deadlines(20.0), kept
            )


def _wrap(party: str, stage: str, message: bytes) -> Request:
    return Request(party, f"cohort-1/{stage}", message)


def _unwrap(answer: Answer) -> bytes:
    return answer.body


@pytest.mark.parametrize(
    ("stage", "heard"), [("submit", 0), ("submit", 3), ("submit", 6), ("release", 0)]
)
async def test_a_server_that_dies_before_the_shuffled_batch_gets_the_same_sum(
    stage: str, heard: int, tmp_path: Path
) -> None:
    world = World(tmp_path)
    port = MemoryTransport(world.handlers)
    with pytest.raises(CrashError):
        await world.run(CrashingPort(port, stage, heard))
    outcome = await world.run()
    assert isinstance(outcome, SecureSum), outcome
    assert outcome.total == 2**6 - 1
    assert len(world.giving.shuffled_batches) == 1


async def test_a_server_that_dies_with_the_shuffled_batch_gets_no_second_one(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    port = MemoryTransport(world.handlers)
    with pytest.raises(CrashError):
        await world.run(CrashingPort(port, "release", 1))
    outcome = await world.run()
    # It was on disk before the end, or it is lost for good.
    if isinstance(outcome, SecureSum):
        assert outcome.total == 2**6 - 1
    else:
        assert outcome.code == "no-shuffled-batch"
    assert len(world.giving.shuffled_batches) == 1


async def test_nodes_that_are_gone_or_fail_are_left_out(tmp_path: Path) -> None:
    class Failing:
        async def handle(self, body: bytes) -> bytes:
            raise ValueError

    world = World(tmp_path, nodes=10)
    gone, failing = list(world.cohort.parties)[2:4]
    del world.handlers[gone]
    world.handlers[failing] = Failing()
    outcome = await world.run()
    assert isinstance(outcome, SecureSum), outcome
    assert not {gone, failing} & set(outcome.survivors)
    # Nodes 0 … 5 hold 1 … 32, and 6 … 9 again 1 … 8.
    assert outcome.total == 63 + 15 - 4 - 8


async def test_without_its_shuffler_a_cohort_is_void_and_blames_no_node(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    del world.handlers[SHUFFLER]
    outcome = await world.run()
    assert isinstance(outcome, Void)
    assert outcome.code == "no-shuffled-batch"
