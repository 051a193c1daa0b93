from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.support.grpc_fixtures import FAST as SETTINGS
from tests.support.grpc_fixtures import (
    QUICK,
    House,
    connect_nodes,
    faster,
    open_grpc_server,
)
from tests.support.intruder import (
    intruder_at,
)
from tests.support.transport_contract import Echo, gather, request
from wallflower.clients.transport.grpc_client import connect_node
from wallflower.protocol.errors import AuthenticationError, ConfigError
from wallflower.protocol.files.watched import RevokedSerials
from wallflower.strategy.transport.grpc.admission import (
    Admission,
    EnrolledKeys,
    RevokedNodes,
)
from wallflower.strategy.transport.grpc.server import GrpcServer


async def test_a_line_added_to_the_revocation_file_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "revoked.txt"
    path.write_text("# nobody yet\n")
    house = House(revoked=RevokedNodes(path))
    async with open_grpc_server(house, faster(SETTINGS, heartbeat_s=0.2)) as (
        grpc_server,
        port,
    ):
        async with connect_nodes(house, port, {"b": Echo("b")}) as tasks:
            await grpc_server.wait_for(["b"], timeout_s=60)
            path.write_text("b  # lost laptop\n")
            with pytest.raises(AuthenticationError, match="revoked"):
                await tasks["b"]


async def test_a_serial_added_to_the_revocation_file_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "revoked.txt"
    house = House()
    keys = EnrolledKeys(house.enrolment.public_key, RevokedSerials(path))
    settings = faster(SETTINGS, heartbeat_s=0.2)
    identity = house.identity("b")
    assert identity.certificate is not None
    async with open_grpc_server(house, settings, keys) as (grpc_server, port):
        connection = asyncio.create_task(
            connect_node(
                house.invitation(port, "b"), identity, Echo("b"), settings=QUICK
            )
        )
        await grpc_server.wait_for(["b"], timeout_s=60)
        path.write_text(f"{identity.certificate.serial}\n")
        with pytest.raises(AuthenticationError, match="revoked"):
            await connection


async def test_a_certificate_that_expires_ends_the_stream_of_its_node() -> None:
    house, later = House(), 0.0
    rule = EnrolledKeys(house.enrolment.public_key)
    admission = Admission(house.tokens, rule, clock=lambda: time.time() + later)
    grpc_server = GrpcServer(admission, house.server, faster(SETTINGS, heartbeat_s=0.2))
    port = await grpc_server.open("127.0.0.1:0")
    async with connect_nodes(house, port, {"b": Echo("b")}) as tasks:
        await grpc_server.wait_for(["b"], timeout_s=60)
        later = 3601.0
        with pytest.raises(AuthenticationError, match="certificate-expired"):
            await tasks["b"]
    await grpc_server.close()


async def test_a_missing_revocation_file_lets_nobody_new_in(tmp_path: Path) -> None:
    path = tmp_path / "revoked.txt"
    path.write_text("")
    house = House(revoked=RevokedNodes(path))
    # It looks often, and a machine that stands still costs nobody their stream.
    settings = faster(SETTINGS, heartbeat_s=20.0, return_s=0.3)
    async with open_grpc_server(house, settings) as (grpc_server, port):
        async with connect_nodes(house, port, {"in": Echo("in")}):
            await grpc_server.wait_for(["in"], timeout_s=60)
            path.unlink()
            with pytest.raises(ConfigError, match="unreadable"):
                house.revoked.read()
            async with intruder_at(port) as late:
                await late.authenticate(house, house.identity("late"))
                assert await late.status() == ("UNAVAILABLE", "server-unready")
            await asyncio.sleep(0.2)  # past a few looks at the file
            [answer] = await gather(grpc_server, request("in"))
            assert answer.failure is None
            path.write_text("in\n")
            async with asyncio.timeout(60):
                while await grpc_server.nodes():  # noqa: ASYNC110 - the gRPC server tells nobody
                    await asyncio.sleep(0.01)
