"""Polls over gRPC: the same handler and the same limits."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.wallflower.serve.conftest import OpenWires, Wires
from wallflower.protocol.visitors import LARGEST_POLL
from wallflower.protocol.wire.visitors_pb2 import VisitorPoll
from wallflower.protocol.wire.visitors_pb2_grpc import VisitorServiceStub
from wallflower.serve.gate import VisitorLimits


@contextlib.asynccontextmanager
async def stub(wires: Wires) -> AsyncIterator[VisitorServiceStub]:
    address = f"127.0.0.1:{wires.grpc_port}"
    async with grpc.aio.insecure_channel(address) as channel:
        yield VisitorServiceStub(channel)  # type: ignore[no-untyped-call]


async def test_a_visitor_arrives_and_answers_with_generated_code(
    open_wires: OpenWires,
) -> None:
    async with open_wires() as wires, stub(wires) as service:
        person = wires.server.run.person()
        seat = (await service.Poll(person.arriving())).seat
        body = wires.server.run.answer(person, seat.request)
        reply = await service.Poll(person.answering(body))
        assert reply.WhichOneof("kind") == "taken"


async def test_a_message_that_is_too_large_is_not_taken(open_wires: OpenWires) -> None:
    async with open_wires() as wires, stub(wires) as service:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.Poll(VisitorPoll(answer=bytes(LARGEST_POLL)))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_whoever_sends_rubbish_is_soon_not_listened_to(
    open_wires: OpenWires,
) -> None:
    limits = VisitorLimits(refusals_burst=5)
    async with open_wires(limits) as wires, stub(wires) as service:
        for _ in range(5):
            assert (await service.Poll(VisitorPoll(version=9))).refused.code
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.Poll(VisitorPoll(version=9))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert caught.value.details() == "too-fast"


async def test_a_health_check_is_answered(open_wires: OpenWires) -> None:
    async with open_wires() as wires:
        address = f"127.0.0.1:{wires.grpc_port}"
        async with grpc.aio.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            reply = await health.Check(health_pb2.HealthCheckRequest())
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
