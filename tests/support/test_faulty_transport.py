from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from tests.support.faulty_transport import Faults, FaultyTransport
from tests.support.transport_contract import (
    Echo,
    StoppingTransportContract,
    gather,
    request,
)
from tests.support.virtual_time import in_virtual_time, run_virtually
from wallflower.protocol.errors import InputError
from wallflower.protocol.messages.port import NodeHandler, NodeTransport
from wallflower.strategy.transport.memory import MemoryTransport

SHORT_S = 1.0


class TestFaultyTransportWithoutFaults(StoppingTransportContract):
    @asynccontextmanager
    async def open_transport(
        self, handlers: Mapping[str, NodeHandler]
    ) -> AsyncIterator[NodeTransport]:
        yield FaultyTransport(MemoryTransport(handlers), Faults(), seed=1)


class TestFaultyTransportWithHarmlessFaults(StoppingTransportContract):
    """Duplicates and delays alone must not be visible to a caller who waits."""

    @asynccontextmanager
    async def open_transport(
        self, handlers: Mapping[str, NodeHandler]
    ) -> AsyncIterator[NodeTransport]:
        faults = Faults(duplicate=1.0, delay=0.5, delay_s=0.01)
        yield FaultyTransport(MemoryTransport(handlers), faults, seed=1)


async def outcome(faults: Faults, seed: int = 7, nodes: int = 12) -> dict[str, bytes]:
    echoes = {f"n{i}": Echo(f"n{i}") for i in range(nodes)}
    port = FaultyTransport(MemoryTransport(echoes), faults, seed)
    answers = await gather(port, *map(request, echoes), timeout_s=SHORT_S)
    return {answer.node_id: answer.body for answer in answers}


@in_virtual_time
async def test_a_lost_request_never_reaches_the_node() -> None:
    echo = Echo("a")
    port = FaultyTransport(
        MemoryTransport({"a": echo}), Faults(lose_request=1.0), seed=1
    )
    assert await gather(port, request("a"), timeout_s=SHORT_S) == []
    assert echo.calls == 0
    assert port.injected == {"lose_request": 1}


@in_virtual_time
async def test_a_lost_answer_was_computed() -> None:
    echo = Echo("a")
    port = FaultyTransport(
        MemoryTransport({"a": echo}), Faults(lose_answer=1.0), seed=1
    )
    assert await gather(port, request("a"), timeout_s=SHORT_S) == []
    assert echo.calls == 1


@in_virtual_time
async def test_a_replay_reaches_the_node_but_not_the_caller() -> None:
    echo = Echo("a")
    port = FaultyTransport(MemoryTransport({"a": echo}), Faults(replay=1.0), seed=1)
    [answer] = await gather(port, request("a"), timeout_s=SHORT_S)
    assert echo.calls == 2
    assert answer.request_id == "r1"


@in_virtual_time
async def test_corruption_changes_bodies_both_ways() -> None:
    clean = await outcome(Faults())
    assert all(body.endswith(b"hello") for body in clean.values())
    requests = await outcome(Faults(corrupt_request=1.0))
    assert all(body.startswith(b"n") for body in requests.values())
    assert any(body != clean[node] for node, body in requests.items())
    answers = await outcome(Faults(corrupt_answer=1.0))
    assert all(body != clean[node] for node, body in answers.items())


@in_virtual_time
async def test_a_crashed_node_stays_dead() -> None:
    echoes = {f"n{i}": Echo(f"n{i}") for i in range(24)}
    port = FaultyTransport(
        MemoryTransport(echoes), Faults(crash=1.0, crash_steps=2), seed=3
    )
    for step in range(3):
        answers = await gather(
            port, *(request(name, f"r{step}") for name in echoes), timeout_s=SHORT_S
        )
    assert answers == []
    assert await port.nodes() == []
    # A crash before the work costs the call; one after it costs only the answer.
    assert {echo.calls for echo in echoes.values()} == {0, 1, 2}


@in_virtual_time
async def test_a_delay_lets_later_answers_overtake() -> None:
    echoes = {f"n{i}": Echo(f"n{i}") for i in range(12)}
    port = FaultyTransport(
        MemoryTransport(echoes), Faults(delay=0.5, delay_s=0.05), seed=5
    )
    answers = await gather(port, *map(request, echoes))
    order = [answer.node_id for answer in answers]
    assert order != sorted(order, key=lambda name: int(name[1:]))
    assert len(order) == len(echoes)


@in_virtual_time
async def test_the_same_seed_gives_the_same_faults_whatever_the_order() -> None:
    faults = Faults(lose_request=0.5, corrupt_answer=0.5)
    first = await outcome(faults, seed=11)
    echoes = {f"n{i}": Echo(f"n{i}") for i in reversed(range(12))}
    port = FaultyTransport(MemoryTransport(echoes), faults, seed=11)
    answers = await gather(port, *map(request, echoes), timeout_s=SHORT_S)
    assert {answer.node_id: answer.body for answer in answers} == first
    assert await outcome(faults, seed=12) != first


@in_virtual_time
async def test_a_cancelled_ask_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    held = Echo("held", held=True)
    port = FaultyTransport(
        MemoryTransport({"held": held}), Faults(duplicate=1.0), seed=1
    )
    asking = asyncio.create_task(gather(port, request("held")))
    await held.started.wait()
    asking.cancel()
    await asyncio.wait([asking])
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("bad", [-0.1, 1.5])
def test_a_fault_must_be_a_probability(bad: float) -> None:
    with pytest.raises(InputError, match="lose-answer"):
        Faults(lose_answer=bad)


def test_climates_differ_by_seed_and_repeat_by_seed() -> None:
    climates = [Faults.drawn(seed) for seed in range(50)]
    assert len(set(climates)) > 40
    assert climates == [Faults.drawn(seed) for seed in range(50)]


def test_a_node_that_is_away_is_not_listed_and_answers_when_it_is_back() -> None:
    async def watch() -> tuple[list[int], int, dict[str, int]]:
        echoes = {f"n{i}": Echo(f"n{i}") for i in range(20)}
        port = FaultyTransport(MemoryTransport(echoes), Faults(flap=0.5), seed=3)
        answers = await gather(port, *map(request, echoes), timeout_s=60)
        listed = []
        for _ in range(10):
            listed.append(len(await port.nodes()))
            await asyncio.sleep(1)
        return listed, len(answers), port.injected

    listed, answered, injected = run_virtually(watch())
    assert answered == 20
    assert injected["flap"] > 0
    assert min(listed) < max(listed) < 20  # it shrinks and it grows
    assert (listed, answered, injected) == run_virtually(watch())
