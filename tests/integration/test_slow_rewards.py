"""Rewards that take long, or for ever: what they cost, on every way to a node."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import time
from fractions import Fraction
from pathlib import Path

import pytest

from tests.integration.test_flower_app import engine_run, flower_run
from tests.support.run_fixtures import SMALL, command, environment, write
from tests.support.slow_cases import slow_cases
from tests.support.virtual_time import run_virtually
from wallflower.engines.flower import check_simulation
from wallflower.engines.population import hosted_window
from wallflower.protocol.errors import InputError
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.protocol.rewards.outcome_window import OutcomeWindow
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.sections import SecureSumSettings, TransportSettings
from wallflower.strategy.store.journal import Journal

SLOWER_THAN_A_STAGE_S = 15.0
STAGE_S = 12.0  # a busy machine works through a stage in much less


async def slow(arm: str, user: str) -> float:
    await asyncio.sleep(SLOWER_THAN_A_STAGE_S)
    return 1.0 if arm == "b" else 0.0


def endless(arm: str, user: str) -> float:
    """One user in twenty never gets an answer; the place is told to the test."""
    if int(user[1:]) % 20 == 0:
        Path(os.environ["WALLFLOWER_TEST_ASKED"]).touch()
        while True:
            time.sleep(3600)
    return 1.0 if arm == "b" else 0.0


def experiment(backend: str, kind: str) -> ExperimentConfig:
    return ExperimentConfig(
        ExperimentSettings("slow", ("a", "b"), horizon=240),
        policy=PolicySettings(first_batch=120),
        secure_sum=SecureSumSettings(backend, corrupt=Fraction(0)),
        transport=TransportSettings(kind, stage_timeout_s=STAGE_S, attempts=1),
        nodes=NodeSettings(6, 50),
        rewards=RewardSettings(
            source="callable", function="tests.integration.test_slow_rewards:slow"
        ),
    )


@pytest.mark.parametrize("backend", ["sealed", "secagg-plus"])
@pytest.mark.parametrize("kind", ["memory", *slow_cases("grpc", "flower")])
def test_rewards_slower_than_a_stage_are_waited_for(
    kind: str, backend: str, tmp_path: Path
) -> None:
    asked = experiment(backend, kind)
    if kind == "flower":
        flower_run(asked, tmp_path)
    elif kind == "grpc":
        asyncio.run(engine_run("local", asked, tmp_path))
    else:
        run_virtually(engine_run("local", asked, tmp_path))
    with Journal.read(tmp_path) as journal:
        first = [c for c in journal.cohorts() if c.round_number == 1]
    assert [cohort.state for cohort in first] == ["summed", "summed"]


@pytest.mark.parametrize("source", ["synthetic", "table", "callable"])
def test_a_rehearsal_waits_for_the_window_of_functions_only(
    source: str, tmp_path: Path
) -> None:
    rewards = RewardSettings(
        source=source,
        means=(0.1, 0.2),
        table=tmp_path / "{node}.csv",
        function="tests.integration.test_slow_rewards:slow",
        window_s=86_400,
        if_unknown=0.5,
    )
    asked = dataclasses.replace(experiment("sealed", "memory"), rewards=rewards)
    waits = 86_400 if source == "callable" else None
    assert hosted_window(asked) == OutcomeWindow(waits, 0.5)
    assert asked.window.stated_ms == 86_400_000


def test_a_simulation_takes_no_window(tmp_path: Path) -> None:
    rewards = RewardSettings(
        source="callable",
        function="tests.integration.test_slow_rewards:slow",
        window_s=5,
    )
    asked = dataclasses.replace(experiment("sealed", "flower"), rewards=rewards)
    with pytest.raises(InputError, match=r"rewards\.window-s is 5; .* engine local"):
        check_simulation(asked)


def stuck_experiment(tmp_path: Path, timeout: str) -> Path:
    return write(
        tmp_path,
        SMALL.replace(
            "means = [0.1, 0.9, 0.2]",
            'source = "callable"\n'
            'function = "tests.integration.test_slow_rewards:endless"\n' + timeout,
        ),
    )


def test_a_run_ends_although_a_twentieth_of_its_users_never_answer(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        command("run", stuck_experiment(tmp_path, "window-s = 2"), "--run-dir", "run"),
        cwd=tmp_path,
        env={**environment(), "WALLFLOWER_TEST_ASKED": str(tmp_path / "asked")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "asked").exists()
    with Journal.read(tmp_path / "run") as journal:
        last = journal.last_round()
        cohorts = journal.cohorts()
    assert last is not None
    assert last.finished == "winner"
    assert [view.active for view in last.views] == [False, True, False]
    # Everybody who was shown an arm is in a sum: who never answers counts as 0.
    assert {cohort.state for cohort in cohorts} == {"summed"}
    for cohort in cohorts:
        assert cohort.result is not None
        assert (cohort.result.survivors, cohort.losses) == (cohort.size, {})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_whose_users_never_answer_ends_on_a_signal(
    number: signal.Signals, tmp_path: Path
) -> None:
    asked = tmp_path / "asked"
    process = subprocess.Popen(
        command("run", stuck_experiment(tmp_path, ""), "--run-dir", "run"),
        cwd=tmp_path,
        env={**environment(), "WALLFLOWER_TEST_ASKED": str(asked)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_as_in_a_terminal,
    )
    try:
        while not asked.exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(number)
        if number == signal.SIGINT:  # the first lets the round finish
            pause = tmp_path / "run" / "pause"
            while not pause.exists() and process.poll() is None:
                time.sleep(0.05)
            process.send_signal(number)
        _, output = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130, output
    assert "wallflower resume run" in output


def _as_in_a_terminal() -> None:
    # A shell's background jobs, tests among them, inherit that SIGINT is ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
