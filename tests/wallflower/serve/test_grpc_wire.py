"""Polls over gRPC: the same handler and the same limits."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.wallflower.serve.conftest import OpenWires, Wires
from wallflower.clients.transport.visitor_calls import METHOD
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


@pytest.mark.parametrize("packing", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_a_message_that_grows_when_it_is_unpacked_is_not_taken(
    open_wires: OpenWires, packing: grpc.Compression
) -> None:
    """Eight megabytes in eight kilobytes; soon nobody listens to who sends that."""
    limits = VisitorLimits(refusals_burst=2)
    async with open_wires(limits) as wires:
        address = f"127.0.0.1:{wires.grpc_port}"
        codes, said = set(), list[str]()
        async with grpc.aio.insecure_channel(address, compression=packing) as channel:
            call = channel.unary_unary(METHOD, None, None)
            for _ in range(3):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call(bytes(8 * 2**20))
                codes.add(caught.value.code())
                said.append(str(caught.value.details()))
        assert codes == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert said[2] == "too-fast"


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
