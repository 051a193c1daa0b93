"""What callers without token or certificate can hold: in real processes, over TLS."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.integration.grpc_abuse import grpc_server_process
from tests.support.grpc_fixtures import House, connect_nodes
from tests.support.shuffled_sums import (
    ShuffledCohort,
    finished,
    shuffled_spec,
    started,
)
from tests.support.siege import besieged, most_memory
from tests.support.transport_contract import Echo
from tests.wallflower.shuffler.test_service import asked
from wallflower.protocol.secure_sum.session import SecureSum

# Without limits each connection holds some 100 MiB, without end. With them all twenty
# together hold some 20 MiB, most of it the library's own.
MOST_BYTES = 100 * 2**20
STRANGERS = 20
SECONDS = 5.0
GRPC = (
    "/wallflower.v1.NodeService/Poll",
    "/wallflower.v1.NodeService/Connect",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
)
SHUFFLER_PATHS = (
    "/wallflower.v1.Shuffler/Release",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
)


@pytest.mark.slow  # twenty strangers, for some seconds
async def test_strangers_hold_next_to_nothing_in_the_server() -> None:
    house = House()
    async with grpc_server_process(house) as (grpc_server, port):
        async with connect_nodes(house, port, {"honest": Echo()}):
            before = (await grpc_server.report())["rss"]
            async with besieged(port, GRPC, STRANGERS) as siege:
                held = await most_memory(grpc_server.pid, SECONDS) - before
                report = await grpc_server.report()
    assert siege.calls > STRANGERS
    assert held < MOST_BYTES, f"{held / 2**20:.0f} MiB"
    assert (report["honest"], report["handshake"]) == ("ok", 0)


@pytest.mark.slow  # twenty strangers, for some seconds
async def test_strangers_hold_next_to_nothing_in_the_shuffler(tmp_path: Path) -> None:
    process, place = await started(tmp_path, log=asyncio.subprocess.DEVNULL)
    try:
        cohort = ShuffledCohort(shuffled_spec(mechanism="dist-dp"), place=place)
        server, request = cohort.submitted()
        assert isinstance(request, bytes)
        before = await most_memory(process.pid, 0.5)
        port = int(place.address.rpartition(":")[2])
        async with besieged(port, SHUFFLER_PATHS, STRANGERS) as siege:
            held = await most_memory(process.pid, SECONDS) - before
            answer = await asked(place, request)
        assert siege.calls > STRANGERS
        assert held < MOST_BYTES, f"{held / 2**20:.0f} MiB"
        outcome = finished(server, answer.body)
        assert isinstance(outcome, SecureSum)
        assert outcome.total == sum(cohort.values.values())
    finally:
        process.terminate()
        await process.wait()
