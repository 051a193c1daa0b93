"""An independent look at a run: was anybody counted twice, is any sum wrong?

`wallflower verify` recomputes decisions from the journal's sums. The laboratory knows
more: its rewards are a function of arm and user, so with the mechanism ``non-private``
(no noise) every released sum can be recomputed from the users who are in it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.harness.rewards import GATE, MEANS, reward
from wallflower.strategy.store.entries import CohortRecord
from wallflower.strategy.store.journal import Journal


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found."""

    cohorts: int
    sums: int
    voids: int
    sums_checked: int
    sums_wrong: int
    users_asked: int
    users_twice: int
    users_summed: int
    nodes_by_round: tuple[int, ...]  # fewest nodes in a released sum of each round
    finished: str | None
    winner: str | None

    @property
    def clean(self) -> bool:
        """Return whether nothing is wrong and everything could be checked."""
        exact = self.sums_wrong == 0 and self.sums_checked == self.sums
        return exact and self.users_twice == 0


def audit(run_dir: Path, truth: Mapping[str, float]) -> Audit:
    """Recompute what a noiseless laboratory run must have summed."""
    with Journal.read(run_dir) as journal:
        cohorts = journal.cohorts()
        invited = {
            (cohort_id, node_id): users for cohort_id, node_id, users in journal.used()
        }
        rounds = journal.rounds()
        arms = journal.config.experiment.arms
    asked = Counter(
        (node_id, user) for (_, node_id), users in invited.items() for user in users
    )
    checked = wrong = sums = 0
    for cohort in cohorts:
        if cohort.result is None:
            continue
        sums += 1
        users = [
            user
            for node_id in cohort.result.nodes
            for user in invited[cohort.cohort_id, node_id]
        ]
        if len(users) != cohort.result.survivors:
            continue  # a node lost single users: the sum is fine but not ours to check
        checked += 1
        expected = expected_sum(arms[cohort.arm], users, truth)
        wrong += cohort.result.total != expected * cohort.result.precision
    last = rounds[-1] if rounds else None
    active = [view.arm for view in last.views if view.active] if last else []
    return Audit(
        cohorts=len(cohorts),
        sums=sums,
        voids=sum(cohort.state == "void" for cohort in cohorts),
        sums_checked=checked,
        sums_wrong=wrong,
        users_asked=sum(asked.values()),
        users_twice=sum(count > 1 for count in asked.values()),
        users_summed=sum(c.result.survivors for c in cohorts if c.result is not None),
        nodes_by_round=_nodes_by_round(cohorts),
        finished=last.finished if last else None,
        winner=arms[active[0]] if len(active) == 1 else None,
    )


def _nodes_by_round(cohorts: Sequence[CohortRecord]) -> tuple[int, ...]:
    fewest: dict[int, int] = {}
    for cohort in cohorts:
        if cohort.result is not None:
            nodes = len(cohort.result.nodes)
            number = cohort.round_number
            fewest[number] = min(nodes, fewest.get(number, nodes))
    return tuple(fewest[number] for number in sorted(fewest))


def expected_sum(arm: str, users: Sequence[str], truth: Mapping[str, float]) -> int:
    """Add up the rewards of these users as the nodes' source would give them."""
    os.environ.pop(GATE, None)
    os.environ[MEANS] = json.dumps(truth)

    async def collect() -> float:
        return sum([await reward(arm, user) for user in users])

    return int(asyncio.run(collect()))
