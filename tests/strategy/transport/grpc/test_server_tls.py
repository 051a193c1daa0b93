"""TLS 1.3 and nothing older: real handshakes of a real server and real clients."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.grpc_fixtures import (
    AUTHORITY,
    QUICK,
    SERVER,
    House,
    open_grpc_server,
)
from tests.support.transport_contract import Echo
from wallflower.clients.rewards.service import ServiceRewards
from wallflower.clients.rewards.source import LostRewardError, Pull
from wallflower.clients.transport.grpc_client import connect_node
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.identity import tls

OLD, CURRENT = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
GRPC_FIRST = (
    "import grpc, runpy; "
    "runpy.run_module('tests.support.late_server', None, '__main__')"
)


def handshake(port: int, version: ssl.TLSVersion) -> str | None:
    context = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
    context.set_alpn_protocols(["h2"])
    context.minimum_version = context.maximum_version = version
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        return secure.version()


async def test_a_client_that_has_only_tls_1_2_is_refused_by_the_handshake() -> None:
    async with open_grpc_server(House()) as (_, port):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(handshake, port, OLD)
        assert await asyncio.to_thread(handshake, port, CURRENT) == "TLSv1.3"


@asynccontextmanager
async def old_server(tmp_path: Path) -> AsyncIterator[tuple[int, list[str]]]:
    """A server with the right certificate and nothing newer than TLS 1.2."""
    (tmp_path / "crt").write_bytes(SERVER.certificate)
    (tmp_path / "key").write_bytes(SERVER.private_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    context.set_alpn_protocols(["h2"])
    context.maximum_version = OLD
    reached: list[str] = []

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(writer.get_extra_info("ssl_object").version())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1], reached


async def test_a_node_agrees_on_nothing_with_a_server_that_has_only_tls_1_2(
    tmp_path: Path,
) -> None:
    house = House()
    async with old_server(tmp_path) as (port, reached):
        with pytest.raises(UnavailableError):
            await connect_node(
                house.invitation(port, "a"),
                house.identity("a"),
                Echo("a"),
                settings=replace(QUICK, patience_s=0.3),
            )
        assert reached == []


async def test_a_reward_service_that_has_only_tls_1_2_is_not_spoken_to(
    tmp_path: Path,
) -> None:
    async with old_server(tmp_path) as (port, reached):
        source = ServiceRewards(f"127.0.0.1:{port}", certificate=AUTHORITY.certificate)
        stream = source.stream(Pull("run", "cohort", 1, 0, "arm", "a", ("u0",)))
        with pytest.raises(LostRewardError):
            await anext(stream)
        await source.close()
        assert reached == []


def test_a_server_in_a_process_that_loaded_grpc_first_ends_old_streams_by_name() -> (
    None
):
    environment = {k: v for k, v in os.environ.items() if k != tls.VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", GRPC_FIRST],
        env=environment,
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    said = json.loads(done.stdout)
    assert said == {
        "enforced": False,
        "TLSv1_2": "tls-too-old",
        "TLSv1_3": "malformed-message",
    }
