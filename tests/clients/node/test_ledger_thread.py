"""What waits for the ledger's thread together is done together."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from wallflower.clients.node.ledger import LedgerThread


class Recorded:
    """Keeps what was done in one go; the first go waits until it may begin."""

    def __init__(self) -> None:
        self.begun, self.may_begin = threading.Event(), threading.Event()
        self.goes: list[int] = []

    def __call__(self, works: Sequence[int]) -> list[Any]:
        self.begun.set()
        self.may_begin.wait(30)
        self.goes.append(len(works))
        return [ValueError(work) if work < 0 else 10 * work for work in works]


async def _waiting_behind_one(
    thread: LedgerThread[int], recorded: Recorded, works: Sequence[int]
) -> list[asyncio.Task[Any]]:
    first = asyncio.create_task(thread.submit(0))
    await asyncio.to_thread(recorded.begun.wait, 30)
    tasks = [asyncio.create_task(thread.submit(work)) for work in works]
    await asyncio.sleep(0)  # all of them wait now
    recorded.may_begin.set()
    await first
    return tasks


async def test_whoever_waits_at_the_same_time_is_served_in_one_go() -> None:
    recorded = Recorded()
    thread = LedgerThread(recorded)
    try:
        tasks = await _waiting_behind_one(thread, recorded, range(1, 201))
        assert await asyncio.gather(*tasks) == [10 * work for work in range(1, 201)]
        assert recorded.goes == [1, 200]
    finally:
        thread.close(lambda: None)


async def test_an_exception_reaches_only_whoever_caused_it() -> None:
    recorded = Recorded()
    thread = LedgerThread(recorded)
    try:
        good, bad, other = await _waiting_behind_one(thread, recorded, [1, -2, 3])
        assert await good == 10
        with pytest.raises(ValueError, match="-2"):
            await bad
        assert await other == 30
    finally:
        thread.close(lambda: None)


async def test_work_that_fails_as_a_whole_leaves_nobody_waiting() -> None:
    def broken(works: Sequence[int]) -> list[Any]:
        raise KeyError("nobody thought of it")

    thread = LedgerThread(broken)
    try:
        together = asyncio.gather(*map(thread.submit, range(3)), return_exceptions=True)
        told = await asyncio.wait_for(together, 30)
        assert [type(one) for one in told] == 3 * [KeyError]
    finally:
        thread.close(lambda: None)


async def test_whoever_stopped_waiting_holds_up_nobody() -> None:
    recorded = Recorded()
    thread = LedgerThread(recorded)
    try:
        gone, there = await _waiting_behind_one(thread, recorded, [1, 2])
        gone.cancel()
        assert await there == 20
        assert recorded.goes[-1] == 2
    finally:
        thread.close(lambda: None)


async def test_whoever_asks_in_the_same_turn_of_the_loop_is_served_in_one_go() -> None:
    recorded = Recorded()
    recorded.may_begin.set()
    thread = LedgerThread(recorded)
    try:
        assert await asyncio.gather(*map(thread.submit, range(200))) == [
            10 * work for work in range(200)
        ]
        assert recorded.goes == [200]
    finally:
        thread.close(lambda: None)


async def test_what_waits_when_the_thread_is_closed_is_still_done() -> None:
    recorded = Recorded()
    recorded.may_begin.set()
    thread = LedgerThread(recorded)
    asked = asyncio.create_task(thread.submit(7))
    await asyncio.sleep(0)  # it waits; the thread begins in the next turn of the loop
    thread.close(lambda: None)
    assert await asked == 70
    with pytest.raises(RuntimeError, match="closed"):
        await thread.submit(8)


def test_a_loop_that_stands_still_holds_up_no_other() -> None:
    recorded = Recorded()
    recorded.may_begin.set()
    thread = LedgerThread(recorded)
    still = asyncio.new_event_loop()
    try:
        asked = still.create_task(thread.submit(1))
        still.call_soon(still.stop)  # before the turn in which the thread would begin
        still.run_forever()
        assert asyncio.run(thread.submit(2)) == 20
        assert recorded.goes == [2]
        assert still.run_until_complete(asked) == 10
    finally:
        still.close()
        thread.close(lambda: None)
