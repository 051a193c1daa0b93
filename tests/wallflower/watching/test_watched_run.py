"""A watched run's page follows its events and its record."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.run_fixtures import SMALL, write
from tests.wallflower.test_run_commands import invoke
from wallflower.strategy.bandit.policy import ArmView
from wallflower.strategy.config import load_config
from wallflower.strategy.store import events
from wallflower.strategy.store.entries import Met
from wallflower.strategy.store.event_log import EventLog
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import requests_of
from wallflower.watching.run import PARTS, WatchedRun
from wallflower.watching.site import Site

ARMS = ("a", "b", "c")
STARTED = events.RunStarted("run", ARMS, 12, 720, 720, 0)
ROUND = events.RoundStarted(1, 1, (0, 1, 2), 120)
ASKED = events.CohortAsked("c1", 1, 1, 1, 1, 40, 12)
ENDED = events.CohortEnded("c1", 1, 1, 38, 2, None, (), 1.0)
VOID = events.CohortEnded("c1", 1, 1, 0, 40, "quorum-not-met", (), 1.0)
HEARD = events.CohortProgress("c1", 1, "contribute", 5, 12)
VIEWS = tuple(ArmView(n, 40, 0.5, 0.2, 0.8, True, None, asked=40) for n in range(3))
FINISHED = events.RoundFinished(1, VIEWS, 120, 120, 0, None, 1.0)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    config = load_config(write(tmp_path))
    Journal.create(directory, "fresh", config, "local").close()
    return directory


class Watcher:
    """A run, watched, and the server's side of its events."""

    def __init__(self, run_dir: Path, log: EventLog) -> None:
        self._changed = asyncio.Event()
        self.log = log
        self.run = WatchedRun(1, run_dir, self._changed.set)

    async def shows(self, part: str, text: str) -> str:
        """Wait until a part says this; pytest's own time limit ends it else."""
        while text not in self.run.parts.get(part, ""):
            self._changed.clear()
            await self._changed.wait()
        return self.run.parts[part]

    async def tell(self, *told: events.Event) -> None:
        for event in told:
            await self.log.listen(event)


@asynccontextmanager
async def watched(run_dir: Path) -> AsyncIterator[Watcher]:
    over = asyncio.Event()
    with EventLog(run_dir) as log:
        watcher = Watcher(run_dir, log)
        await watcher.run.begin()
        async with asyncio.TaskGroup() as group:
            group.create_task(watcher.run.keep(over))
            try:
                yield watcher
            finally:
                over.set()


async def test_a_run_without_a_server_says_how_to_go_on(run_dir: Path) -> None:
    async with watched(run_dir) as watcher:
        now = watcher.run.parts["now"]
        assert "No server works on this run." in now
        assert f"wallflower resume {run_dir}" in now


async def test_what_a_server_tells_is_on_the_page_at_once(run_dir: Path) -> None:
    with Journal.resume(run_dir):
        async with watched(run_dir) as watcher:
            await watcher.tell(STARTED, ROUND, ASKED, HEARD)
            now = await watcher.shows("now", "contribute: 5 of 12 nodes heard")
            assert "Round 1: 120 people are asked about 3 arms." in now
            assert 'max="12"' in now


async def test_a_cohort_that_ended_stays_on_the_page_until_its_round_is_over(
    run_dir: Path,
) -> None:
    again = dataclasses.replace(ASKED, cohort_id="c2", attempt=2)
    with Journal.resume(run_dir):
        async with watched(run_dir) as watcher:
            await watcher.tell(STARTED, ROUND, ASKED, HEARD, VOID)
            now = await watcher.shows("now", "no sum (quorum not met)")
            assert "about 3 arms" in now
            await watcher.tell(again, dataclasses.replace(ENDED, cohort_id="c2"))
            now = await watcher.shows("now", "done: 38 of 40 answered")
            assert "no sum" not in now
            await watcher.tell(FINISHED)
            assert "done:" not in await watcher.shows("now", "Round 1 is finished.")


async def test_a_run_with_a_server_is_labelled_as_under_way(run_dir: Path) -> None:
    async with watched(run_dir) as watcher:
        assert ">not finished<" in watcher.run.parts["verdict"]
        with Journal.resume(run_dir):
            await watcher.tell(STARTED, ROUND)
            await watcher.shows("verdict", ">under way<")


async def test_the_arms_are_drawn_from_the_events_before_the_record_is_verified(
    run_dir: Path,
) -> None:
    with Journal.resume(run_dir):
        async with watched(run_dir) as watcher:
            assert watcher.run.parts["arms"] == ""
            await watcher.tell(STARTED, ROUND, FINISHED)
            arms = await watcher.shows("arms", "Estimates after round 1")
            assert "0.200 – 0.800" in arms


async def test_a_server_that_dies_and_one_that_goes_on_are_both_seen(
    run_dir: Path,
) -> None:
    async with watched(run_dir) as watcher:
        with Journal.resume(run_dir):
            await watcher.tell(STARTED, ROUND, ASKED, HEARD)
            await watcher.shows("now", "under way")
        dead = await watcher.shows("now", "No server works on this run.")
        assert "contribute" not in dead
        with Journal.resume(run_dir):
            await watcher.tell(dataclasses.replace(STARTED, rounds_done=0))
            assert "contribute" not in await watcher.shows("now", "under way")


