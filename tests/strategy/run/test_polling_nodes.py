"""Nodes that only poll give their one message and hold no share of any key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.orchestration import World, config, world
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.secure_sum.backends import (
    SEALED,
    SECAGG_PLUS,
    SHUFFLE,
    asks_once,
)
from wallflower.protocol.secure_sum.sealed.committee import dealing_spec
from wallflower.protocol.wire.node_pb2 import (
    CohortStage,
    NodeAnswer,
    NodeRequest,
    Task,
)
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.sections import SecureSumSettings
from wallflower.strategy.store.journal import Journal


def experiment(backend: str) -> ExperimentConfig:
    return config(secure_sum=SecureSumSettings(backend=backend))


def let_poll(there: World, count: int) -> set[str]:
    """Let the last nodes be polling nodes."""
    polling = set(list(there.nodes)[-count:])
    for name in polling:
        there.nodes[name].polls = True
    return polling


async def test_polling_nodes_are_in_the_sums_and_not_on_the_committee(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, experiment(SEALED)) as there:
        polling = let_poll(there, 12)
        await there.run()
        with Journal.read(there.run_dir) as journal:
            dealings = journal.dealings()
            sums = [cohort.result for cohort in journal.cohorts() if cohort.result]
        assert dealings
        for dealing in dealings:
            assert dealing.nodes == 8
            assert not polling & {*dealing.members, *dealing.dealers}
        invited = {node for nodes in there.invited().values() for node in nodes}
        assert polling <= invited
        assert all(result.survivors >= 60 for result in sums)


async def test_where_a_cohort_needs_several_answers_polling_nodes_are_left_out(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, experiment(SECAGG_PLUS)) as there:
        polling = let_poll(there, 5)
        await there.run()
        invited = {node for nodes in there.invited().values() for node in nodes}
        assert invited
        assert not polling & invited


async def test_a_run_on_which_nobody_stays_says_so_before_anybody_is_asked(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, experiment(SEALED)) as there:
        let_poll(there, 20)
        with pytest.raises(UnavailableError, match="0 nodes that stay"):
            await there.run()
        assert not there.invited()


async def test_a_polling_node_takes_no_part_in_a_dealing_whatever_the_server_says(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, experiment(SEALED)) as there:
        (name,) = let_poll(there, 1)
        spec = dealing_spec(
            "test-run",
            "dealing-1",
            there.config.secure_sum.threat,
            dict.fromkeys("ab", 1),
        )
        task = Task(task_id="t", stage=CohortStage(spec=spec, message=b"x"))
        body = NodeRequest(run_id="test-run", tasks=[task]).SerializeToString()
        (answer,) = NodeAnswer.FromString(await there.nodes[name].handle(body)).answers
        assert answer.refusal.code == "needs-a-stream"


def test_only_sums_whose_helpers_are_others_ask_a_node_once() -> None:
    asking_once = {
        backend for backend in (SEALED, SECAGG_PLUS, SHUFFLE) if asks_once(backend)
    }
    assert asking_once == {SEALED, SHUFFLE}
