from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from tests.support.transport_contract import (
    Echo,
    StoppingTransportContract,
    gather,
    request,
)
from wallflower.protocol.messages.port import Answer, NodeHandler, NodeTransport
from wallflower.strategy.transport.memory import MemoryTransport


class TestMemoryTransport(StoppingTransportContract):
    @asynccontextmanager
    async def open_transport(
        self, handlers: Mapping[str, NodeHandler]
    ) -> AsyncIterator[NodeTransport]:
        yield MemoryTransport(handlers)


async def test_an_answer_no_longer_kept_is_refused_not_computed_again() -> None:
    echo = Echo("a")
    port = MemoryTransport({"a": echo}, most_answer_bytes=2_000)
    await gather(port, request("a", "r1", b"x" * 1_000))
    await gather(port, request("a", "r2", b"x" * 1_000))
    again = await gather(port, request("a", "r1", b"x" * 1_000))
    assert again == [Answer("a", "r1", failure="answer-forgotten")]
    assert echo.calls == 2


async def test_answers_of_many_rounds_take_no_more_than_a_few_megabytes() -> None:
    echo, mebibyte = Echo("a"), b"x" * 2**20
    port = MemoryTransport({"a": echo})
    for number in range(6):
        await gather(port, request("a", f"r{number}", mebibyte))
    (first,) = await gather(port, request("a", "r0", mebibyte))
    (last,) = await gather(port, request("a", "r5", mebibyte))
    assert (first.failure, last.failure) == ("answer-forgotten", None)
    assert echo.calls == 6


async def test_ids_of_different_nodes_do_not_meet() -> None:
    one, eleven = Echo("n1"), Echo("n11")
    port = MemoryTransport({"n1": one, "n11": eleven})
    await gather(port, request("n1", "1r"), request("n11", "r"))
    assert (one.calls, eleven.calls) == (1, 1)
