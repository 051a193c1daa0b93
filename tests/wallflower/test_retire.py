"""``wallflower retire``: an arm is taken out by hand, under way or not."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.orchestration import config, world
from tests.support.run_fixtures import (
    SMALL,
    as_json,
    command,
    environment,
    wallflower,
    write,
)
from tests.wallflower.test_run_commands import invoke
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.strategy.config import (
    ExperimentSettings,
    PolicySettings,
    load_config,
)
from wallflower.strategy.store import events
from wallflower.strategy.store.events import Event
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import requests_of

# Three arms alike, in rounds of a dozen people each and arm.
EVEN = SMALL.replace("first-batch = 40", "first-batch = 12").replace(
    "means = [0.1, 0.9, 0.2]",
    'source = "callable"\nfunction = "tests.support.slow_rewards:even_reward"',
)


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was told to retire "a" and to stop in its first round."""
    folder = tmp_path_factory.mktemp("paused")
    run_dir, go = folder / "run", folder / "go"
    process = subprocess.Popen(
        command("run", write(folder, EVEN), "--run-dir", run_dir),
        cwd=folder,
        env={**environment(), "WALLFLOWER_TEST_SLOW": str(go)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 300
        while not (folder / "go.asked").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        told = wallflower("retire", run_dir, "a", "--reason", "a  rash", cwd=folder)
        assert "is retired when the round under way is over" in told.stdout
        status = wallflower("status", run_dir, "--format", "json", cwd=folder)
        assert as_json(status)["retiring"] == ["a"]
        assert wallflower("pause", run_dir, cwd=folder).returncode == 0
        go.touch()
        _, said = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "a is retired by hand from round 2 on: a rash" in said
    return run_dir


@pytest.fixture
def run_dir(paused: Path, tmp_path: Path) -> Path:
    (tmp_path / "go").touch()
    (tmp_path / "go.asked").touch()
    return Path(shutil.copytree(paused, tmp_path / "run"))


def status(run_dir: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(invoke("status", run_dir, "--format", "json")[1])
    return told


@pytest.mark.slow  # several processes
def test_a_run_under_way_retires_the_arm_at_its_rounds_end_and_all_say_so(
    run_dir: Path,
) -> None:
    told = status(run_dir)
    (retired,) = told["retired"]
    assert (retired["arm"], retired["before_round"]) == ("a", 2)
    assert retired["reason"] == "a rash"
    assert told["retiring"] == []
    said = " ".join(invoke("status", run_dir)[1].split())
    assert "retired after round 1" in said
    assert '"a" was retired by hand before round 2 (a rash).' in said
    code, checked = invoke("verify", run_dir)
    assert (code, "1 arm retired by hand" in checked) == (0, True)
    rows = invoke("export", run_dir, "--format", "csv")[1].splitlines()
    assert rows[0].endswith(",retired")
    assert [row.rpartition(",")[2] for row in rows[1:]] == ["True", "False", "False"]
    assert invoke("report", run_dir)[0] == 0
    page = (run_dir / "report.html").read_text(encoding="utf-8")
    assert "What was decided by hand" in page
    assert "“a” was retired before round 2." in page
    assert "Every decision followed from the sums" not in page
    assert "a rash" in page


def test_a_run_that_stands_retires_the_arm_at_once_and_ends_with_the_last(
    run_dir: Path,
) -> None:
    code, said = invoke("retire", run_dir, "c", "--reason", "out of stock")
    assert (code, "one arm is left and the run is over" in said) == (0, True)
    told = status(run_dir)
    assert (told["finished"], told["winner"]) == ("winner", "b")
    assert "is the only arm left after a retirement by hand" in str(told["sentence"])
    assert invoke("verify", run_dir)[0] == 0
    assert invoke("resume", run_dir)[0] == 0
    assert invoke("report", run_dir)[0] == 0


def unknown(run_dir: Path) -> str:
    return "bb"


def already_retired(run_dir: Path) -> str:
    return "a"


def of_a_run_that_is_over(run_dir: Path) -> str:
    invoke("retire", run_dir, "c", "--reason", "x")
    return "b"


@pytest.mark.parametrize(
    ("arm_of", "why"),
    [
        (unknown, 'did you mean "b"?); allowed: one of a, b, c'),
        (already_retired, "retired already (a rash)"),
        (of_a_run_that_is_over, "is over: no arm can be retired any more"),
    ],
)
def test_what_cannot_be_retired_is_refused_and_nothing_is_written(
    arm_of: Callable[[Path], str], why: str, run_dir: Path
) -> None:
    arm = arm_of(run_dir)
    with Journal.read(run_dir) as journal:
        before = journal.head
    code, said = invoke("retire", run_dir, arm, "--reason", "it harms people")
    assert (code, why in said) == (2, True), said
    with Journal.read(run_dir) as journal:
        assert journal.head == before
    assert requests_of(run_dir).read_retirements() == {}


@pytest.mark.parametrize("reason", ["", "  ", "\x1b[31mred", "x" * 501])
def test_a_reason_is_asked_for_that_can_be_read(reason: str, run_dir: Path) -> None:
    code, said = invoke("retire", run_dir, "b", "--reason", reason)
    assert (code, "reason" in said) == (2, True)


class StoppedError(Exception):
    """The server was stopped."""


async def test_an_arm_that_the_sums_dropped_needs_no_retiring(tmp_path: Path) -> None:
    experiment = config(
        experiment=ExperimentSettings("test", ("a", "b", "c")),
        policy=PolicySettings(first_batch=120),
        nodes=NodeSettings(20, 60),
        rewards=RewardSettings(means=(1.0, 1.0, 0.0)),
    )
    async with world(tmp_path, experiment) as there:

        def react(event: Event) -> None:
            if isinstance(event, events.RoundStarted) and event.number == 2:
                raise StoppedError

        there.react = react
        with pytest.raises(StoppedError):
            await there.run()
    code, said = invoke("retire", there.run_dir, "c", "--reason", "it harms people")
    assert (code, "it is out since round 1" in said) == (2, True)


def test_an_arm_of_a_rehearsal_without_crypto_is_retired_too(tmp_path: Path) -> None:
    small, run_dir = load_config(write(tmp_path)), tmp_path / "run"
    Journal.create(run_dir, "run", small, "fast").close()
    assert invoke("retire", run_dir, "a", "--reason", "x")[0] == 0
    assert invoke("resume", run_dir)[0] == 0
    with Journal.read(run_dir) as journal:
        assert [one.arm for one in journal.retired()] == [0]
        assert {cohort.arm for cohort in journal.cohorts()} == {1, 2}
    assert invoke("verify", run_dir)[0] == 0
