from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

import pytest
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from tests.support.transport_contract import (
    Echo,
    TransportContract,
    gather,
    request,
)
from wallflower.engines.in_process_grid import InProcessGrid
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.messages import flower as flower_record
from wallflower.protocol.messages.port import Answer, NodeHandler, NodeTransport
from wallflower.strategy.transport.flower import FlowerTransport
from wallflower.strategy.transport.grid import FAILURES, Pace

FAST = Pace(shortest_s=0.001, longest_s=0.02, grace_s=0.1)


def reply_with(message: Message, fields: dict[str, str | bytes]) -> Message:
    record = ConfigRecord(dict(fields))
    return Message(RecordDict({flower_record.RECORD: record}), reply_to=message)


class HandlerApp:
    """A ClientApp whose nodes are handlers living in the test's event loop."""

    def __init__(self, handlers: Mapping[str, NodeHandler]) -> None:
        self.loop = asyncio.get_running_loop()
        self.handlers = handlers
        self.names = {1000 + i: name for i, name in enumerate(sorted(handlers))}
        self.running: set[concurrent.futures.Future[bytes]] = set()
        self.handled: Counter[str] = Counter()
        self.at_once: Counter[str] = Counter()
        self.most_at_once = 0
        self.lock = threading.Lock()
        self.app = ClientApp()
        self.app.query("hello")(self.hello)
        self.app.query("work")(self.work)

    def hello(self, message: Message, context: Context) -> Message:
        return reply_with(message, {flower_record.NAME: self.names[context.node_id]})

    def work(self, message: Message, context: Context) -> Message:
        name = self.names[context.node_id]
        body = message.content.config_records[flower_record.RECORD][flower_record.BODY]
        assert isinstance(body, bytes)
        with self.lock:
            self.handled[name] += 1
            self.at_once[name] += 1
            self.most_at_once = max(self.most_at_once, self.at_once[name])
        future = asyncio.run_coroutine_threadsafe(
            self.handlers[name].handle(body), self.loop
        )
        self.running.add(future)
        try:
            answer = future.result()
        except concurrent.futures.CancelledError:
            answer = b""
        finally:
            with self.lock:
                self.at_once[name] -= 1
            self.running.discard(future)
        return reply_with(message, {flower_record.BODY: answer})

    async def end(self) -> None:
        """Cancel what still runs, as ending a node's process would."""
        while self.running:
            for future in list(self.running):
                future.cancel()
            await asyncio.sleep(0.001)


@asynccontextmanager
async def flower_transport(
    handlers: Mapping[str, NodeHandler], grid_class: type[InProcessGrid] = InProcessGrid
) -> AsyncIterator[tuple[FlowerTransport, HandlerApp, InProcessGrid]]:
    nodes = HandlerApp(handlers)
    grid = grid_class(nodes.app, {number: {} for number in nodes.names}, workers=8)
    with grid:
        try:
            async with FlowerTransport(
                grid, pace=FAST, hello_timeout_s=60.0
            ) as transport:
                await transport.nodes()
                yield transport, nodes, grid
        finally:
            await nodes.end()


class TestFlowerTransport(TransportContract):
    @asynccontextmanager
    async def open_transport(
        self, handlers: Mapping[str, NodeHandler]
    ) -> AsyncIterator[NodeTransport]:
        async with flower_transport(handlers) as (transport, _, _):
            yield transport


class PolledGrid(InProcessGrid):
    """Says nothing when a reply comes, like Flower's own grids."""

    notify = None  # type: ignore[assignment]


class TestFlowerTransportOnPolledGrid(TransportContract):
    @asynccontextmanager
    async def open_transport(
        self, handlers: Mapping[str, NodeHandler]
    ) -> AsyncIterator[NodeTransport]:
        async with flower_transport(handlers, PolledGrid) as (transport, _, _):
            yield transport


