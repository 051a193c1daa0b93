"""The health service is for everybody, and takes nothing from nodes."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.grpc_fixtures import (
    FAST,
    SERVER,
    House,
    connect_nodes,
    faster,
    open_grpc_server,
)
from tests.support.intruder import channel_to
from tests.support.transport_contract import Echo
from wallflower.strategy.transport.grpc.server import GrpcServer

SERVING = health_pb2.HealthCheckResponse.SERVING


async def health(port: int, service: str = "wallflower.v1.NodeService") -> int:
    async with channel_to(port) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        response = await stub.Check(health_pb2.HealthCheckRequest(service=service))
        status: int = response.status
        return status


async def test_every_call_of_the_health_service_is_answered() -> None:
    """Newer versions of the service have `List`, older ones do not."""
    known = {name for name in vars(health_pb2_grpc.HealthServicer) if name[0] != "_"}
    async with open_grpc_server(House()) as (_, port), channel_to(port) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == SERVING
        if "List" in known:
            listed = (await stub.List(health_pb2.HealthListRequest())).statuses
            assert {listed[name].status for name in listed} == {SERVING}
            assert "wallflower.v1.NodeService" in listed
    assert known <= {"Check", "List", "Watch"}


async def test_the_health_service_says_serving_without_authentication() -> None:
    async with open_grpc_server(House()) as (_, port):
        assert await health(port) == health_pb2.HealthCheckResponse.SERVING
        assert await health(port, "") == health_pb2.HealthCheckResponse.SERVING


async def test_health_watches_without_an_identity_are_counted_and_limited() -> None:
    async with open_grpc_server(House(), faster(FAST, most_watching=8)) as (
        grpc_server,
        port,
    ):
        async with channel_to(port) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(2)]
            for watch in watches:
                assert (await watch.read()).status == SERVING
            assert grpc_server.stats.watching == 2
            third = stub.Watch(health_pb2.HealthCheckRequest())
            assert await third.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert await third.details() == "too-many-streams"
            watches[0].cancel()
            async with asyncio.timeout(60):
                while grpc_server.stats.watching == 2:  # noqa: ASYNC110 (a counter)
                    await asyncio.sleep(0)
            fourth = stub.Watch(health_pb2.HealthCheckRequest())
            assert (await fourth.read()).status == SERVING


async def test_health_watches_take_no_room_from_nodes() -> None:
    house = House()
    settings = faster(FAST, most_watching=1, most_streams=1)
    async with (
        open_grpc_server(house, settings) as (grpc_server, port),
        channel_to(port) as channel,
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest()
        )
        assert (await watch.read()).status == SERVING
        async with connect_nodes(house, port, {"a": Echo()}):
            assert not await grpc_server.wait_for(["a"], timeout_s=60)


async def test_who_watches_is_told_that_the_server_closes() -> None:
    house = House()
    grpc_server = GrpcServer(house.admission(), SERVER, FAST)
    port = await grpc_server.open("127.0.0.1:0")
    async with channel_to(port) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest()
        )
        assert (await watch.read()).status == SERVING
        closing = asyncio.create_task(grpc_server.close("finished"))
        status = (await watch.read()).status
        assert status == health_pb2.HealthCheckResponse.NOT_SERVING
        await closing
