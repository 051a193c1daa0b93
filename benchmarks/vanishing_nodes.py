"""What it costs to keep the sums of a round to the same nodes.

    python -m benchmarks.vanishing_nodes [--runs 2]

Nodes vanish when they are asked to contribute: each node in each cohort by itself, or
each node in all cohorts of a round. Real nodes and sealed sums in one process. Every
row compares runs that leave a vanished node out of all sums of its round with runs in
which every sum keeps whom it has.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from wallflower.clients.node.ledger import Ledger
from wallflower.engines.population import hosted_nodes
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.protocol.messages.port import NodeHandler, NodeId, Request
from wallflower.protocol.wire.node_pb2 import NodeRequest
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.run.common_nodes import CommonNodes, find_unlike_rounds
from wallflower.strategy.run.orchestrator import Orchestrator
from wallflower.strategy.run.pending_cohorts import make_session_factory
from wallflower.strategy.store.entries import VOID
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.transport.memory import MemoryTransport
from wallflower.strategy.transport.pending_requests import Inbox

NODES, USERS = 60, 120
RATES = (0.0, 0.01, 0.02, 0.05)
EACH_COHORT, WHOLE_ROUND = "each cohort", "whole round"
RUN = "vanishing"


@dataclass(frozen=True, slots=True)
class Vanishing:
    """How often nodes vanish, and whether in a cohort or in a whole round."""

    rate: float
    where: str
    seed: int

    def is_gone(self, node: NodeId, cohort_id: str, batch: int) -> bool:
        """Draw it, the same for every question about the same thing."""
        # An id ends in a token of its own; arm, batch and attempt come before it.
        cohort, _, _ = cohort_id.rpartition("-")
        place = cohort if self.where == EACH_COHORT else f"round {batch}"
        digest = hashlib.sha256(f"{self.seed}/{node}/{place}".encode()).digest()
        return int.from_bytes(digest[:8]) < self.rate * 2**64


class VanishingPort(MemoryTransport):
    """Nodes in memory that are gone now and then when they are to contribute."""

    def __init__(self, handlers: Mapping[NodeId, NodeHandler], rule: Vanishing) -> None:
        super().__init__(handlers)
        self._rule = rule

    def _post(self, request: Request, inbox: Inbox, deadline: float) -> None:
        for task in NodeRequest.FromString(request.body).tasks:
            spec = task.stage.spec
            if task.stage.users and self._rule.is_gone(
                request.node_id, spec.cohort_id, spec.batch
            ):
                inbox.refuse(request, "node-gone")
                return
        super()._post(request, inbox, deadline)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run came to."""

    in_sums: float
    rounds: int
    unlike: int
    void: int
    seconds: float


@contextmanager
def matching(wanted: bool) -> Iterator[None]:
    """Keep rounds to the same nodes, or let every sum keep whom it has."""
    if wanted:
        yield
        return
    with mock.patch.object(CommonNodes, "settle_for", return_value=None):
        yield


async def run_once(folder: Path, arms: int, rule: Vanishing) -> Cost:
    """Run one experiment of equal arms until its people are used up."""
    names = tuple(f"arm-{number}" for number in range(arms))
    config = ExperimentConfig(
        ExperimentSettings("vanishing", names),
        policy=PolicySettings(first_batch=2 * NODES),
        nodes=NodeSettings(NODES, USERS),
        rewards=RewardSettings(means=(0.5,) * arms),
    )
    run_dir = folder / "run"
    Journal.create(run_dir, RUN, config, "local").close()
    begun = time.perf_counter()
    with Ledger(folder / "ledger.sqlite") as ledger, Journal.resume(run_dir) as journal:
        port = VanishingPort(dict(hosted_nodes(config, ledger, None)), rule)
        orchestrator = Orchestrator(
            config, journal, port, make_session_factory(RUN, None), expected_nodes=NODES
        )
        # A round without any sum ends the run; what was summed before counts.
        with suppress(UnavailableError):
            await orchestrator.run()
        cohorts = journal.cohorts()
        asked = sum(len(users) for _, _, users in journal.used())
        summed = sum(one.result.survivors for one in cohorts if one.result)
        return Cost(
            in_sums=summed / asked,
            rounds=len({one.round_number for one in cohorts if one.result}),
            unlike=len(find_unlike_rounds(journal)),
            void=sum(one.state == VOID for one in cohorts),
            seconds=time.perf_counter() - begun,
        )


def describe(costs: list[Cost]) -> str:
    """Return the cells of several runs of one kind."""
    count = len(costs)
    return (
        f"{100 * sum(one.in_sums for one in costs) / count:.1f} % | "
        f"{sum(one.unlike for one in costs)} of {sum(one.rounds for one in costs)} | "
        f"{sum(one.void for one in costs)} | "
        f"{sum(one.seconds for one in costs) / count:.1f}"
    )


def main() -> None:
    """Print one row for every number of arms, kind and rate of vanishing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2)
    runs = parser.parse_args().runs
    print("arms | vanish in | rate | same nodes | people in sums | unlike | void | s")
    for arms in (3, 10):
        for where in (EACH_COHORT, WHOLE_ROUND):
            for rate in RATES:
                for wanted in (True, False):
                    costs = []
                    for seed in range(runs):
                        rule = Vanishing(rate, where, seed)
                        with tempfile.TemporaryDirectory() as name, matching(wanted):
                            folder = Path(name)
                            costs.append(asyncio.run(run_once(folder, arms, rule)))
                    kept = "yes" if wanted else "no"
                    row = f"{arms} | {where} | {100 * rate:g} % | {kept}"
                    print(f"{row} | {describe(costs)}", flush=True)


if __name__ == "__main__":
    main()
