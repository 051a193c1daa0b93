"""A hiccup and a refusal must not end an experiment, whatever carries the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

import pytest

from wallflower.clients.client_app import app as client_app
from wallflower.engines import local as local_engine
from wallflower.engines.in_process_grid import InProcessGrid, partitions
from wallflower.engines.local import run_local
from wallflower.engines.registry import EngineJob
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.private_bandit import SIMULATION, PrivateBandit
from wallflower.strategy.run.verify import verify
from wallflower.strategy.sections import (
    SecureSumSettings,
    TestSettings,
    TransportSettings,
)
from wallflower.strategy.store import events
from wallflower.strategy.store.events import Event
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.transport.grpc.server import GrpcServer
from wallflower.strategy.transport.memory import MemoryTransport

TRANSPORTS = {"memory": "memory", "server": "grpc", "flower": "flower"}
BACKENDS = ("sealed", "secagg-plus")
Node = TypeVar("Node", str, int)


def experiment(transport: str, backend: str) -> ExperimentConfig:
    """Arms that cannot be told apart in the first round at this certainty."""
    return ExperimentConfig(
        ExperimentSettings("test", ("a", "b"), failure_probability=Fraction(1, 10**6)),
        policy=PolicySettings(first_batch=24),
        secure_sum=SecureSumSettings(backend=backend),
        transport=TransportSettings(kind=TRANSPORTS[transport]),
        nodes=NodeSettings(12, 300),
        rewards=RewardSettings(means=(0.3, 0.7)),
        test=TestSettings(noise_seed=7),
    )


class Places:
    """Ways to take all nodes off whatever carries the requests, for a while."""

    def __init__(self) -> None:
        self.grpc_server: GrpcServer | None = None
        self.away = False
        self.looks_left = 0

    def cut(self) -> None:
        """Show one half of the nodes for some looks, then the other half, then all."""
        self.looks_left = 8

    def shown(self, nodes: Iterable[Node]) -> list[Node]:
        here = [] if self.away else sorted(nodes)
        if not self.looks_left:
            return here
        self.looks_left -= 1
        half = len(here) // 2
        return here[:half] if self.looks_left >= 4 else here[half:]

    async def leave(self) -> None:
        """Take all nodes away, until `away` is set back."""
        self.away = True
        if self.grpc_server is None:
            return
        while self.grpc_server._streams:  # they come back by themselves
            for stream in list(self.grpc_server._streams.values()):
                stream.end("connection-lost")
            await asyncio.sleep(0)


def carry_out(
    config: ExperimentConfig,
    run_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    react: Callable[[Event, Places], Awaitable[None]],
    run_id: str = "test-run",
) -> None:
    """Run the experiment through real nodes on the transport that it names."""
    places = Places()

    class KnownServer(GrpcServer):
        async def open(self, address: str, *, hosted: int = 0) -> int:
            places.grpc_server = self
            return await super().open(address, hosted=hosted)

        async def nodes(self) -> list[str]:
            return places.shown(await super().nodes())

    class LeavingTransport(MemoryTransport):
        async def nodes(self) -> list[str]:
            return places.shown(await super().nodes())

    class LeavingGrid(InProcessGrid):
        def get_node_ids(self) -> Iterable[int]:
            return places.shown(super().get_node_ids())

    async def listen(event: Event) -> None:
        await react(event, places)

    if config.transport.kind == "flower":
        output = {"config": config.canonical(), "run-dir": str(run_dir)}
        with LeavingGrid(client_app, partitions(config.nodes.count), output) as grid:
            PrivateBandit(config, run_dir, engine=SIMULATION, listen=listen).start(grid)
        return
    monkeypatch.setattr(local_engine, "GrpcServer", KnownServer)
    monkeypatch.setattr(local_engine, "MemoryTransport", LeavingTransport)
    if not run_dir.exists():
        Journal.create(run_dir, run_id, config, "local").close()
    asyncio.run(run_local(EngineJob(config, run_dir, run_id, listen)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_nodes_that_leave_between_rounds_are_waited_for(
    transport: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Event] = []

    async def react(event: Event, places: Places) -> None:
        heard.append(event)
        if isinstance(event, events.RoundFinished) and event.number == 1:
            await places.leave()
        elif isinstance(event, events.WaitingForNodes):
            places.away = False

    carry_out(experiment(transport, backend), tmp_path / "run", monkeypatch, react)
    with Journal.read(tmp_path / "run") as journal:
        last = journal.last_round()
        assert [p for check in verify(journal) for p in check.problems] == []
    assert last is not None
    assert last.finished == "winner"
    waits = [event for event in heard if isinstance(event, events.WaitingForNodes)]
    assert (waits[0].present, waits[0].known) == (0, 12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_terms_that_nobody_agrees_to_use_up_nobody_however_often_it_is_tried(
    transport: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('smallest-floor-fraction = "9/10"\nsmallest-cohort = 2\n')
    config = experiment(transport, backend)
    config = replace(config, nodes=replace(config.nodes, policy=policy))

    async def ignore(event: Event, places: Places) -> None:
        return

    for _ in range(2):
        with pytest.raises(UnavailableError, match="floor-too-low"):
            carry_out(config, tmp_path / "run", monkeypatch, ignore)
    with Journal.read(tmp_path / "run") as journal:
        assert list(journal.invitations()) == []
        assert journal.last_round() is None


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_partition_under_which_no_half_may_go_on_alone_is_waited_out(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('smallest-floor-fraction = "1/2"\n')
    config = experiment(transport, "sealed")
    config = replace(config, nodes=NodeSettings(4, 900, policy=policy))
    heard: list[Event] = []

    async def react(event: Event, places: Places) -> None:
        heard.append(event)
        if isinstance(event, events.RoundFinished) and event.number == 1:
            places.cut()

    carry_out(config, tmp_path / "run", monkeypatch, react)
    last = heard[-1]
    assert isinstance(last, events.RoundFinished)
    assert last.finished == "winner"
    waits = [event for event in heard if isinstance(event, events.WaitingForNodes)]
    assert (waits[0].present, waits[0].known) == (2, 4)
    assert "floor-too-low" in waits[0].why
    assert not any(isinstance(event, events.TermsRefused) for event in heard)
