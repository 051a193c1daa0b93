"""What runs in a world's processes: a deployment's own code, put together as there."""

from __future__ import annotations

import asyncio
import collections
import datetime
import functools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.world.population import config_of, enrolment, make, trust_of
from tests.support.world.schedule import GRPC, Schedule, node_names
from tests.support.world.shuffling import place_of
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.node import Node
from wallflower.clients.node.rollback_counter import RollbackCounter
from wallflower.clients.node.spends import OneTimeAnswer
from wallflower.clients.transport.grpc_client import Invitation, connect_node
from wallflower.engines.population import LedgeredTransport, hosted_ledger
from wallflower.protocol.errors import RefusalError, UnavailableError
from wallflower.protocol.identity.certificates import (
    KeyPair,
    make_authority,
    make_server_certificate,
)
from wallflower.protocol.identity.tokens import RunTokens
from wallflower.protocol.messages.port import NodeTransport
from wallflower.results.run_folder import check_hosted_ledger
from wallflower.strategy.run.orchestrator import Orchestrator
from wallflower.strategy.run.pending_cohorts import make_session_factory
from wallflower.strategy.store.events import Listen
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.spool import Spool
from wallflower.strategy.transport.grpc.admission import Admission, EnrolledKeys
from wallflower.strategy.transport.grpc.server import GrpcServer
from wallflower.strategy.transport.memory import MemoryTransport
from wallflower.strategy.transport.shuffler import shuffled

RUN = "world"
LEDGER = "ledger.sqlite"
_ADDRESS = "10.0.0.1:9000"
_SECRET = b"s" * 32
_DAY_S = 86_400
_PAUSE_S = 5.0  # between two summonses of a node that left the gRPC server


@functools.cache
def _certificate() -> KeyPair:
    now = datetime.datetime.now(datetime.UTC)
    authority = make_authority("world", now=now, days=30)
    return make_server_certificate(authority, ["10.0.0.1"], now=now, days=30)


@dataclass(slots=True)
class Hosted:
    """What the world knows of nodes: who cannot be reached where all live in one
    process, and how often each user was shown an arm.
    """

    away: set[str] = field(default_factory=set)
    shown: collections.Counter[str] = field(default_factory=collections.Counter)


async def serve(
    schedule: Schedule,
    home: Path,
    wrap: Callable[[NodeTransport], NodeTransport],
    listen: Listen,
    hosted: Hosted,
) -> None:
    """Run the server to its end: create or resume the run, open the port, orchestrate.

    `wrap` puts faults of messages between the orchestrator and its port.
    """
    config = config_of(schedule)
    if (home / "journal.sqlite").exists():
        opened = Journal.resume(home, config)
    else:
        opened = Journal.create(home, RUN, config, "deployment")
    inside = _grpc_server if schedule.transport == GRPC else _memory
    place = place_of(schedule, home.parent)
    with opened as journal:
        if schedule.transport != GRPC:
            check_hosted_ledger(journal)
        async with (
            inside(schedule, home, hosted) as (bare, spool),
            shuffled(wrap(bare), place) as port,
        ):
            orchestrator = Orchestrator(
                config,
                journal,
                port,
                make_session_factory(RUN, trust_of(schedule), place),
                listen,
                expected_nodes=schedule.nodes,
                spool=spool,
            )
            await orchestrator.run()


@asynccontextmanager
async def _grpc_server(
    schedule: Schedule, home: Path, hosted: Hosted
) -> AsyncIterator[tuple[NodeTransport, Spool | None]]:
    """As `strategy.transport.grpc.host` does it, without Flower."""
    key, _ = enrolment(schedule.nodes, schedule.users)
    admission = Admission(
        RunTokens(RUN, _SECRET),
        EnrolledKeys(key),
        malicious_server=schedule.server == "malicious",
    )
    grpc_server = GrpcServer(admission, _certificate())
    with Spool(home / "spool.sqlite") as spool:
        await grpc_server.open(_ADDRESS)
        run_over = "failed"
        try:
            yield grpc_server, spool
            run_over = "finished"
        finally:
            await grpc_server.close(run_over)


@asynccontextmanager
async def _memory(
    schedule: Schedule, home: Path, hosted: Hosted
) -> AsyncIterator[tuple[NodeTransport, Spool | None]]:
    """As `wallflower.engines.local` does it: all nodes in the server's process."""
    with hosted_ledger(home) as ledger:
        names = node_names(schedule.nodes)
        pins = _pins(schedule, home.parent)
        nodes = {
            name: make(schedule, name, ledger, hosted.shown, pins) for name in names
        }
        port = MemoryTransport(_Reachable(nodes, hosted.away))
        yield LedgeredTransport(port, ledger), None


class _Reachable(dict[str, Node]):
    """The nodes of a memory transport; some can be away for a while."""

    def __init__(self, nodes: dict[str, Node], away: set[str]) -> None:
        super().__init__(nodes)
        self._away = away

    def __iter__(self):  # type: ignore[no-untyped-def]
        return (name for name in super().__iter__() if name not in self._away)

    def get(self, name: str, default: object = None) -> Node | None:  # type: ignore[override]
        return None if name in self._away else super().get(name)


async def live(
    schedule: Schedule, name: str, home: Path, shown: collections.Counter[str]
) -> None:
    """Be a node: connect to the gRPC server whenever it is invited, until the run is
    over.
    """
    _, identities = enrolment(schedule.nodes, schedule.users)
    expiry = int(time.time()) + _DAY_S
    token = RunTokens(RUN, _SECRET).issue(name, expiry=expiry)
    pins = _pins(schedule, home.parent)
    invitation = Invitation(_ADDRESS, _certificate().certificate, RUN, token)
    while True:
        try:
            with Ledger(
                home / LEDGER, RollbackCounter(home / "ledger.counter")
            ) as ledger:
                await ledger.record_answer(OneTimeAnswer.connection(name, RUN))
                node = make(schedule, name, ledger, shown, pins)
                node.only_run = RUN
                if await connect_node(invitation, identities[name], node) == "finished":
                    return
        except (UnavailableError, RefusalError):
            pass
        await asyncio.sleep(_PAUSE_S)


def _pins(schedule: Schedule, world: Path) -> tuple[str, ...]:
    place = place_of(schedule, world)
    return () if place is None else (place.files.fingerprint,)
