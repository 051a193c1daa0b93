"""A node that vanishes in one arm is in no sum of its round, on every transport."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.test_nodes_away_and_unwilling import (
    TRANSPORTS,
    carry_out,
    experiment,
)
from wallflower.clients.node.node import Node
from wallflower.protocol.files.sections import RewardSettings
from wallflower.protocol.wire.node_pb2 import NodeRequest
from wallflower.strategy.run.verify import verify
from wallflower.strategy.store.events import Event
from wallflower.strategy.store.journal import Journal


async def _ignore(event: Event, places: object) -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_node_that_fails_in_one_arm_is_in_no_sum_of_its_round(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, failed = Node.handle, set[str]()

    async def failing(self: Node, body: bytes) -> bytes:
        """Fail in arm 0 on whichever node is asked about it first."""
        tasks = NodeRequest.FromString(body).tasks
        stages = [t.stage for t in tasks if t.WhichOneof("kind") == "stage"]
        contributes = any(one.users and one.spec.arm == 0 for one in stages)
        if contributes and failed <= {self.node_id}:
            failed.add(self.node_id)
            raise OSError
        return await handle(self, body)

    monkeypatch.setattr(Node, "handle", failing)
    config = replace(
        experiment(transport, "sealed"), rewards=RewardSettings(means=(0.1, 0.9))
    )
    run_dir = tmp_path / "run"
    carry_out(config, run_dir, monkeypatch, _ignore)
    with Journal.read(run_dir) as journal:
        cohorts = [cohort for cohort in journal.cohorts() if cohort.round_number == 1]
        assert all(check.holds for check in verify(journal))
    sums = [set(cohort.result.nodes) for cohort in cohorts if cohort.result]
    assert len(sums) == 2
    assert sums[0] == sums[1]
    assert len(sums[0]) == config.nodes.count - 1
