"""A node is in all sums of a round or in none; nothing waits for ever for that."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence, Set
from pathlib import Path

import pytest

from tests.strategy.run.test_open_cohorts import serve
from tests.strategy.run.test_orchestrator import assert_verified
from tests.support.orchestration import SwitchedPort, World, config, world
from tests.support.vanishing import Gone, VanishingPort
from tests.support.virtual_time import run_virtually
from wallflower.protocol.files.sections import RewardSettings
from wallflower.protocol.messages.port import Answer, NodeHandler, NodeId, Request
from wallflower.protocol.wire.node_pb2 import CohortStage, NodeRequest
from wallflower.strategy.config import ExperimentConfig, ExperimentSettings
from wallflower.strategy.run.common_nodes import find_unlike_rounds
from wallflower.strategy.store.entries import CohortRecord
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.spool import Spool

ALL = {f"node-{number}" for number in range(20)}


def three_arms() -> ExperimentConfig:
    return config(
        experiment=ExperimentSettings("test", ("a", "b", "c")),
        rewards=RewardSettings(means=(0.1, 0.9, 0.2)),
    )


class StoppingPort(SwitchedPort):
    """Stops the server when it has asked for the opening of two sums."""

    server: asyncio.Task[None]

    async def ask(
        self, requests: Sequence[Request], *, timeout_s: float
    ) -> AsyncGenerator[Answer, None]:
        if requests[0].request_id.endswith("/open"):
            self.gone.add(requests[0].request_id)
            if len(self.gone) == 2:
                self.server.cancel()
            await asyncio.Event().wait()
        async for answer in self.inner.ask(requests, timeout_s=timeout_s):
            yield answer


def let_vanish(there: World, gone: Gone) -> None:
    """Let nodes be gone by a rule when they are asked to contribute."""

    def sealing(node: NodeId, stage: CohortStage) -> bool:
        return bool(stage.users) and gone(node, stage)

    there.port = SwitchedPort(VanishingPort(there.handlers, sealing))


def cohorts_of(there: World, number: int = 1) -> list[CohortRecord]:
    with Journal.read(there.run_dir) as journal:
        return [c for c in journal.cohorts() if c.round_number == number]


def in_sums(there: World, number: int = 1) -> Mapping[int, set[NodeId]]:
    """The nodes in each arm's sum of a round."""
    found: defaultdict[int, set[NodeId]] = defaultdict(set)
    for cohort in cohorts_of(there, number):
        if cohort.result is not None:
            found[cohort.arm] |= set(cohort.result.nodes)
    return found


def unlike(there: World) -> Set[int]:
    with Journal.read(there.run_dir) as journal:
        return find_unlike_rounds(journal)


def attempt(stage: CohortStage) -> int:
    return int(stage.spec.cohort_id.split("-t")[1].split("-")[0])


async def test_who_vanishes_in_one_arm_is_left_out_of_all(tmp_path: Path) -> None:
    async with world(tmp_path, three_arms()) as there:
        let_vanish(there, lambda node, stage: (node, stage.spec.arm) == ("node-3", 0))
        await there.run()
        found = in_sums(there)
        assert set(found) == {0, 1, 2}
        assert all(nodes == ALL - {"node-3"} for nodes in found.values())
        assert unlike(there) == set()
        assert_verified(there)
        for cohort in cohorts_of(there):
            word = "node-gone" if cohort.arm == 0 else "missing-in-another-arm"
            assert set(cohort.losses) == {word}


async def test_different_nodes_in_different_arms_are_left_out_together(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, three_arms()) as there:
        gone = {("node-3", 0), ("node-7", 2)}
        let_vanish(there, lambda node, stage: (node, stage.spec.arm) in gone)
        await there.run()
        found = in_sums(there)
        assert all(nodes == ALL - {"node-3", "node-7"} for nodes in found.values())


async def test_no_sum_is_given_up_for_the_sake_of_equal_nodes(tmp_path: Path) -> None:
    """Each arm misses two of 20 nodes, as many as may vanish: six are too many."""
    async with world(tmp_path, three_arms()) as there:
        let_vanish(
            there,
            lambda node, stage: int(node.removeprefix("node-")) // 2 == stage.spec.arm,
        )
        await there.run()
        found = in_sums(there)
        for arm in range(3):
            assert found[arm] == ALL - {f"node-{2 * arm}", f"node-{2 * arm + 1}"}
        assert all(cohort.attempt == 1 for cohort in cohorts_of(there))
        assert 1 in unlike(there)
        assert_verified(there)


