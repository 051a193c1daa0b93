"""So many polls are answered at a time; the next one is told to come again."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from wallflower.serve.polls import BusyError, Polls, VisitorMetrics
from wallflower.strategy.transport.visitors.handler import PollResult


class Held:
    """A handler that answers when it is let."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.handled = 0

    async def handle(self, body: bytes) -> PollResult:
        self.handled += 1
        await self.release.wait()
        return PollResult(body, "seat")


async def test_a_poll_beyond_those_that_may_wait_is_not_answered() -> None:
    held = Held()
    polls = Polls(held, VisitorMetrics(CollectorRegistry()), most_waiting=2)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(polls.answer(body)) for body in (b"1", b"2")]
        await asyncio.sleep(0)  # both are in
        with pytest.raises(BusyError):
            await asyncio.wait_for(polls.answer(b"3"), 60)
        held.release.set()
    assert [task.result().reply for task in waiting] == [b"1", b"2"]
    assert (await polls.answer(b"4")).reply == b"4"  # places are given back
    assert held.handled == 3
