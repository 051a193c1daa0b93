"""Refusals by a node's policy: they cost nobody's participation, and say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from tests.support.orchestration import Altered, SwitchedPort, World, config, world
from wallflower.clients.node.ledger import Ledger
from wallflower.engines.population import hosted_nodes
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
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
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.run.meeting import TermsRefusedError
from wallflower.strategy.run.recruiting import NodesMissingError
from wallflower.strategy.run.verify import verify
from wallflower.strategy.sections import (
    SecureSumSettings,
    TestSettings,
    TransportSettings,
)
from wallflower.strategy.store import events
from wallflower.strategy.store.journal import Journal

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
    nodes = replace(there.config.nodes, policy=policy)
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
                refusal = Refusal(code="\x1b[2Jgone\n", terms=True)
                lied = TaskAnswer(task_id=answer.task_id, refusal=refusal)
                answer.CopyFrom(lied)
        return reply.SerializeToString()

    async with world(tmp_path, experiment()) as there:
        there.handlers["node-5"] = Altered(there.nodes["node-5"], shout)
        await there.run()
    assert "?[2Jgone? (node-5; change the experiment)" in told(there)[0].text


async def test_a_node_that_does_not_allow_one_arm_takes_part_in_none(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, experiment()) as there:
        with Ledger(tmp_path / "strict.sqlite") as ledger:
            policy = tmp_path / "policy.toml"
            policy.write_text('arms = ["b"]\nsmallest-cohort = 2\n')
            settings = replace(there.config.nodes, policy=policy)
            strict = hosted_nodes(replace(there.config, nodes=settings), ledger, None)
            there.handlers["node-3"] = dict(strict)["node-3"]
            assert there.config.experiment.arms == ("a", "b")
            await there.run()
    assert all("node-3" not in asked for asked in there.invited().values())
    [event] = told(there)
    assert "arm-not-allowed (node-3; " in event.text
    assert "change experiment.arms" in event.text


class Partition(SwitchedPort):
    """Two of four nodes are cut off after the first round, then the two others.

    Two nodes alone carry too little noise for the nodes' policies; four carry enough.
    Each cut lasts until the recruiter has looked `each` times.
    """

    looks = 0
    each = 4
    cuts: Sequence[set[str]] = ()

    async def nodes(self) -> Sequence[str]:
        if self.away:
            self.away = self.cuts[min(self.looks // self.each, len(self.cuts) - 1)]
            self.looks += 1
        return await super().nodes()

    def begin(self, event: events.Event) -> None:
        if isinstance(event, events.RoundFinished) and event.number == 1:
            self.away = self.cuts[0]


def cut_off(there: World, *cuts: set[str], each: int = 4) -> None:
    there.port = partition = Partition(there.port.inner)
    partition.cuts, partition.each = cuts, each
    there.react = partition.begin


def four_nodes(
    tmp_path: Path, backend: str, return_timeout_s: float
) -> ExperimentConfig:
    policy = tmp_path / "ordinary.toml"
    policy.write_text('smallest-floor-fraction = "1/2"\n')
    return config(
        experiment=ExperimentSettings(
            "test", ("a", "b"), failure_probability=Fraction(1, 10**6)
        ),
        nodes=NodeSettings(4, 300, policy=policy),
        policy=PolicySettings(first_batch=60, ratio=Fraction(3, 2)),
        secure_sum=SecureSumSettings(backend=backend),
        transport=TransportSettings(attempts=3, return_timeout_s=return_timeout_s),
        rewards=RewardSettings(means=(0.3, 0.7)),
        test=TestSettings(noise_seed=7),
    )


@pytest.mark.parametrize("backend", BACKENDS)
async def test_terms_that_fail_only_because_of_who_is_away_mean_waiting(
    backend: str, tmp_path: Path
) -> None:
    async with world(tmp_path, four_nodes(tmp_path, backend, 60)) as there:
        cut_off(there, {"node-0", "node-1"}, {"node-2", "node-3"}, set())
        await there.run()
    last = there.heard[-1]
    assert isinstance(last, events.RoundFinished)
    assert last.finished == "winner"
    [wait] = [e for e in there.heard if isinstance(e, events.WaitingForNodes)]
    assert (wait.present, wait.known) == (2, 4)
    assert wait.why == "2 agree only when more nodes are there: floor-too-low"
    assert told(there) == []
    assert used(there) > 0


async def test_a_refusal_does_not_outlive_the_nodes_that_it_was_for(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, four_nodes(tmp_path, "sealed", 60)) as there:
        cut_off(there, {"node-0", "node-1"}, {"node-2", "node-3"}, set(), each=1)
        await there.run()
    last = there.heard[-1]
    assert isinstance(last, events.RoundFinished)
    assert last.finished == "winner"
    assert told(there) == []


async def test_nodes_that_agree_only_with_others_are_waited_for_until_the_time_is_up(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, four_nodes(tmp_path, "sealed", 0.3)) as there:
        cut_off(there, {"node-0", "node-1"})
        with pytest.raises(NodesMissingError, match=r"2 of 4 .*floor-too-low") as error:
            await there.run()
        assert error.value.exit_code == 4
        there.port.away = set()
        await there.run()
    last = there.heard[-1]
    assert isinstance(last, events.RoundFinished)
    assert last.finished == "winner"


async def test_terms_that_nobody_agrees_to_are_not_waited_on_while_nodes_are_away(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, four_nodes(tmp_path, "sealed", 60)) as there:
        with Ledger(tmp_path / "strict.sqlite") as ledger:

            def react(event: events.Event) -> None:
                if isinstance(event, events.RoundFinished) and event.number == 1:
                    there.handlers.update(demanding(there, ledger, tmp_path))
                    there.port.away.add("node-0")

            there.react = react
            with pytest.raises(TermsRefusedError, match=r"3 of 4 .*floor-too-low"):
                await there.run()
