"""A node's work on requests, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.transport_contract import Echo
from wallflower.clients.transport.answering import Answering, Outbox
from wallflower.protocol.messages.answers import MemoryAnswers
from wallflower.protocol.wire import node_service_pb2


async def next_answer(outbox: Outbox) -> node_service_pb2.PendingAnswer:
    async with asyncio.timeout(60):
        return node_service_pb2.FromNode.FromString(await outbox.take()).answer


@contextmanager
def stopping(answering: Answering) -> Iterator[Outbox]:
    answering.outbox = Outbox(most=4)
    try:
        yield answering.outbox
    finally:
        answering.stop()


def asked(request_id: str, body: bytes = b"hello") -> node_service_pb2.PendingRequest:
    return node_service_pb2.PendingRequest(request_id=request_id, body=body)


async def test_no_more_handlers_work_at_once_than_allowed() -> None:
    held = Echo("a", held=True)
    async with asyncio.TaskGroup() as group:
        answering = Answering(held, MemoryAnswers(), group, concurrency=3)
        with stopping(answering) as outbox:
            for number in range(10):
                answering.request(asked(f"r{number}"))
            for _ in range(20):
                await asyncio.sleep(0)
            assert held.calls == 3
            held.release.set()
            answers = [await next_answer(outbox) for _ in range(10)]
    assert {answer.request_id for answer in answers} == {f"r{n}" for n in range(10)}


async def test_more_than_a_node_can_hold_is_failed_not_queued() -> None:
    held = Echo("a", held=True)
    async with asyncio.TaskGroup() as group:
        answering = Answering(
            held, MemoryAnswers(), group, concurrency=1, most_waiting=2
        )
        with stopping(answering) as outbox:
            for number in range(3):
                answering.request(asked(f"r{number}"))
            refused = await next_answer(outbox)
            assert (refused.request_id, refused.failure) == ("r2", "node-busy")
            held.release.set()
            await next_answer(outbox)
            # A busy node has not seen the request: it may be asked again.
            answering.request(asked("r2"))
            await next_answer(outbox)
            assert (await next_answer(outbox)).body == b"a#3:hello"


async def test_an_answer_given_while_the_server_is_away_waits_in_the_store() -> None:
    echo = Echo("a")
    async with asyncio.TaskGroup() as group:
        answering = Answering(echo, MemoryAnswers(), group, concurrency=1)
        answering.request(asked("r1"))
        for _ in range(5):
            await asyncio.sleep(0)
        with stopping(answering) as outbox:
            answering.request(asked("r1"))
            assert (await next_answer(outbox)).body == b"a#1:hello"
    assert echo.calls == 1


async def test_an_abandoned_request_is_stopped_and_stays_abandoned() -> None:
    held = Echo("a", held=True)
    async with asyncio.TaskGroup() as group:
        answering = Answering(held, MemoryAnswers(), group, concurrency=1)
        with stopping(answering) as outbox:
            answering.request(asked("r1"))
            await held.started.wait()
            answering.abandon("r1")
            answering.abandon("never-asked")
            await held.cancelled.wait()
            answering.request(asked("r1"))
            assert (await next_answer(outbox)).failure == "abandoned"


async def test_a_full_outbox_holds_back_whoever_fills_it() -> None:
    outbox = Outbox(most=2)
    for number in range(3):
        outbox.put(bytes([number]))
    waiting = asyncio.create_task(outbox.room())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    assert await outbox.take() == b"\x00"
    async with asyncio.timeout(60):
        await waiting
