from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from tests.support.transport_contract import LONG_S, TransportContract, gather
from tests.support.virtual_time import in_virtual_time
from wallflower.protocol.messages.port import (
    Answer,
    NodeHandler,
    NodeTransport,
    Request,
)
from wallflower.protocol.wire.node_pb2 import (
    CloseCohort,
    Closed,
    NodeAnswer,
    NodeRequest,
    Task,
    TaskAnswer,
)
from wallflower.strategy.transport.bundling import BundlingTransport
from wallflower.strategy.transport.memory import MemoryTransport


class TestBundlingTransport(TransportContract):
    @asynccontextmanager
    async def open_transport(
        self, handlers: Mapping[str, NodeHandler]
    ) -> AsyncIterator[NodeTransport]:
        async with BundlingTransport(MemoryTransport(handlers)) as transport:
            yield transport


class Worker:
    """Answers every task; remembers the tasks of each message; can be held back."""

    def __init__(self, *, held: bool = False) -> None:
        self.messages: list[list[str]] = []
        self.under_way = 0
        self.most_under_way = 0
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        if not held:
            self.release.set()

    async def handle(self, body: bytes) -> bytes:
        request = NodeRequest.FromString(body)
        self.messages.append([task.task_id for task in request.tasks])
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        self.started.set()
        await self.release.wait()
        self.under_way -= 1
        return NodeAnswer(
            answers=[
                TaskAnswer(task_id=t.task_id, closed=Closed()) for t in request.tasks
            ]
        ).SerializeToString()


def work(node: str, *tasks: str, run: str = "run") -> Request:
    body = NodeRequest(
        run_id=run,
        tasks=[Task(task_id=t, close=CloseCohort(cohort_id=t)) for t in tasks],
    ).SerializeToString()
    return Request(node, "/".join((run, *tasks)), body)


def tasks_of(answers: Sequence[Answer]) -> list[list[str]]:
    return [
        [task.task_id for task in NodeAnswer.FromString(answer.body).answers]
        for answer in answers
    ]


async def test_requests_ready_together_travel_as_one_message_and_part_again() -> None:
    worker = Worker()
    async with BundlingTransport(MemoryTransport({"n": worker})) as transport:
        one, two, three = await asyncio.gather(
            gather(transport, work("n", "a", "b")),
            gather(transport, work("n", "c")),
            gather(transport, work("n", "d")),
        )
    assert worker.messages == [["a", "b", "c", "d"]]
    assert [tasks_of(one), tasks_of(two), tasks_of(three)] == [
        [["a", "b"]],
        [["c"]],
        [["d"]],
    ]


@in_virtual_time
async def test_a_busy_node_gets_the_next_bundle_only_when_it_is_free() -> None:
    worker = Worker(held=True)
    async with BundlingTransport(MemoryTransport({"n": worker})) as transport:
        async with asyncio.TaskGroup() as group:
            group.create_task(gather(transport, work("n", "a")))
            await worker.started.wait()
            group.create_task(gather(transport, work("n", "b")))
            group.create_task(gather(transport, work("n", "c")))
            await asyncio.sleep(0.05)
            worker.release.set()
    assert worker.messages == [["a"], ["b", "c"]]
    assert worker.most_under_way == 1


async def test_equal_task_ids_and_other_runs_are_never_bundled() -> None:
    worker = Worker()
    async with BundlingTransport(MemoryTransport({"n": worker})) as transport:
        await asyncio.gather(
            gather(transport, work("n", "a")),
            gather(transport, work("n", "a", "b")),
            gather(transport, work("n", "c", run="other")),
        )
    assert worker.messages == [["a"], ["a", "b"], ["c"]]


async def test_a_slow_node_holds_up_no_other() -> None:
    slow, fast = Worker(held=True), Worker()
    async with BundlingTransport(
        MemoryTransport({"slow": slow, "fast": fast})
    ) as transport:
        asking = asyncio.create_task(
            gather(transport, work("slow", "a"), timeout_s=LONG_S)
        )
        await slow.started.wait()
        answers = await gather(transport, work("fast", "b"))
        slow.release.set()
        await asking
    assert tasks_of(answers) == [["b"]]


@in_virtual_time
async def test_what_is_abandoned_in_the_queue_is_never_sent() -> None:
    worker = Worker(held=True)
    async with BundlingTransport(MemoryTransport({"n": worker})) as transport:
        first = asyncio.create_task(gather(transport, work("n", "a")))
        await worker.started.wait()
        assert await gather(transport, work("n", "b"), timeout_s=0.05) == []
        worker.release.set()
        await first
    assert worker.messages == [["a"]]