async def test_sums_wait_for_the_cohort_that_replaces_a_void_one(
    tmp_path: Path,
) -> None:
    """Arm 0 fails at first; in its second cohort node-5 vanishes."""

    def gone(node: NodeId, stage: CohortStage) -> bool:
        if stage.spec.arm != 0 or stage.spec.batch != 1:
            return False
        many = int(node.removeprefix("node-")) < 8
        return many if attempt(stage) == 1 else node == "node-5"

    async with world(tmp_path, three_arms()) as there:
        let_vanish(there, gone)
        await there.run()
        found = in_sums(there)
        assert set(found) == {0, 1, 2}
        assert all("node-5" not in nodes for nodes in found.values())
        # Those who vanished in the void cohort are in all sums that count.
        assert all({"node-0", "node-7"} <= nodes for nodes in found.values())
        assert_verified(there)


async def test_nobody_waits_for_an_arm_that_gives_up(tmp_path: Path) -> None:
    async with world(tmp_path, three_arms()) as there:
        let_vanish(there, lambda _, stage: (stage.spec.arm, stage.spec.batch) == (0, 1))
        await there.run()
        assert set(in_sums(there)) == {1, 2}
        assert sum(cohort.state == "void" for cohort in cohorts_of(there)) == 3
        assert_verified(there)


async def test_sums_that_were_closed_before_a_stop_bind_those_after_it(
    tmp_path: Path,
) -> None:
    """node-3 vanishes in arm 0, the server stops while the sums are opened."""
    async with world(tmp_path) as there:
        here = there.port
        let_vanish(there, lambda node, stage: (node, stage.spec.arm) == ("node-3", 0))
        port = StoppingPort(there.port)
        port.server = asyncio.create_task(serve(there, port))
        with pytest.raises(asyncio.CancelledError):
            await port.server
        # As if it had stopped before the first set was written down.
        (first,) = (c.cohort_id for c in cohorts_of(there) if c.arm == 0)
        with Spool(there.run_dir / "spool.sqlite") as spool:
            await spool.cohort(first).forget()
        there.port = here  # now everybody is there
        await serve(there, there.port)
        found = in_sums(there)
        assert set(found) == {0, 1}
        assert found[0] == found[1] == ALL - {"node-3"}
        assert [(c.arm, c.attempt, c.state) for c in cohorts_of(there)] == [
            (0, 1, "void"),
            (0, 2, "summed"),
            (1, 1, "summed"),
        ]
        assert_verified(there)


async def test_a_polling_node_is_in_all_sums_or_in_none_as_well(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, three_arms()) as there:
        name = list(there.nodes)[-1]
        there.nodes[name].polls = True
        let_vanish(there, lambda node, stage: (node, stage.spec.arm) == (name, 2))
        await there.run()
        found = in_sums(there)
        assert set(found) == {0, 1, 2}
        assert all(nodes == ALL - {name} for nodes in found.values())


class Silent:
    """A node that never answers about one arm."""

    def __init__(self, node: NodeHandler) -> None:
        self._node = node

    async def handle(self, body: bytes) -> bytes:
        tasks = NodeRequest.FromString(body).tasks
        if any(task.stage.users and task.stage.spec.arm == 0 for task in tasks):
            await asyncio.Event().wait()
        return await self._node.handle(body)


def test_a_silent_node_is_waited_for_until_the_deadline_and_no_longer(
    tmp_path: Path,
) -> None:
    """On virtual time: a wait without an end would be an error, not a pass."""

    async def run() -> Mapping[int, set[NodeId]]:
        async with world(tmp_path, three_arms()) as there:
            there.handlers["node-3"] = Silent(there.nodes["node-3"])
            await there.run()
            return in_sums(there)

    found = run_virtually(run())
    assert set(found) == {0, 1, 2}
    assert all(nodes == ALL - {"node-3"} for nodes in found.values())
