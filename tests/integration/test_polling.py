"""A run whose nodes only poll: the server on loopback, nodes as real processes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from tests.support.grpc_fixtures import FAST, House, connect_nodes, faster
from tests.support.orchestration import config
from wallflower.clients.host.home import NodeHome
from wallflower.clients.host.invitations import kept, save
from wallflower.clients.node.ledger import Ledger
from wallflower.engines.population import hosted_nodes
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.protocol.messages.port import NodeHandler
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.run.orchestrator import Orchestrator
from wallflower.strategy.run.pending_cohorts import make_session_factory
from wallflower.strategy.run.verify import verify
from wallflower.strategy.sections import SecureSumSettings
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.transport.grpc.admission import FirstUseKeys
from wallflower.strategy.transport.grpc.server import GrpcServer

STAYING, POLLING, USERS = 4, 4, 10
HOME = """
[node]
name = "{name}"
users = {users}
connection = "cron"
[policy]
smallest-cohort = 2
largest-participations = 1
backends = ["sealed"]
[rewards]
source = "synthetic"
means = [0.1, 0.9]
"""


def experiment() -> ExperimentConfig:
    return config(
        experiment=ExperimentSettings("test", ("a", "b"), horizon=60),
        policy=PolicySettings(first_batch=30),  # more than live on nodes that stay
        nodes=NodeSettings(STAYING, USERS),
        rewards=RewardSettings(means=(0.1, 0.9)),
        secure_sum=SecureSumSettings(backend="sealed"),
    )


def homes(tmp_path: Path, house: House, port: int) -> Iterator[Path]:
    """Homes of the polling nodes, each with its invitation to the run."""
    for number in range(POLLING):
        name = f"phone-{number}"
        folder = tmp_path / name
        folder.mkdir()
        (folder / "node.toml").write_text(HOME.format(name=name, users=USERS))
        assert NodeHome(folder).name == name
        save(folder, house.invitation(port, name))
        yield folder


@asynccontextmanager
async def processes(
    *arguments: list[str],
) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Real processes of the command line; killed by their own handle at the end."""
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "wallflower",
            *given,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
        )
        for given in arguments
    ]
    try:
        yield started
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def test_a_run_is_carried_by_processes_that_come_and_go(tmp_path: Path) -> None:
    house, asked_for = House(run_id="polled"), experiment()
    with ExitStack() as stack:
        ledger = stack.enter_context(Ledger(tmp_path / "ledger.sqlite"))
        journal = stack.enter_context(
            Journal.create(tmp_path / "run", house.run_id, asked_for, "deployment")
        )
        grpc_server = GrpcServer(
            house.admission(FirstUseKeys()),
            house.server,
            faster(FAST, poll_s=1.0, farewell_s=60.0),
        )
        port = await grpc_server.open("127.0.0.1:0")
        staying: dict[str, NodeHandler] = dict(hosted_nodes(asked_for, ledger, None))
        folders = list(homes(tmp_path, house, port))
        polls = [["poll", str(folder), "--stay"] for folder in folders]
        async with connect_nodes(house, port, staying), processes(*polls) as started:
            wanted = [*staying, *(folder.name for folder in folders)]
            assert not await grpc_server.wait_for(wanted, timeout_s=120)
            await Orchestrator(
                asked_for,
                journal,
                grpc_server,
                make_session_factory(house.run_id, None),
                expected_nodes=len(wanted),
            ).run()
            await grpc_server.close("finished")
            output = [(await process.communicate())[0] for process in started]
        assert all(b"polled: finished" in text for text in output)
        assert not any(kept(folder) for folder in folders)  # the run is over for them
        cohorts = journal.cohorts()
        invited = {node for _, node, _ in journal.invitations()}
        (dealing,) = journal.dealings()
        assert not [check for check in verify(journal) if check.problems]
    assert all(cohort.result is not None for cohort in cohorts)
    assert {folder.name for folder in folders} & invited
    assert set(dealing.members) <= set(staying)
    # A node keeps no stream: a question, an answer, and coming by now and then.
    assert grpc_server.stats.connections == STAYING
    assert grpc_server.stats.polls >= 3 * POLLING