async def test_a_request_to_pause_is_shown(run_dir: Path) -> None:
    with Journal.resume(run_dir):
        async with watched(run_dir) as watcher:
            await watcher.tell(STARTED, ROUND)
            requests_of(run_dir).request_pause()
            now = await watcher.shows("now", "It stops after this round, as it was")
            assert "under way" in now


async def test_nodes_that_are_waited_for_are_shown_until_the_round_begins(
    run_dir: Path,
) -> None:
    waiting = events.WaitingForNodes(3, 12, 120, 30, 600.0, "3 reward-source-down")
    with Journal.resume(run_dir):
        async with watched(run_dir) as watcher:
            await watcher.tell(STARTED, waiting)
            now = await watcher.shows("now", "3 of 12 are there")
            assert "(3 reward-source-down)" in now
            await watcher.tell(ROUND)
            assert "Waiting" not in await watcher.shows("now", "Round 1: 120")


async def test_a_name_cannot_become_markup_on_the_live_page(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>"
    config = load_config(write(tmp_path, SMALL.replace('"b"', json.dumps(name))))
    run_dir = tmp_path / "run"
    Journal.create(run_dir, "fresh", config, "local").close()
    with Journal.resume(run_dir):
        async with watched(run_dir) as watcher:
            await watcher.tell(STARTED, ROUND, ASKED, HEARD, FINISHED)
            await watcher.shows("arms", "&lt;script&gt;")
            assert not [p for p in watcher.run.parts.values() if "<script" in p]


async def test_how_many_can_still_be_asked_is_shown_as_soon_as_nodes_say_so(
    run_dir: Path,
) -> None:
    with Journal.resume(run_dir) as journal:
        async with watched(run_dir) as watcher:
            assert "can still be asked" not in watcher.run.parts["now"]
            journal.meet({"node-0": Met(60, 5), "node-1": Met(1200)})
            await watcher.tell(STARTED)
            words = "1,255 of 1,260 people can still be asked under these terms"
            now = await watcher.shows("now", words)
            assert "5 are left out by their nodes" in now


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run_dir = folder / "run"
    code, said = invoke("run", write(folder), "--run-dir", run_dir)
    assert code == 0, said
    return run_dir


async def test_the_parts_are_the_fragments_of_the_report(finished: Path) -> None:
    invoke("report", finished)
    report = (finished / "report.html").read_text()
    run = WatchedRun(1, finished, lambda: None)
    await run.begin()
    assert [part for part in PARTS if run.parts[part] not in report] == []
    assert "The run is over: one arm is left." in run.parts["now"]


async def test_the_page_counts_who_can_still_be_asked_as_status_does(
    finished: Path,
) -> None:
    users = json.loads(invoke("status", finished, "--format", "json")[1])["users"]
    run = WatchedRun(1, finished, lambda: None)
    await run.begin()
    able, people = users["can_be_asked"], users["people"]
    assert 0 < able < people
    assert f"{able:,} of {people:,} people can still be asked" in run.parts["now"]


async def test_an_end_is_known_from_the_record_where_the_events_are_gone(
    finished: Path, tmp_path: Path
) -> None:
    (tmp_path / "journal.sqlite").write_bytes(
        (finished / "journal.sqlite").read_bytes()
    )
    run = WatchedRun(1, tmp_path, lambda: None)
    await run.begin()
    assert "The run is over" in run.parts["now"]
    assert re.search(r"invited [1-9]", run.parts["now"])


async def test_a_record_that_was_changed_gets_a_banner_while_it_is_watched(
    run_dir: Path,
) -> None:
    with Journal.resume(run_dir):
        async with watched(run_dir) as watcher:
            with sqlite3.connect(run_dir / "journal.sqlite") as other:
                other.execute("UPDATE meta SET value = 'x' WHERE key = 'engine'")
            await watcher.tell(STARTED)
            await watcher.shows("banner", "The record does NOT hold")
            assert "The record does NOT hold" in watcher.run.parts["banner"]


async def test_a_record_that_vanishes_is_told_and_the_page_stays(
    run_dir: Path,
) -> None:
    async with watched(run_dir) as watcher:
        (run_dir / "journal.sqlite").rename(run_dir / "elsewhere")
        await watcher.tell(STARTED)
        await watcher.shows("banner", "The record cannot be read")
        assert "No round is finished yet." in watcher.run.parts["verdict"]


async def test_several_runs_have_a_card_each_and_links_to_their_pages(
    run_dir: Path, finished: Path
) -> None:
    site = Site([run_dir, finished])
    await site.begin()
    cards = [run.card for run in site.runs]
    assert 'href="/runs/1/"' in cards[0]
    assert "No round is finished yet." in cards[0]
    assert "“b” is the best of 3 arms." in cards[1]
