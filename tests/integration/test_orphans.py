"""SIGKILL of a run leaves nothing running that it had started."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.support.run_fixtures import command, environment, write

# So many rounds that it is never over before it is killed.
EXPERIMENT = """
[experiment]
name = "orphans"
arms = ["a", "b"]
failure-probability = 0.001
[policy]
first-batch = 12
[nodes]
count = 12
users = 4000
[rewards]
means = [0.5, 0.5]
[secure-sum]
backend = "shuffle"
shuffle = "mixed"
"""


def until(done: object, what: str) -> None:
    """Wait until a call says so; a minute is far more than it takes."""
    assert callable(done)
    deadline = time.monotonic() + 300
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.mark.slow  # three processes
@pytest.mark.parametrize("phase", ["just started", "serving"])
def test_a_killed_run_leaves_no_shuffler(phase: str, tmp_path: Path) -> None:
    words = command("run", write(tmp_path, EXPERIMENT), "--run-dir", tmp_path / "run")
    run = subprocess.Popen(
        words,
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    known = psutil.Process(run.pid)
    try:
        until(lambda: known.children(recursive=True), "no shuffler was started")
        started = known.children(recursive=True)
        if phase == "serving":
            log = tmp_path / "run" / "events.jsonl"
            until(
                lambda: log.exists() and "CohortEnded" in log.read_text(),
                "served",
            )
        assert all("shuffler" in child.cmdline() for child in started)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    _, alive = psutil.wait_procs(started, timeout=300)
    for child in alive:
        child.kill()
    assert alive == []
