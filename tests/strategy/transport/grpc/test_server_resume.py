"""Streams break; sums do not. Real TLS streams through a proxy that cuts them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.strategy.run.test_driver import stages_of
from tests.support.cutting_proxy import CuttingProxy, cutting_proxy
from tests.support.grpc_fixtures import (
    FAST,
    House,
    connect_nodes,
    faster,
    open_grpc_server,
)
from tests.support.intruder import intruder_at
from tests.support.secure_sums import NODE_BACKENDS
from tests.support.sum_nodes import Sum, SumNode, one_hot
from tests.support.transport_contract import LONG_S, Echo, gather, request
from wallflower.protocol.messages.port import Answer, NodeHandler
from wallflower.protocol.secure_sum.session import SecureSum
from wallflower.protocol.wire import node_pb2
from wallflower.strategy.transport.grpc.server import GrpcServer
from wallflower.strategy.transport.grpc.settings import GrpcServerSettings

MOMENTS = ["before the work", "after the work"]


class CutAt:
    """A node whose connection breaks at one moment of one stage."""

    def __init__(self, node: SumNode, stage: str, moment: str) -> None:
        self._node = node
        self._stage = stage
        self._moment = moment
        self.proxy: CuttingProxy | None = None
        self.cuts = 0

    async def handle(self, body: bytes) -> bytes:
        [task] = node_pb2.NodeRequest.FromString(body).tasks
        here = self._stage == task.task_id
        if here and self._moment == MOMENTS[0]:
            await self._cut()
        answer = await self._node.handle(body)
        if here and self._moment == MOMENTS[1]:
            await self._cut()
        return answer

    async def _cut(self) -> None:
        assert self.proxy is not None
        self.cuts += 1
        self.proxy.cut()
        await asyncio.sleep(0.02)  # let the break be noticed before going on


@asynccontextmanager
async def office(
    handlers: dict[str, NodeHandler],
    through_proxy: set[str],
    settings: GrpcServerSettings = FAST,
) -> AsyncIterator[tuple[GrpcServer, CuttingProxy]]:
    """A gRPC server; nodes of `through_proxy` reach it through a proxy."""
    house = House()
    async with AsyncExitStack() as stack:
        grpc_server, port = await stack.enter_async_context(
            open_grpc_server(house, settings)
        )
        proxy, detour = await stack.enter_async_context(cutting_proxy(port))
        near = {n: h for n, h in handlers.items() if n not in through_proxy}
        far = {n: h for n, h in handlers.items() if n in through_proxy}
        await stack.enter_async_context(connect_nodes(house, port, near))
        await stack.enter_async_context(connect_nodes(house, detour, far))
        assert not await grpc_server.wait_for(handlers, timeout_s=60)
        yield grpc_server, proxy


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    ("backend", "stage"), [(b, s) for b in sorted(NODE_BACKENDS) for s in stages_of(b)]
)
async def test_a_stream_cut_in_any_phase_and_resumed_gives_the_same_sum(
    backend: str, stage: str, moment: str
) -> None:
    # Of three nodes each deals and opens; of eight a sealed sum needs only some.
    count = 3 if backend == "sealed" else 8
    nodes = one_hot(count)
    victim = CutAt(nodes["n01"], stage, moment)
    async with office({**nodes, "n01": victim}, {"n01"}) as (grpc_server, proxy):
        victim.proxy = proxy
        outcome = await Sum(nodes, backend).run(grpc_server)
    assert isinstance(outcome, SecureSum)
    assert outcome.survivors == tuple(sorted(nodes))
    assert outcome.total == 2**count - 1
    assert victim.cuts == 1
    assert proxy.connections >= 2
    assert grpc_server.stats.reconnects >= 1


async def test_all_streams_cut_again_and_again_give_the_same_sum() -> None:
    nodes = one_hot(8)
    handled = 0

    class Cutting:
        """After every fifth piece of work, all connections break."""

        def __init__(self, node: SumNode) -> None:
            self._node = node

        async def handle(self, body: bytes) -> bytes:
            nonlocal handled
            answer = await self._node.handle(body)
            handled += 1
            if handled % 5 == 0:
                proxy.cut()
            return answer

    cutting: dict[str, NodeHandler] = {n: Cutting(node) for n, node in nodes.items()}
    async with office(cutting, set(nodes)) as (grpc_server, proxy):
        outcomes = [
            await Sum(nodes, cohort_id=f"c{number}").run(grpc_server)
            for number in range(3)
        ]
    for outcome in outcomes:
        assert isinstance(outcome, SecureSum)
        assert outcome.total == 2**8 - 1
    assert grpc_server.stats.reconnects >= 8


async def test_work_goes_on_while_the_stream_is_away() -> None:
    held = Echo("held", held=True)
    async with office({"held": held}, {"held"}) as (grpc_server, proxy):
        asking = asyncio.create_task(gather(grpc_server, request("held")))
        await held.started.wait()
        proxy.refusing = True
        proxy.cut()
        held.release.set()
        await asyncio.sleep(0.1)
        assert not asking.done()
        proxy.refusing = False
        assert await asking == [Answer("held", "r1", b"held#1:hello")]
    assert held.calls == 1
    assert grpc_server.stats.repeated == 1


async def test_a_node_that_does_not_come_back_is_given_up() -> None:
    held = Echo("held", held=True)
    settings = faster(FAST, return_s=0.2)
    async with office({"held": held}, {"held"}, settings) as (grpc_server, proxy):
        asking = asyncio.create_task(gather(grpc_server, request("held")))
        await held.started.wait()
        proxy.refusing = True
        proxy.cut()
        assert await asking == [Answer("held", "r1", failure="node-gone")]
        assert await gather(grpc_server, request("held", "r2")) == [
            Answer("held", "r2", failure="node-gone")
        ]
        assert await grpc_server.nodes() == []


async def test_a_node_expected_after_a_restart_is_waited_for() -> None:
    house, echo = House(), Echo("a")
    async with open_grpc_server(house, expected=("a", "b")) as (grpc_server, port):
        asking = asyncio.create_task(gather(grpc_server, request("a"), request("x")))
        await asyncio.sleep(0.05)
        async with connect_nodes(house, port, {"a": echo}):
            answers = await asking
    assert {answer.node_id: answer.failure for answer in answers} == {
        "a": None,
        "x": "not-connected",
    }


async def test_a_restarted_node_is_not_given_what_its_former_self_was_given() -> None:
    house = House()
    held, fresh = Echo("a", held=True), Echo("a")
    async with open_grpc_server(house) as (grpc_server, port):
        async with connect_nodes(house, port, {"a": held}):
            await grpc_server.wait_for(["a"], timeout_s=60)
            asking = asyncio.create_task(gather(grpc_server, request("a")))
            await held.started.wait()
        async with connect_nodes(house, port, {"a": fresh}):
            assert await asking == [Answer("a", "r1", failure="node-restarted")]
            [answer] = await gather(grpc_server, request("a", "r2"))
            assert answer.failure is None
    assert fresh.calls == 1


async def test_the_newer_of_two_streams_of_one_node_wins() -> None:
    house = House()
    async with open_grpc_server(house) as (grpc_server, port):
        async with connect_nodes(house, port, {"a": Echo("old")}) as old:
            await grpc_server.wait_for(["a"], timeout_s=60)
            async with connect_nodes(house, port, {"a": Echo("new")}):
                [error] = await asyncio.gather(old["a"], return_exceptions=True)
                assert "superseded" in str(error)
                [answer] = await gather(grpc_server, request("a"))
    assert answer.body == b"new#1:hello"


async def test_a_silent_node_loses_its_stream() -> None:
    """A connection that is up but carries nothing is no connection."""
    house = House()
    async with open_grpc_server(house, faster(FAST, heartbeat_s=0.1)) as (
        grpc_server,
        port,
    ):
        async with intruder_at(port) as mute:
            await mute.authenticate(house, house.identity("mute"))
            await mute.hear()
            assert await mute.status() == ("DEADLINE_EXCEEDED", "heartbeat-lost")
        assert await grpc_server.nodes() == []


@pytest.mark.parametrize("change", [lambda p: p.cut(), lambda p: None])
async def test_a_slow_handler_blocks_neither_heartbeats_nor_other_requests(
    change: Callable[[CuttingProxy], None],
) -> None:
    class OneSlow(Echo):
        async def handle(self, body: bytes) -> bytes:
            if body == b"slow":
                await self.release.wait()
                return b"at last"
            return body

    node = OneSlow("a", held=True)
    settings = faster(FAST, heartbeat_s=0.5)
    async with office({"a": node}, {"a"}, settings) as (grpc_server, proxy):
        slow = asyncio.create_task(gather(grpc_server, request("a", "slow", b"slow")))
        await asyncio.sleep(0.05)
        change(proxy)
        for number in range(20):
            [answer] = await gather(grpc_server, request("a", f"r{number}", b"quick"))
            assert answer.body == b"quick"
            await asyncio.sleep(0.1)  # in all longer than three heartbeats
        assert grpc_server.stats.ended["heartbeat-lost"] == 0
        node.release.set()
        assert (await slow)[0].body == b"at last"


async def test_the_window_bounds_what_is_out_to_a_node() -> None:
    held = Echo("a", held=True)
    async with office({"a": held}, set(), faster(FAST, window=3)) as (grpc_server, _):
        asked_all = [request("a", f"r{number}") for number in range(10)]
        asking = asyncio.create_task(gather(grpc_server, *asked_all))
        async with asyncio.timeout(LONG_S):
            while held.calls < 3:  # noqa: ASYNC110 - the node tells nobody else
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert held.calls == 3
        assert grpc_server.stats.requests == 3
        held.release.set()
        assert len(await asking) == 10
