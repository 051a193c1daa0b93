from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest

from wallflower.strategy.bandit.policy import ArmView, EliminationReason
from wallflower.strategy.store import events
from wallflower.strategy.store.event_log import (
    FILE_NAME,
    EventLog,
    decode,
    encode,
    follow,
    size,
)

FAR = EliminationReason(1, 0.25, chance=0.01)
VIEW = ArmView(0, 12, None, -math.inf, math.inf, False, 3, FAR)
EVENTS: tuple[events.Event, ...] = (
    events.RunStarted("r", ("a", "b"), 3, 30, 30, 0),
    events.CohortEnded("c", 0, 1, 9, 1, "too-few", (("late", 2), ("x", 1)), 0.5),
    events.RoundFinished(1, (VIEW, VIEW), 10, 9, 1, None, 0.25),
)


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_comes_back_as_it_was(event: events.Event) -> None:
    assert decode(encode(event)) == event
    assert "\n" not in encode(event)


async def collect(run_dir: Path, over: asyncio.Event, offset: int = 0) -> list[object]:
    return [event async for event in follow(run_dir, over, offset=offset)]


async def test_a_follower_hears_what_is_written_while_it_listens(
    tmp_path: Path,
) -> None:
    over = asyncio.Event()
    following = asyncio.create_task(collect(tmp_path, over))
    await asyncio.sleep(0.01)
    with EventLog(tmp_path) as log:
        for event in EVENTS:
            await log.listen(event)
            await asyncio.sleep(0.03)
    over.set()
    assert await following == list(EVENTS)


async def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    over, line = asyncio.Event(), encode(EVENTS[0]) + "\n"
    following = asyncio.create_task(collect(tmp_path, over))
    path = tmp_path / FILE_NAME
    path.write_text(line[:20])
    await asyncio.sleep(0.1)
    path.write_text(line)
    over.set()
    assert await following == [EVENTS[0]]


async def test_what_an_earlier_run_wrote_is_not_told_again(tmp_path: Path) -> None:
    with EventLog(tmp_path) as log:
        await log.listen(EVENTS[0])
    offset = size(tmp_path)
    with EventLog(tmp_path) as log:
        await log.listen(EVENTS[1])
    over = asyncio.Event()
    over.set()
    assert await collect(tmp_path, over, offset) == [EVENTS[1]]


async def test_a_run_that_never_wrote_ends_without_events(tmp_path: Path) -> None:
    over = asyncio.Event()
    over.set()
    assert await collect(tmp_path, over) == []
    assert size(tmp_path) == 0


async def test_a_line_that_a_crash_cut_short_costs_no_later_event(
    tmp_path: Path,
) -> None:
    (tmp_path / FILE_NAME).write_text(encode(EVENTS[0]) + "\n" + '{"event":"Coh')
    with EventLog(tmp_path) as log:
        await log.listen(EVENTS[1])
    over = asyncio.Event()
    over.set()
    assert await collect(tmp_path, over) == [EVENTS[0], EVENTS[1]]


@pytest.mark.parametrize("line", ["[]", "{}", '{"event":"Later"}', "null", "{"])
async def test_what_is_no_event_is_passed_over(tmp_path: Path, line: str) -> None:
    (tmp_path / FILE_NAME).write_text(f"{line}\n{encode(EVENTS[0])}\n")
    over = asyncio.Event()
    over.set()
    assert await collect(tmp_path, over) == [EVENTS[0]]