async def test_a_node_never_has_two_messages_in_flight() -> None:
    async with flower_transport({"a": Echo("a"), "b": Echo("b")}) as (
        transport,
        nodes,
        _,
    ):
        asked = [request(n, f"r{i}") for i in range(30) for n in ("a", "b")]
        answers = await gather(transport, *asked)
    assert len(answers) == 60
    assert nodes.handled == {"a": 30, "b": 30}
    assert nodes.most_at_once == 1


async def test_a_request_behind_a_slow_one_waits_for_it_and_no_longer() -> None:
    held = Echo("a", held=True)
    async with flower_transport({"a": held}) as (transport, _, _):
        first = asyncio.create_task(gather(transport, request("a", "r1")))
        await held.started.wait()
        second = asyncio.create_task(gather(transport, request("a", "r2")))
        await asyncio.sleep(0.05)
        assert held.calls == 1
        held.release.set()
        assert [*await first, *await second] == [
            Answer("a", "r1", b"a#1:hello"),
            Answer("a", "r2", b"a#2:hello"),
        ]


async def test_a_request_whose_asker_left_is_never_sent() -> None:
    held = Echo("a", held=True)
    async with flower_transport({"a": held}) as (transport, nodes, _):
        first = asyncio.create_task(gather(transport, request("a", "r1")))
        await held.started.wait()
        assert await gather(transport, request("a", "r2"), timeout_s=0.05) == []
        held.release.set()
        await first
        await gather(transport, request("a", "r3"))
        assert nodes.handled["a"] == 2


class LosingGrid(InProcessGrid):
    """Loses every reply to the first request, like a SuperNode that was killed."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [
            reply
            for reply in super().pull_messages(message_ids)
            if b"lost" not in str(reply.content).encode()
        ]


async def test_a_node_is_free_again_once_its_message_has_expired() -> None:
    async with flower_transport({"a": Echo("a")}, LosingGrid) as (transport, nodes, _):
        tries = 0
        while not nodes.handled["a"]:  # a busy machine may send nothing so soon
            tries += 1
            lost = request("a", f"lost{tries}", b"lost")
            assert await gather(transport, lost, timeout_s=0.1) == []
        answers = await gather(transport, request("a", "r2"))
        assert [a.failure for a in answers] == [None]
        assert nodes.handled["a"] == 2


class ErrorGrid(InProcessGrid):
    """Replies to every work message with one of Flower's error codes."""

    code = 0

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = list(super().pull_messages(message_ids))
        for reply in replies:
            if reply.metadata.message_type == flower_record.WORK:
                reply.__dict__["_content"] = None
                reply.error = Error(self.code, "a stack trace with secrets")
        return replies


@pytest.mark.parametrize(("code", "failure"), [*FAILURES.items(), (99, "node-failed")])
async def test_each_of_flowers_errors_has_a_name(code: int, failure: str) -> None:
    grid_class = type("CodeGrid", (ErrorGrid,), {"code": code})
    async with flower_transport({"a": Echo("a")}, grid_class) as (transport, _, _):
        answers = await gather(transport, request("a"))
    assert answers == [Answer("a", "r1", failure=failure)]


class UnreachableGrid(InProcessGrid):
    """Fails its first pushes and pulls of work, like a SuperLink that restarts."""

    push_failures = 0
    pull_failures = 0

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        self.tried = [*getattr(self, "tried", []), *messages]
        if self.push_failures > 0:
            self.push_failures -= 1
            raise ConnectionError("no route to the SuperLink")
        return super().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        if self.pull_failures > 0:
            self.pull_failures -= 1
            raise ConnectionError("no route to the SuperLink")
        return super().pull_messages(message_ids)


async def test_a_superlink_that_is_away_for_a_while_delays_but_loses_nothing() -> None:
    echo = Echo("a")
    async with flower_transport({"a": echo}, UnreachableGrid) as (transport, _, grid):
        assert isinstance(grid, UnreachableGrid)
        grid.push_failures = grid.pull_failures = 3
        answers = await gather(transport, request("a"))
    assert answers == [Answer("a", "r1", b"a#1:hello")]
    assert echo.calls == 1


