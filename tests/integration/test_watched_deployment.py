"""Runs of a deployment on the live page, while they go on, beside others."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from tests.integration import test_flower_homes
from tests.integration.test_flower_homes import experiment, homes, run
from tests.support.run_fixtures import write
from tests.wallflower.test_run_commands import invoke
from wallflower.keys.store import KeyStore
from wallflower.strategy.store import events
from wallflower.strategy.store.event_log import EventLog
from wallflower.watching.site import Site

keys = test_flower_homes.keys  # the fixture


class Held:
    """Writes a run's events as its ServerApp does, and holds its first round."""

    def __init__(self, log: EventLog, loop: asyncio.AbstractEventLoop) -> None:
        self.begun, self.go_on = asyncio.Event(), threading.Event()
        self._log, self._loop = log, loop

    async def listen(self, event: events.Event) -> None:
        await self._log.listen(event)
        if isinstance(event, events.RoundStarted) and event.number == 1:
            self._loop.call_soon_threadsafe(self.begun.set)
            await asyncio.to_thread(self.go_on.wait)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    words = ("--engine", "fast", "--run-dir", tmp_path / "other")
    assert invoke("run", write(tmp_path), *words)[0] == 0
    return tmp_path / "other"


async def test_a_deployment_is_followed_to_its_end_beside_another_run(
    keys: KeyStore, other: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    nodes = homes(keys, tmp_path / "homes")
    asked_for = experiment(keys, "grpc")
    run_dir.mkdir(mode=0o700)
    with EventLog(run_dir) as log:
        held = Held(log, asyncio.get_running_loop())
        server = asyncio.create_task(
            asyncio.to_thread(run, asked_for, nodes, run_dir, held.listen)
        )
        try:
            await held.begun.wait()
            site = Site([run_dir, other])
            await site.begin()
            assert "Round 1: 90 people are asked" in site.runs[0].parts["now"]
            assert "Round 1: 90 people are asked" in site.runs[0].card
            assert "“b” is the best of 3 arms." in site.runs[1].card
        finally:
            held.go_on.set()
            await server
        site.end()
        await site.keep()  # the last look
    assert "The run is over: one arm is left." in site.runs[0].parts["now"]
    assert "“b” is the best of 3 arms." in site.runs[0].card
