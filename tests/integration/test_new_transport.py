"""A transport is a handler that carries bytes: sums over it are the same sealed sums.

`socket_transport` is one that no module of the package has heard of.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.integration.socket_transport import connect_node, listening
from tests.integration.test_same_sums import sums
from tests.support.run_fixtures import ROOT, SMALL, environment, write
from tests.support.transport_contract import (
    Echo,
    StoppingTransportContract,
    gather,
    request,
)
from wallflower.protocol.messages.port import NodeHandler, NodeTransport
from wallflower.strategy.config import load_config
from wallflower.strategy.run.orchestrator import Orchestrator
from wallflower.strategy.run.pending_cohorts import make_session_factory
from wallflower.strategy.run.verify import verify
from wallflower.strategy.store.events import Event, RunStarted
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.transport.memory import MemoryTransport

SEEDED = SMALL + "[test]\nnoise-seed = 5\n"


class TestSocketPort(StoppingTransportContract):
    @pytest.fixture(autouse=True)
    def socket(self, tmp_path: Path) -> None:
        self.path = tmp_path / "nodes.sock"

    @asynccontextmanager
    async def open_transport(
        self, handlers: Mapping[str, NodeHandler]
    ) -> AsyncIterator[NodeTransport]:
        async with listening(self.path) as nodes:
            tasks = [
                asyncio.create_task(connect_node(self.path, name, handler))
                for name, handler in handlers.items()
            ]
            await nodes.become(len(handlers))
            try:
                yield MemoryTransport(nodes)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    async def test_what_was_asked_of_a_node_that_hangs_up_fails(self) -> None:
        held = Echo("held", held=True)
        async with listening(self.path) as nodes:
            node = asyncio.create_task(connect_node(self.path, "held", held))
            await nodes.become(1)
            port = MemoryTransport(nodes)
            asking = asyncio.create_task(gather(port, request("held")))
            await held.started.wait()
            node.cancel()
            assert [one.failure for one in await asking] == ["node-failed"]
            await nodes.become(0)
            assert await port.nodes() == []
            await asyncio.wait([node])

    async def test_a_name_that_is_taken_is_refused(self) -> None:
        first, second = Echo("first"), Echo("second")
        async with self.open_transport({"a": first}) as port:
            await connect_node(self.path, "a", second)  # is sent away
            (answer,) = await gather(port, request("a"))
        assert answer.body.startswith(b"first#1")


async def over_sockets(experiment: Path, folder: Path) -> list[Event]:
    """Run an experiment whose nodes live in another process; give its events."""
    config, socket, run_dir = load_config(experiment), folder / "s", folder / "run"
    heard: list[Event] = []

    async def listen(event: Event) -> None:
        heard.append(event)

    async with listening(socket) as nodes:
        words = (str(socket), str(experiment), str(folder / "ledger.sqlite"))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.socket_nodes", *words),
            cwd=ROOT,
            env=environment(),
        )
        try:
            await nodes.become(config.nodes.count)
            Journal.create(run_dir, "sockets", config, "local").close()
            with Journal.resume(run_dir) as journal:
                await Orchestrator(
                    config,
                    journal,
                    MemoryTransport(nodes),
                    make_session_factory("sockets", None),
                    listen,
                    expected_nodes=config.nodes.count,
                ).run()
        except BaseException:
            process.kill()
            await process.wait()
            raise
    assert await process.wait() == 0
    return heard


async def test_sealed_sums_over_it_are_those_of_the_local_engine(
    tmp_path: Path,
) -> None:
    experiment = write(tmp_path, SEEDED)
    heard = await over_sockets(experiment, tmp_path)
    assert [event.nodes for event in heard if isinstance(event, RunStarted)] == [12]
    with Journal.read(tmp_path / "run") as journal:
        assert [p for check in verify(journal) for p in check.problems] == []
        found = [
            (c.batch, c.arm, c.result.survivors, c.result.total)
            for c in journal.cohorts()
            if c.result is not None
        ]
    local = await sums("local", load_config(experiment), tmp_path / "local")
    assert found == local
    assert len(found) >= 3
