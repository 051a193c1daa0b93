"""What every adapter of `NodeTransport` must do; each adapter's tests inherit this
class.

A subclass says how to open a port over given handlers::

    class TestMemoryTransport(TransportContract):
        @asynccontextmanager
        async def open_port(self, handlers): yield MemoryTransport(handlers)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, aclosing

import pytest

from wallflower.protocol.messages.port import (
    Answer,
    NodeHandler,
    NodeTransport,
    Request,
)

# Long enough that it never ends a test that works, short enough to end one that hangs.
LONG_S = 60.0


class Echo:
    """Answers with its name and the number of the call; can be held back."""

    def __init__(self, name: str = "", *, held: bool = False) -> None:
        self.name = name
        self.calls = 0
        self.cancelled = asyncio.Event()
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        if not held:
            self.release.set()

    async def handle(self, body: bytes) -> bytes:
        self.calls += 1
        call = self.calls
        self.started.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return f"{self.name}#{call}:".encode() + body


class Broken:
    """A handler that always fails; its text must not travel."""

    async def handle(self, body: bytes) -> bytes:
        raise ValueError("the secret is 4240671")


def request(node_id: str, request_id: str = "r1", body: bytes = b"hello") -> Request:
    return Request(node_id, request_id, body)


async def gather(
    port: NodeTransport, *requests: Request, timeout_s: float = LONG_S
) -> list[Answer]:
    async with aclosing(port.ask(requests, timeout_s=timeout_s)) as answers:
        return [answer async for answer in answers]


async def abandon(port: NodeTransport, held: Echo) -> None:
    """Ask a request of a held node and stop waiting once it works on it."""
    stream = port.ask([request(held.name, "r1")], timeout_s=LONG_S)
    async with aclosing(stream) as answers:
        asking = asyncio.ensure_future(anext(answers))
        await held.started.wait()
        asking.cancel()
        await asyncio.wait([asking])


class TransportContract:
    """One behaviour a test; `open_transport` is the adapter's."""

    deadline_s = 5.0  # all of it passes; a busy machine answers in much less

    def open_transport(
        self, handlers: Mapping[str, NodeHandler]
    ) -> AbstractAsyncContextManager[NodeTransport]:
        raise TypeError("a subclass opens its own adapter")

    async def test_nodes_names_those_that_can_be_asked(self) -> None:
        async with self.open_transport({"a": Echo("a"), "b": Echo("b")}) as port:
            assert sorted(await port.nodes()) == ["a", "b"]

    async def test_an_answer_is_what_the_handler_gave(self) -> None:
        async with self.open_transport({"a": Echo("a")}) as port:
            answers = await gather(port, request("a", "r1", b"\x00body\xff"))
        assert answers == [Answer("a", "r1", b"a#1:\x00body\xff")]

    async def test_every_request_is_answered_once(self) -> None:
        nodes = {f"n{i}": Echo(f"n{i}") for i in range(20)}
        asked = [request(name, f"r-{name}") for name in nodes]
        async with self.open_transport(nodes) as port:
            answers = await gather(port, *asked)
        assert sorted(answer.node_id for answer in answers) == sorted(nodes)
        assert all(answer.failure is None for answer in answers)

    async def test_asking_nobody_ends_at_once(self) -> None:
        async with self.open_transport({"a": Echo("a")}) as port:
            assert await gather(port) == []

    async def test_answers_come_as_they_arrive_not_as_they_were_asked(self) -> None:
        slow, fast = Echo("slow", held=True), Echo("fast")
        async with self.open_transport({"slow": slow, "fast": fast}) as port:
            stream = port.ask([request("slow"), request("fast")], timeout_s=LONG_S)
            async with aclosing(stream) as answers:
                first = await anext(answers)
                slow.release.set()
                rest = [answer async for answer in answers]
        assert first.node_id == "fast"
        assert [answer.node_id for answer in rest] == ["slow"]

    async def test_the_deadline_ends_the_answers(self) -> None:
        slow, fast = Echo("slow", held=True), Echo("fast")
        async with self.open_transport({"slow": slow, "fast": fast}) as port:
            await gather(port, request("fast", "warm-up"))
            answers = await gather(
                port, request("slow"), request("fast"), timeout_s=self.deadline_s
            )
        assert [answer.node_id for answer in answers] == ["fast"]

    async def test_the_same_request_id_gets_the_same_stored_answer(self) -> None:
        echo = Echo("a")
        async with self.open_transport({"a": echo}) as port:
            first = await gather(port, request("a", "r1"))
            other = await gather(port, request("a", "r2"))
            again = await gather(port, request("a", "r1"))
        assert first == again == [Answer("a", "r1", b"a#1:hello")]
        assert other == [Answer("a", "r2", b"a#2:hello")]
        assert echo.calls == 2

    async def test_a_request_listed_twice_is_handled_and_answered_once(self) -> None:
        echo = Echo("a")
        async with self.open_transport({"a": echo}) as port:
            answers = await gather(port, request("a", "r1"), request("a", "r1"))
        assert answers == [Answer("a", "r1", b"a#1:hello")]
        assert echo.calls == 1

    async def test_a_request_asked_by_two_at_once_is_handled_once(self) -> None:
        echo = Echo("a", held=True)
        async with self.open_transport({"a": echo}) as port:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(gather(port, request("a", "r1")))
                    for _ in range(2)
                ]
                await echo.started.wait()
                echo.release.set()
        assert [task.result() for task in tasks] == [
            [Answer("a", "r1", b"a#1:hello")]
        ] * 2
        assert echo.calls == 1

    async def test_a_request_id_reused_for_another_body_is_refused(self) -> None:
        echo = Echo("a")
        async with self.open_transport({"a": echo}) as port:
            await gather(port, request("a", "r1", b"one"))
            answers = await gather(port, request("a", "r1", b"two"))
        assert answers == [Answer("a", "r1", failure="request-id-reused")]
        assert echo.calls == 1

    async def test_an_unknown_node_fails_by_name_and_stops_nobody(self) -> None:
        async with self.open_transport({"a": Echo("a")}) as port:
            answers = await gather(port, request("nobody"), request("a"))
        assert {answer.node_id: answer.failure for answer in answers} == {
            "nobody": "not-connected",
            "a": None,
        }

    async def test_a_failing_handler_is_reported_without_its_text(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with self.open_transport({"a": Broken(), "b": Echo("b")}) as port:
            answers = await gather(port, request("a"), request("b"))
        assert {answer.node_id: answer.failure for answer in answers} == {
            "a": "node-failed",
            "b": None,
        }
        assert "4240671" not in repr(answers)
        assert "4240671" not in caplog.text

    async def test_an_abandoned_request_is_never_worked_on_again(self) -> None:
        held = Echo("held", held=True)
        async with self.open_transport({"held": held}) as port:
            await abandon(port, held)
            held.release.set()
            again = await gather(port, request("held", "r1"))
        assert again[0].failure == "abandoned" or again[0].body == b"held#1:hello"
        assert held.calls == 1

    async def test_nothing_is_left_running_after_the_port_is_closed(self) -> None:
        before = asyncio.all_tasks()
        held, fast = Echo("held", held=True), Echo("fast")
        async with self.open_transport({"held": held, "fast": fast}) as port:
            await gather(port, request("fast"))
            await gather(port, request("held"), timeout_s=0.2)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() <= before


class StoppingTransportContract(TransportContract):
    """For adapters that can tell a node to stop: abandoned work really ends."""

    async def test_closing_early_stops_the_handlers_nobody_waits_for(self) -> None:
        held = Echo("held", held=True)
        async with self.open_transport({"held": held}) as port:
            await abandon(port, held)
            async with asyncio.timeout(LONG_S):
                await held.cancelled.wait()
            again = await gather(port, request("held", "r1"))
        assert again == [Answer("held", "r1", failure="abandoned")]
        assert held.calls == 1
