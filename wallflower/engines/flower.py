"""Carry a job by `flwr run`: what the simulation and the deployment engine share.

The ServerApp runs in a process of Flower's. It gets the experiment and the run
directory by the run config, writes journal and events there, and leaves a note when it
fails; here the events become the live view and the note becomes the error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from wallflower.clients.rewards.local import FUNCTION_FAILED
from wallflower.engines.process import FlowerRun, FlowerSite, flwr_run
from wallflower.engines.registry import EngineJob
from wallflower.engines.server_watch import while_server_lives
from wallflower.protocol import errors
from wallflower.protocol.errors import (
    UnavailableError,
    WallflowerError,
    first_error,
)
from wallflower.strategy.server_app_files import FAILURE_FILE
from wallflower.strategy.store import event_log

_log = logging.getLogger(__name__)
LOG_FILE = "flower.log"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def app_folder() -> Path:
    """Find the Flower app that the installed package carries."""
    return Path(__file__).resolve().parent.parent / "app"


async def carry(
    job: EngineJob,
    site: FlowerSite,
    engine: str,
    federation: Mapping[str, int | float] | None = None,
) -> None:
    """Submit the app and follow it to its end; raises what ended it early."""
    run_config = _run_config(job, engine)
    (job.run_dir / FAILURE_FILE).unlink(missing_ok=True)
    over = asyncio.Event()
    start = event_log.size(job.run_dir)
    tail: deque[str] = deque(maxlen=20)
    shown: set[str] = set()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_relay(job, over, start))
            try:
                with (job.run_dir / LOG_FILE).open("a", 1, encoding="utf-8") as log:

                    def keep(line: str) -> None:
                        plain = _COLOURS.sub("", line)
                        log.write(plain + "\n")
                        tail.append(plain)
                        _show_failure(plain, shown)

                    async with while_server_lives(job.run_dir):
                        run = await flwr_run(
                            site, app_folder(), run_config, federation, on_line=keep
                        )
            finally:
                over.set()
    except BaseExceptionGroup as failures:
        raise first_error(failures) from None
    _judge(job, run, tail)


def _show_failure(line: str, shown: set[str]) -> None:
    """Show once what simulated nodes log of their reward function's failures."""
    _, mark, rest = line.partition(FUNCTION_FAILED)
    if mark and rest not in shown:
        shown.add(rest)
        _log.warning("%s%s", mark, rest)


def _run_config(job: EngineJob, engine: str) -> Path:
    """Write the run config that the app gets."""
    values = {
        "config": job.config.canonical(),
        "run-dir": str(job.run_dir.resolve()),
        "engine": engine,
    }
    path = job.run_dir / "flower" / "run-config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    # JSON's strings are TOML's basic strings.
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


async def _relay(job: EngineJob, over: asyncio.Event, start: int) -> None:
    async for event in event_log.follow(job.run_dir, over, offset=start):
        await job.listen(event)


def _judge(job: EngineJob, run: FlowerRun, tail: deque[str]) -> None:
    """Raise the error that the ServerApp noted, or that Flower knows of."""
    note = job.run_dir / FAILURE_FILE
    if note.exists():
        raise _noted(json.loads(note.read_text(encoding="utf-8")))
    if not run.completed:
        last = next((line for line in reversed(tail) if "ERROR" in line), "")
        raise UnavailableError(
            f"Flower's run {run.run_id} ended as {run.status}; see "
            f"{job.run_dir / LOG_FILE} {last.strip()}".rstrip()
        )


def _noted(note: Mapping[str, str | int]) -> WallflowerError:
    """Make the error again that ended the ServerApp, with its exit code.

    Its class may live in a module that only the ServerApp imports.
    """
    found = getattr(errors, str(note["error"]), WallflowerError)
    kind = found if issubclass(found, WallflowerError) else WallflowerError
    error: WallflowerError = kind.__new__(kind)
    Exception.__init__(error, str(note["text"]))
    error.exit_code = int(note["exit"])
    return error
