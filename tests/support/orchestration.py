"""A small world for tests of the orchestrator: real nodes, a port with switches."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.node import Node
from wallflower.engines.population import Enrolment, hosted_nodes
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.protocol.messages.port import (
    Answer,
    NodeHandler,
    NodeId,
    NodeTransport,
    Request,
)
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.run.orchestrator import Orchestrator
from wallflower.strategy.run.pending_cohorts import make_session_factory
from wallflower.strategy.sections import TransportSettings
from wallflower.strategy.store.events import Event
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.transport.memory import MemoryTransport

RUN = "test-run"


def config(**sections: object) -> ExperimentConfig:
    given: dict[str, object] = {
        "experiment": ExperimentSettings("test", ("a", "b")),
        "policy": PolicySettings(first_batch=60),
        "nodes": NodeSettings(20, 40),
        "rewards": RewardSettings(means=(0.1, 0.9)),
        "transport": TransportSettings(attempts=3),
    }
    return ExperimentConfig(**(given | sections))  # type: ignore[arg-type]


@dataclass
class SwitchedPort:
    """A memory transport on which nodes can be gone: asking them fails at once.

    Those in `away` are not listed either, as at a gRPC server whose stream broke.
    """

    inner: NodeTransport
    gone: set[NodeId] = field(default_factory=set)
    away: set[NodeId] = field(default_factory=set)
    asked: Counter[str] = field(default_factory=Counter)
    before: Callable[[str], None] = lambda request_id: None  # each request is asked

    async def nodes(self) -> Sequence[NodeId]:
        return [node for node in await self.inner.nodes() if node not in self.away]

    async def ask(
        self, requests: Sequence[Request], *, timeout_s: float
    ) -> AsyncGenerator[Answer, None]:
        for request in requests:
            self.asked[request.request_id] += 1
            self.before(request.request_id)
            if request.node_id in self.gone | self.away:
                yield Answer(request.node_id, request.request_id, failure="node-gone")
        unreachable = self.gone | self.away
        here = [request for request in requests if request.node_id not in unreachable]
        async with aclosing(self.inner.ask(here, timeout_s=timeout_s)) as answers:
            async for answer in answers:
                yield answer


@dataclass
class World:
    """Nodes, port, journal and what was heard."""

    config: ExperimentConfig
    run_dir: Path
    nodes: dict[str, Node]
    handlers: dict[str, NodeHandler]
    port: SwitchedPort
    heard: list[Event] = field(default_factory=list)
    react: Callable[[Event], None] = lambda event: None

    async def listen(self, event: Event) -> None:
        self.heard.append(event)
        self.react(event)

    async def run(self) -> None:
        with Journal.resume(self.run_dir) as journal:
            await Orchestrator(
                self.config,
                journal,
                self.port,
                make_session_factory(RUN, None),
                self.listen,
                expected_nodes=len(self.handlers),
            ).run()

    def invited(self) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
        found: dict[str, dict[str, tuple[str, ...]]] = {}
        with Journal.read(self.run_dir) as journal:
            for cohort, node, users in journal.invitations():
                found.setdefault(cohort, {})[node] = users
        return found


@asynccontextmanager
async def world(
    tmp_path: Path,
    experiment: ExperimentConfig | None = None,
    enrolment: Enrolment | None = None,
) -> AsyncIterator[World]:
    experiment = experiment or config()
    Journal.create(tmp_path / "run", RUN, experiment, "deployment").close()
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        nodes = dict(hosted_nodes(experiment, ledger, enrolment))
        handlers: dict[str, NodeHandler] = dict(nodes)
        port = SwitchedPort(MemoryTransport(handlers))
        yield World(experiment, tmp_path / "run", nodes, handlers, port)


class Hung:
    """Never answers; knows whether it was stopped."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.stopped = 0

    async def handle(self, body: bytes) -> bytes:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return b""


@dataclass
class Altered:
    """A node whose answers are changed on the way out."""

    node: NodeHandler
    change: Callable[[bytes], bytes]
    before_s: float = 0.0

    async def handle(self, body: bytes) -> bytes:
        await asyncio.sleep(self.before_s)
        return self.change(await self.node.handle(body))
