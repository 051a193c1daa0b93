"""SIGKILL at any moment: the record holds, nobody is asked twice, the winner stands."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from protocol.errors import JournalError
from strategy.journal import Journal
from strategy.verify import verify
from tests.wallflower.run_fixtures import (
    as_json,
    command,
    environment,
    wallflower,
    write,
)

# Some ten rounds of four arms; the gap of 0.2 makes a wrong winner rarer than 1 in
# a thousand per run on top of the experiment's own 1/1000.
EXPERIMENT = """
[experiment]
name = "kill"
arms = ["a", "b", "c", "d"]
failure-probability = 0.001
[policy]
first-batch = 30
ratio = 1.2
[nodes]
count = 24
users = 800
[rewards]
means = [0.5, 0.55, 0.4, 0.75]
"""


def killed(run_dir: Path, words: list[str], after_s: float, seconds: float) -> bool:
    """Start a server and kill it; False when it had finished before.

    The clock starts once the journal has `after_s`'s worth of life in it: a kill while
    Python imports modules would show nothing.
    """
    process = subprocess.Popen(
        words,
        cwd=run_dir.parent,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    process.stderr.readline()  # nodes are there: the orchestrator works
    time.sleep(seconds * after_s)
    process.send_signal(signal.SIGKILL)
    process.stderr.close()
    return process.wait() == -signal.SIGKILL


def assert_record_holds(run_dir: Path) -> None:
    with Journal.read(run_dir) as journal:
        problems = [p for check in verify(journal) for p in check.problems]
        often = Counter(
            (node, user) for _, node, users in journal.invitations() for user in users
        )
    assert problems == []
    assert not often or max(often.values()) == 1


def kill_and_resume(tmp_path: Path, kills: int, seed: int) -> None:
    moments = random.Random(seed)
    experiment = write(tmp_path, EXPERIMENT)
    run_dir = tmp_path / "run"
    words = command("run", experiment, "--run-dir", run_dir)
    hit = 0
    while hit < kills:
        if not killed(run_dir, words, moments.random(), seconds=0.8):
            break  # finished before it could be killed; the rest resumes below
        hit += 1
        try:
            assert_record_holds(run_dir)
        except JournalError:
            assert not (run_dir / "journal.sqlite").exists()
            continue
        words = command("resume", run_dir)
    result = as_json(wallflower("resume", run_dir, "--format", "json", cwd=tmp_path))
    assert result["winner"] == "d"
    assert_record_holds(run_dir)
    with Journal.read(run_dir) as journal:
        stopped = [c for c in journal.cohorts() if c.reason == "server-stopped"]
    print(
        f"{hit} kills, {len(stopped)} cohorts void by them, {result['rounds']} rounds"
    )
    assert hit > 0
    done = wallflower("verify", run_dir, cwd=tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow  # starts a server several times, a second each
def test_a_server_killed_at_random_moments_resumes_to_the_same_winner(
    tmp_path: Path,
) -> None:
    kill_and_resume(tmp_path, kills=3, seed=5)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_server_killed_twenty_times_resumes_to_the_same_winner(
    tmp_path: Path,
) -> None:
    kill_and_resume(tmp_path, kills=20, seed=20)
