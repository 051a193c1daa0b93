"""A scan of the port: what gRPC prints of it goes to the log, and is counted."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import pytest

from tests.support.grpc_fixtures import House, open_grpc_server
from tests.wallflower.shuffler.test_service import serving

SCANS = 90


async def scan(port: int, times: int = SCANS) -> None:
    """Connect and send what is no TLS, as scanners do."""
    for _ in range(times):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        writer.write_eof()
        await reader.read()
        writer.close()


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [vars(record) for record in caplog.records]
    return [each["detail"] for each in found if "handshake" in each.get("event", "")]


async def test_a_scan_of_the_server_prints_nothing_and_is_counted(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with open_grpc_server(House()) as (grpc_server, port):
            await scan(port)
            print("ours", file=sys.stderr)
    assert grpc_server.stats.failed_handshakes == SCANS
    assert len(logged(caplog)) == SCANS
    assert all("SSL_ERROR_SSL" in said for said in logged(caplog))
    assert capfd.readouterr().err.splitlines() == ["ours"]


async def test_a_flood_of_scans_does_not_flood_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        async with open_grpc_server(House()) as (grpc_server, port):
            await asyncio.gather(*(scan(port, 30) for _ in range(10)))
    assert grpc_server.stats.failed_handshakes == 300
    assert len(logged(caplog)) < 300


async def test_a_scan_of_the_shuffler_prints_nothing_and_is_counted(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async with serving(tmp_path) as (place, service):
        await scan(int(place.address.rpartition(":")[2]))
    name = "wallflower_shuffler_tls_handshakes_failed_total"
    assert service.registry.get_sample_value(name) == SCANS
    assert not capfd.readouterr().err


async def test_two_server_in_one_process_share_what_grpc_prints(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with open_grpc_server(House()) as (first, one):
        async with open_grpc_server(House()) as (second, other):
            await scan(one, 3)
            await scan(other, 3)
        await scan(one, 3)
    assert (first.stats.failed_handshakes, second.stats.failed_handshakes) == (3, 6)
    assert not capfd.readouterr().err
