"""Stopping without loss: the round under way finishes, nobody is lost, it goes on."""

from __future__ import annotations

import asyncio
import datetime
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.run_fixtures import (
    SMALL,
    as_json,
    command,
    environment,
    wallflower,
    write,
)
from tests.support.virtual_time import in_virtual_time
from tests.wallflower.test_interrupted_runs import _as_in_a_terminal
from tests.wallflower.test_run_commands import invoke
from wallflower.engines.registry import EngineJob
from wallflower.engines.stopping import (
    FINISHING,
    FINISHING_SEATS,
    StopRequests,
    run_until_stopped,
    seconds_until,
)
from wallflower.protocol.errors import InputError
from wallflower.serve.orchestrator import orchestrate
from wallflower.strategy.config import load_config
from wallflower.strategy.store import events
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import requests_of

ARRIVING = """
[experiment]
name = "arriving"
arms = ["a", "b"]
horizon = 400
[visitors]
admission = "open"
[rewards]
means = [0.1, 0.9]
"""
# Six people an arm and so sure a test: one round decided in 0 of 20,000 simulations.
SLOW = (
    SMALL.replace("first-batch = 40", "first-batch = 6")
    .replace("[policy]", "failure-probability = 1e-6\n[policy]")
    .replace(
        "means = [0.1, 0.9, 0.2]",
        'source = "callable"\nfunction = "tests.support.slow_rewards:reward"',
    )
)
ROUND = events.RoundStarted(1, 1, (0, 1, 2), 36)
WAITING = events.WaitingForNodes(1, 12, 36, 3, 600.0)


def by_ctrl_c(process: subprocess.Popen[str], run_dir: Path) -> None:
    process.send_signal(signal.SIGINT)


def by_command(process: subprocess.Popen[str], run_dir: Path) -> None:
    assert wallflower("pause", run_dir, cwd=run_dir.parent).returncode == 0


@pytest.mark.slow  # several processes
@pytest.mark.parametrize("stop", [by_ctrl_c, by_command])
def test_the_round_under_way_finishes_and_nobody_who_was_asked_is_lost(
    stop: Callable[[subprocess.Popen[str], Path], None], tmp_path: Path
) -> None:
    run_dir, go = tmp_path / "run", tmp_path / "go"
    surroundings = {**environment(), "WALLFLOWER_TEST_SLOW": str(go)}
    process = subprocess.Popen(
        command("run", write(tmp_path, SLOW), "--run-dir", run_dir),
        cwd=tmp_path,
        env=surroundings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_as_in_a_terminal,
    )
    try:
        deadline = time.monotonic() + 300
        while not (tmp_path / "go.asked").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        stop(process, run_dir)
        while (
            not requests_of(run_dir).is_pause_requested()
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        go.touch()
        _, said = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "paused after round 1; nobody who was asked is lost" in said
    told = as_json(wallflower("status", run_dir, "--format", "json", cwd=tmp_path))
    assert (told["rounds"], told["users"]["lost"], told["cohorts"]["void"]) == (1, 0, 0)
    done = subprocess.run(
        command("resume", run_dir, "--format", "json"),
        cwd=tmp_path,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert as_json(done)["winner"] == "b"
    assert invoke("verify", run_dir)[0] == 0
    invoke("report", run_dir)
    page = (run_dir / "report.html").read_text(encoding="utf-8")
    assert "The run was paused before round 2." in page


def test_a_run_that_nobody_works_on_cannot_be_paused(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    assert invoke("run", write(tmp_path), "--run-dir", run_dir)[0] == 0
    code, said = invoke("pause", run_dir)
    assert (code, "no server works on" in said) == (4, True)
    assert not requests_of(run_dir).is_pause_requested()


@pytest.mark.parametrize("clock", ["25:00", "6:30", "noon", "06:30:01"])
def test_a_time_that_is_none_is_refused_before_anything_is_written(
    clock: str, tmp_path: Path
) -> None:
    words = ("run", write(tmp_path), "--run-dir", tmp_path / "run", "--until", clock)
    code, said = invoke(*words)
    assert (code, "HH:MM" in said) == (2, True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("clock", "day"), [("18:00", " tomorrow"), ("23:00", "")])
def test_which_day_is_meant_is_said_before_the_run_begins(
    clock: str, day: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.datetime(2026, 11, 16, 18, 0, tzinfo=datetime.UTC)
    monkeypatch.setattr("wallflower.engines.run._read_clock", lambda: now)
    command_line = ("run", write(tmp_path), "--run-dir", tmp_path / "run")
    code, said = invoke(*command_line, "--until", clock)
    assert (code, f"No round begins after {clock}{day}." in said) == (0, True)


def test_a_time_of_day_that_is_past_means_tomorrow() -> None:
    now = datetime.datetime(2026, 11, 16, 18, 0, tzinfo=datetime.UTC)
    assert seconds_until("18:30", now) == 1800
    assert seconds_until("18:00", now) == 86_400
    with pytest.raises(InputError):
        seconds_until("24:00", now)


async def told(
    tmp_path: Path,
    heard: events.Event,
    until_s: float,
    text: str = SMALL,
) -> tuple[bool, list[str]]:
    """Return whether an engine came to its round's end, and what was said."""
    ended, said = False, list[str]()

    async def engine(job: EngineJob) -> None:
        nonlocal ended
        await job.listen(heard)
        while not requests_of(job.run_dir).is_pause_requested():  # noqa: ASYNC110 (a file tells nobody)
            await asyncio.sleep(0.01)
        ended = True

    config = load_config(write(tmp_path, text))
    job = EngineJob(config, tmp_path, "run", events.ignore)
    requests = StopRequests(job, said.append)
    work = run_until_stopped(engine, job, requests, until_s)
    task = asyncio.create_task(work)
    await asyncio.wait([task])
    return ended, said


@in_virtual_time
async def test_when_the_time_has_come_the_round_under_way_finishes(
    tmp_path: Path,
) -> None:
    assert await told(tmp_path, ROUND, 0.0) == (True, [FINISHING])


@in_virtual_time
async def test_seats_and_answers_are_kept_whenever_a_run_is_stopped(
    tmp_path: Path,
) -> None:
    assert await told(tmp_path, ROUND, 0.0, ARRIVING) == (True, [FINISHING_SEATS])


async def test_an_orchestrator_that_was_paused_says_how_to_go_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def stop(job: EngineJob) -> None:
        requests_of(job.run_dir).request_pause()

    monkeypatch.setattr("wallflower.serve.orchestrator.run_visitors", stop)
    run_dir = tmp_path / "run"
    Journal.create(run_dir, "r1", load_config(write(tmp_path)), "local").close()
    await orchestrate(run_dir)
    assert f"paused; to go on: wallflower resume {run_dir}" in capsys.readouterr().err


@in_virtual_time
async def test_a_run_that_waits_for_nodes_stops_at_once(tmp_path: Path) -> None:
    assert await told(tmp_path, WAITING, 0.05) == (False, [])
