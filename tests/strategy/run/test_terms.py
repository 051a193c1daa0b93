"""Refusals by a node's policy: they cost nobody's participation, and say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.orchestration import Altered, World, config, world
from wallflower.clients.node.ledger import Ledger
from wallflower.engines.population import hosted_nodes
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sections import NodeSettings
from wallflower.protocol.messages.port import NodeHandler
from wallflower.protocol.wire.node_pb2 import (
    NodeAnswer,
    NodeRequest,
    Refusal,
    TaskAnswer,
)
from wallflower.results.result import read_result
from wallflower.strategy.config import (
    ExperimentConfig,
    SecureSumSettings,
    TransportSettings,
)
from wallflower.strategy.record import events
from wallflower.strategy.record.journal import Journal
from wallflower.strategy.run.terms import TermsRefusedError
from wallflower.strategy.run.verify import verify

BACKENDS = ("sealed", "secagg-plus")
ALL = tuple(f"node-{number}" for number in range(20))


def experiment(backend: str = "sealed") -> ExperimentConfig:
    return config(
        secure_sum=SecureSumSettings(backend=backend),
        transport=TransportSettings(attempts=3, return_timeout_s=1),
    )


def demanding(there: World, ledger: Ledger, tmp_path: Path) -> dict[str, NodeHandler]:
    """Make the same nodes with users who want nine in ten to carry the noise."""
    policy = tmp_path / "policy.toml"
    policy.write_text('smallest-floor-fraction = "9/10"\nsmallest-cohort = 2\n')
    nodes = NodeSettings(20, 40, policy=policy)
    return dict(hosted_nodes(replace(there.config, nodes=nodes), ledger, None))


class OnlyStages:
    """A node that accepts every offer and keeps to its policy afterwards."""

    def __init__(self, lenient: NodeHandler, strict: NodeHandler) -> None:
        self.lenient, self.strict = lenient, strict

    async def handle(self, body: bytes) -> bytes:
        tasks = NodeRequest.FromString(body).tasks
        offered = any(task.WhichOneof("kind") == "offer" for task in tasks)
        return await (self.lenient if offered else self.strict).handle(body)


def used(there: World) -> int:
    with Journal.read(there.run_dir) as journal:
        problems = [p for check in verify(journal) for p in check.problems]
        assert problems == []
        return sum(len(users) for _, _, users in journal.used())


def told(there: World) -> Sequence[events.TermsRefused]:
    return [e for e in there.heard if isinstance(e, events.TermsRefused)]


@pytest.mark.parametrize("backend", BACKENDS)
async def test_terms_that_nobody_agrees_to_stop_the_run_before_anybody_is_asked(
    backend: str, tmp_path: Path
) -> None:
    async with world(tmp_path, experiment(backend)) as there:
        with Ledger(tmp_path / "strict.sqlite") as ledger:
            there.handlers.update(demanding(there, ledger, tmp_path))
            for _ in range(3):  # it may be started again as often as one likes
                with pytest.raises(TermsRefusedError, match="floor-too-low") as error:
                    await there.run()
    assert error.value.exit_code == 4
    assert "20 of 20 nodes" in str(error.value)
    assert "secure-sum.dropout" in str(error.value)
    assert there.invited() == {}


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_run_goes_on_without_the_few_nodes_that_do_not_agree(
    backend: str, tmp_path: Path
) -> None:
    async with world(tmp_path, experiment(backend)) as there:
        with Ledger(tmp_path / "strict.sqlite") as ledger:
            strict = demanding(there, ledger, tmp_path)
            refusing = ("node-3", "node-7", "node-9")
            there.handlers.update({name: strict[name] for name in refusing})
            await there.run()
    assert all(set(refusing).isdisjoint(asked) for asked in there.invited().values())
    [event] = told(there)
    assert (event.nodes, event.known) == (3, 20)
    assert "floor-too-low (node-3, node-7, node-9" in event.text
    assert used(there) > 0


@pytest.mark.parametrize("backend", BACKENDS)
async def test_users_whose_node_refused_before_they_saw_an_arm_are_not_used_up(
    backend: str, tmp_path: Path
) -> None:
    async with world(tmp_path, experiment(backend)) as there:
        with Ledger(tmp_path / "strict.sqlite") as ledger:
            strict = demanding(there, ledger, tmp_path)
            for name in ALL:
                there.handlers[name] = OnlyStages(there.nodes[name], strict[name])
            with pytest.raises(UnavailableError, match="floor-too-low"):
                await there.run()
            asked = there.invited()
            assert len(asked) == 2  # once for each arm, and never again
            assert used(there) == 0
            with Journal.read(there.run_dir) as journal:
                result = read_result(journal)
            assert (result.invited, dict(result.losses)) == (0, {})
        there.handlers.update(there.nodes)
        await there.run()
    last = there.heard[-1]
    assert isinstance(last, events.RoundFinished)
    assert last.finished == "winner"
    assert last.invited == used(there)


@pytest.mark.parametrize(
    ("backend", "stage"), [("sealed", "open"), ("secagg-plus", "unmask")]
)
async def test_a_node_that_contributed_cannot_call_its_users_unused(
    backend: str, stage: str, tmp_path: Path
) -> None:
    def lie(body: bytes) -> bytes:
        reply = NodeAnswer.FromString(body)
        for answer in reply.answers:
            if answer.task_id.endswith(stage):
                refusal = Refusal(code="floor-too-low", terms=True, untouched=True)
                lied = TaskAnswer(task_id=answer.task_id, refusal=refusal)
                answer.CopyFrom(lied)
        return reply.SerializeToString()

    async with world(tmp_path, experiment(backend)) as there:
        there.handlers["node-5"] = Altered(there.nodes["node-5"], lie)
        await there.run()
    with Journal.read(there.run_dir) as journal:
        assert journal.returned() == []
        assert any("node-5" in c.result.nodes for c in journal.cohorts() if c.result)
    assert used(there) == sum(
        len(users) for asked in there.invited().values() for users in asked.values()
    )


async def test_a_round_on_terms_that_were_accepted_costs_no_further_message(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, experiment()) as there:
        await there.run()
    offers = [key for key in there.port.asked if "/offer/" in key]
    with Journal.read(there.run_dir) as journal:
        cohorts = len(journal.cohorts())
    assert len(offers) < cohorts


async def test_what_a_node_says_cannot_play_with_the_operators_terminal(
    tmp_path: Path,
) -> None:
    def shout(body: bytes) -> bytes:
        reply = NodeAnswer.FromString(body)
        for answer in reply.answers:
            if answer.task_id.startswith("offer"):
                refusal = Refusal(code="no", detail="\x1b[2Jgone\n", terms=True)
                lied = TaskAnswer(task_id=answer.task_id, refusal=refusal)
                answer.CopyFrom(lied)
        return reply.SerializeToString()

    async with world(tmp_path, experiment()) as there:
        there.handlers["node-5"] = Altered(there.nodes["node-5"], shout)
        await there.run()
    assert "no (node-5: ?[2Jgone?; change the experiment)" in told(there)[0].text