async def test_a_message_pushed_again_is_the_same_message() -> None:
    # HttpGrid derives the id from content and time: a new message would run twice.
    async with flower_transport({"a": Echo("a")}, UnreachableGrid) as (
        transport,
        _,
        grid,
    ):
        assert isinstance(grid, UnreachableGrid)
        grid.push_failures, grid.tried = 2, []
        await gather(transport, request("a"))
        assert len(grid.tried) == 3
        assert len({id(message) for message in grid.tried}) == 1


async def test_a_superlink_that_stays_away_ends_at_the_deadline() -> None:
    async with flower_transport({"a": Echo("a")}, UnreachableGrid) as (
        transport,
        _,
        grid,
    ):
        assert isinstance(grid, UnreachableGrid)
        grid.push_failures = 10**9
        assert await gather(transport, request("a"), timeout_s=0.2) == []


class DeafGrid(InProcessGrid):
    """Takes messages for a node that Flower no longer knows."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        kept = [m for m in messages if m.metadata.message_type != flower_record.WORK]
        return super().push_messages(kept)


async def test_a_message_that_flower_does_not_accept_is_a_named_failure() -> None:
    async with flower_transport({"a": Echo("a")}, DeafGrid) as (transport, _, _):
        answers = await gather(transport, request("a"))
    assert answers == [Answer("a", "r1", failure="not-accepted")]


class OneCallGrid(InProcessGrid):
    """Notes whether two threads were ever inside it."""

    inside = 0
    overlaps = 0
    given_a_list = True

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        self.given_a_list = self.given_a_list and isinstance(messages, list)
        self.inside += 1
        self.overlaps += self.inside > 1
        time.sleep(0.002)
        ids = super().push_messages(messages)
        self.inside -= 1
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self.given_a_list = self.given_a_list and isinstance(message_ids, list)
        self.inside += 1
        self.overlaps += self.inside > 1
        time.sleep(0.002)
        replies = super().pull_messages(message_ids)
        self.inside -= 1
        return replies

    def get_node_ids(self) -> Iterable[int]:
        self.inside += 1
        self.overlaps += self.inside > 1
        time.sleep(0.002)
        self.inside -= 1
        return super().get_node_ids()


async def test_the_grid_is_called_by_one_thread_at_a_time_with_lists() -> None:
    nodes = {f"n{i}": Echo(f"n{i}") for i in range(10)}
    async with flower_transport(nodes, OneCallGrid) as (transport, _, grid):
        assert isinstance(grid, OneCallGrid)
        async with asyncio.TaskGroup() as group:
            for i in range(10):
                asked = [request(name, f"r{i}") for name in nodes]
                group.create_task(gather(transport, *asked))
                group.create_task(_list_nodes(transport))
        assert grid.overlaps == 0
        assert grid.given_a_list


async def _list_nodes(transport: NodeTransport) -> None:
    await transport.nodes()


async def test_a_second_node_that_claims_a_name_is_not_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handlers: dict[str, NodeHandler] = {"a": Echo("a"), "b": Echo("b")}
    nodes = HandlerApp(handlers)
    nodes.names = {1000: "a", 1001: "a", 1002: "b"}
    with InProcessGrid(nodes.app, {number: {} for number in nodes.names}) as grid:
        async with FlowerTransport(grid, pace=FAST) as transport:
            with caplog.at_level(logging.WARNING, "wallflower.flower"):
                assert await transport.nodes() == ["a", "b"]
    assert "claims the name a" in caplog.text


async def test_a_reply_that_is_not_ours_is_malformed() -> None:
    async with flower_transport({"a": Echo("a")}) as (transport, nodes, _):

        def work(message: Message, context: Context) -> Message:
            return Message(RecordDict(), reply_to=message)

        nodes.app._registered_funcs["query.work"] = work
        answers = await gather(transport, request("a"))
    assert answers == [Answer("a", "r1", failure="malformed-reply")]


async def test_a_closed_port_says_so() -> None:
    async with flower_transport({"a": Echo("a")}) as (transport, _, _):
        pass
    with pytest.raises(UnavailableError, match="closed"):
        await gather(transport, request("a"))
