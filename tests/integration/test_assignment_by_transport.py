"""People are assigned to arms inside their node, whatever carries the requests.

The nodes are unequal: the small ones run dry in the first rounds. What is compared is
what the nodes' own ledgers hold, so a server that assigns otherwise than it writes down
would show.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.test_nodes_away_and_unwilling import (
    TRANSPORTS,
    carry_out,
    experiment,
)
from wallflower.clients.node.ledger_tables import read_spends
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.results.run_folder import ledger_path
from wallflower.strategy.config import PolicySettings
from wallflower.strategy.store.events import Event
from wallflower.strategy.store.journal import Journal

SIZES = (20, 20, 20, 20, 20, 20, 20, 20, 200, 200, 200, 200)


async def _ignore(event: Event, places: object) -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("policy", ["elimination", "dp-imed"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_node_gives_every_arm_of_a_draw_the_same_number_up_to_one(
    transport: str, policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(
        experiment(transport, "sealed"),
        policy=PolicySettings(policy, first_batch=60),
        nodes=NodeSettings(len(SIZES), SIZES),
        rewards=RewardSettings(means=(0.4, 0.4)),
    )
    run_dir = tmp_path / "run"
    carry_out(config, run_dir, monkeypatch, _ignore)
    with Journal.read(run_dir) as journal:
        run_id = journal.run_id
        draw_of = {c.cohort_id: (c.draw, c.arm) for c in journal.cohorts()}
    given: defaultdict[tuple[int, str], Counter[int]] = defaultdict(Counter)
    arms: defaultdict[int, set[int]] = defaultdict(set)
    for (cohort_id, node_id), users in read_spends(
        ledger_path(run_dir), run_id
    ).items():
        draw, arm = draw_of[cohort_id]
        arms[draw].add(arm)
        given[draw, node_id][arm] += len(users)
    assert any(len(together) > 1 for together in arms.values())
    for (draw, _node_id), counts in given.items():
        people = [counts[arm] for arm in arms[draw]]
        assert max(people) - min(people) <= 1
