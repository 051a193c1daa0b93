"""A gRPC server on loopback with real TLS, identities and nodes, for tests."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from wallflower.clients.transport.grpc_client import (
    ConnectionSettings,
    Invitation,
    connect_node,
)
from wallflower.protocol.identity.certificates import (
    KeyPair,
    make_authority,
    make_server_certificate,
)
from wallflower.protocol.identity.enrolment import EnrolmentKey, NodeIdentity
from wallflower.protocol.identity.tokens import RunTokens
from wallflower.protocol.messages.port import NodeHandler
from wallflower.strategy.transport.grpc.admission import (
    Admission,
    EnrolledKeys,
    KeyRule,
    RevokedNodes,
)
from wallflower.strategy.transport.grpc.server import GrpcServer
from wallflower.strategy.transport.grpc.settings import GrpcServerSettings

NOW = datetime.datetime.now(datetime.UTC)
AUTHORITY = make_authority("test authority", now=NOW)
SERVER = make_server_certificate(AUTHORITY, ["127.0.0.1", "localhost"], now=NOW)
# Quick to reconnect, so that a cut costs a test little.
QUICK = ConnectionSettings(first_wait_s=0.01, longest_wait_s=0.05, patience_s=60)
FAST = GrpcServerSettings(
    most_streams=500, heartbeat_s=1.0, return_s=20.0, refusals_burst=10_000
)


@dataclass
class House:
    """One run's keys: everything that a gRPC server and its nodes must share."""

    run_id: str = "run-1"
    secret: bytes = b"s" * 32
    enrolment: EnrolmentKey = field(default_factory=EnrolmentKey.generate)
    server: KeyPair = SERVER
    authority: KeyPair = AUTHORITY
    revoked: RevokedNodes = field(default_factory=RevokedNodes)

    @property
    def tokens(self) -> RunTokens:
        return RunTokens(self.run_id, self.secret)

    def admission(self, keys: KeyRule | None = None) -> Admission:
        rule = EnrolledKeys(self.enrolment.public_key) if keys is None else keys
        return Admission(self.tokens, rule, self.revoked)

    def identity(self, node_id: str, *, not_after: int | None = None) -> NodeIdentity:
        bare = NodeIdentity.generate(node_id)
        until = int(time.time()) + 3600 if not_after is None else not_after
        return bare.enrolled(
            self.enrolment.issue(node_id, bare.public_key, not_after=until)
        )

    def invitation(self, port: int, node_id: str) -> Invitation:
        token = self.tokens.issue(node_id, expiry=int(time.time()) + 3600)
        return Invitation(
            f"127.0.0.1:{port}", self.authority.certificate, self.run_id, token
        )


@asynccontextmanager
async def open_grpc_server(
    house: House,
    settings: GrpcServerSettings = FAST,
    keys: KeyRule | None = None,
    expected: tuple[str, ...] = (),
    run_over: str | None = "finished",
) -> AsyncIterator[tuple[GrpcServer, int]]:
    grpc_server = GrpcServer(house.admission(keys), house.server, settings, expected)
    port = await grpc_server.open("127.0.0.1:0")
    try:
        yield grpc_server, port
    finally:
        await grpc_server.close(run_over)


@asynccontextmanager
async def connect_nodes(
    house: House,
    port: int,
    handlers: Mapping[str, NodeHandler],
    settings: ConnectionSettings = QUICK,
) -> AsyncIterator[dict[str, asyncio.Task[str]]]:
    """Connect nodes; at the end they must have stopped or are cancelled."""
    tasks = {
        node_id: asyncio.create_task(
            connect_node(
                house.invitation(port, node_id),
                house.identity(node_id),
                handler,
                settings=settings,
            )
        )
        for node_id, handler in handlers.items()
    }
    try:
        yield tasks
    finally:
        for task in tasks.values():
            task.cancel()
        if tasks:
            await asyncio.wait(tasks.values())


@asynccontextmanager
async def open_office(
    handlers: Mapping[str, NodeHandler],
    settings: GrpcServerSettings = FAST,
    house: House | None = None,
    node_settings: ConnectionSettings = QUICK,
) -> AsyncIterator[GrpcServer]:
    """A gRPC server with all nodes connected; nodes hear "run over" at the end."""
    house = house or House()
    async with open_grpc_server(house, settings) as (grpc_server, port):
        async with connect_nodes(house, port, handlers, node_settings) as tasks:
            missing = await grpc_server.wait_for(handlers, timeout_s=60)
            assert not missing
            yield grpc_server
            await grpc_server.close("finished")
            if tasks:
                done, _ = await asyncio.wait(tasks.values(), timeout=30)
                assert {task.result() for task in done} <= {"finished"}
                assert len(done) == len(tasks)


def faster(settings: GrpcServerSettings, **changes: float) -> GrpcServerSettings:
    return replace(settings, **changes)  # type: ignore[arg-type]
