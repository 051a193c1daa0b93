"""The client's own calls reach a worker on both wires."""

from __future__ import annotations

import pytest

from tests.wallflower.serve.conftest import OpenWires, Wires
from wallflower.clients.transport.visitor_calls import (
    Poll,
    poll_by_grpc,
    poll_by_http,
)
from wallflower.protocol.errors import InputError, UnavailableError
from wallflower.protocol.wire.visitors_pb2 import VisitorReply


async def kinds(wires: Wires, poll: Poll) -> list[str | None]:
    person = wires.server.run.person()
    arrived = VisitorReply.FromString(await poll(person.arriving().SerializeToString()))
    body = wires.server.run.answer(person, arrived.seat.request)
    answered = VisitorReply.FromString(
        await poll(person.answering(body).SerializeToString())
    )
    return [arrived.WhichOneof("kind"), answered.WhichOneof("kind")]


async def test_a_person_polls_by_http(open_wires: OpenWires) -> None:
    async with open_wires() as wires:
        assert await kinds(wires, poll_by_http(wires.url)) == ["seat", "taken"]


async def test_a_person_polls_by_grpc(open_wires: OpenWires) -> None:
    async with open_wires() as wires:
        async with poll_by_grpc(f"127.0.0.1:{wires.grpc_port}") as poll:
            assert await kinds(wires, poll) == ["seat", "taken"]


async def test_a_server_that_is_not_there_may_be_tried_again() -> None:
    with pytest.raises(UnavailableError):
        await poll_by_http("http://127.0.0.1:9")(b"")
    async with poll_by_grpc("127.0.0.1:9") as poll:
        with pytest.raises(UnavailableError):
            await poll(b"")


def test_an_address_without_a_scheme_is_refused() -> None:
    with pytest.raises(InputError):
        poll_by_http("shop.example")
