"""A run that is interrupted or has no room on its disk goes on later."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.run_fixtures import (
    SMALL,
    as_json,
    command,
    environment,
    write,
)
from tests.wallflower.test_run_commands import invoke

SLOW = SMALL.replace(
    "means = [0.1, 0.9, 0.2]",
    'source = "callable"\nfunction = "tests.support.slow_rewards:reward"',
)


def _as_in_a_terminal() -> None:
    # A shell's background jobs, tests among them, inherit that SIGINT is ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow  # several processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_a_run_that_resumes_and_verifies(
    number: signal.Signals, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    process = subprocess.Popen(
        command("run", write(tmp_path, SLOW), "--run-dir", run_dir),
        cwd=tmp_path,
        env={**environment(), "WALLFLOWER_TEST_SLOW": str(tmp_path / "go")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_as_in_a_terminal,
    )
    try:
        deadline = time.monotonic() + 300
        while not (tmp_path / "go.asked").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        if number == signal.SIGINT:  # the first lets the round finish
            while not (run_dir / "pause").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            process.send_signal(number)
        _, said = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert f"wallflower resume {run_dir}" in said
    assert "Traceback" not in said
    code, status = invoke("status", run_dir)
    assert (code, "To go on: wallflower resume" in status) == (0, True)
    (tmp_path / "go").touch()
    done = subprocess.run(
        command("resume", run_dir, "--format", "json"),
        cwd=tmp_path,
        env={**environment(), "WALLFLOWER_TEST_SLOW": str(tmp_path / "go")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    result = as_json(done)
    assert result["winner"] == "b"
    assert result["cohorts"]["void"] == 3
    assert invoke("verify", run_dir)[0] == 0


def run_limited(
    experiment: Path, run_dir: Path, largest_file: int
) -> subprocess.CompletedProcess[str]:
    """Run where no file can grow beyond a size, as on a full disk."""
    limit = f'ulimit -f {largest_file // 1024}; exec "$@"'
    return subprocess.run(
        [
            "bash",
            "-c",
            limit,
            "bash",
            *command("run", experiment, "--run-dir", run_dir),
        ],
        cwd=run_dir.parent,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_full_disk_is_exit_4_and_the_run_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    run_dir = tmp_path / "run"
    # 6,000 invitations do not fit where the journal's foundation does.
    many = SMALL.replace("first-batch = 40", "first-batch = 2000").replace(
        "users = 60", "users = 600"
    )
    done = run_limited(write(tmp_path, many), run_dir, 128 * 1024)
    assert done.returncode == 4, done.stderr
    assert "make room, then `wallflower resume" in done.stderr
    assert "Traceback" not in done.stderr
    code, said = invoke("resume", run_dir)
    assert (code, '"b" is the best' in said) == (0, True)
    assert invoke("verify", run_dir)[0] == 0


def test_a_disk_that_is_full_from_the_start_leaves_nothing(tmp_path: Path) -> None:
    done = run_limited(write(tmp_path), tmp_path / "run", 2 * 1024)
    assert done.returncode == 4, done.stderr
    assert "cannot be written" in done.stderr
    assert "no run was begun: make room, then start it again" in done.stderr
    assert "resume" not in done.stderr
    assert not (tmp_path / "run").exists()
