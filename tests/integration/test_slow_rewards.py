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
from wallflower.clients.node.ledger import Ledger
from wallflower.engines.population import hosted_setup
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
    SecureSumSettings,
    TransportSettings,
)
from wallflower.strategy.record.journal import Journal

SLOWER_THAN_A_STAGE_S = 2.5
STAGE_S = 1.5


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
        transport=TransportSettings(
            kind, stage_timeout_s=STAGE_S, reward_timeout_s=60, attempts=1
        ),
        nodes=NodeSettings(6, 50),
        rewards=RewardSettings(
            source="callable", function="tests.integration.test_slow_rewards:slow"
        ),
    )


@pytest.mark.parametrize("backend", ["sealed", "secagg-plus"])
@pytest.mark.parametrize("kind", ["memory", "grpc", "flower"])
async def test_rewards_slower_than_a_stage_are_waited_for(
    kind: str, backend: str, tmp_path: Path
) -> None:
    asked = experiment(backend, kind)
    if kind == "flower":
        await asyncio.to_thread(flower_run, asked, tmp_path)
    else:
        await engine_run("local", asked, tmp_path)
    with Journal.read(tmp_path) as journal:
        first = [c for c in journal.cohorts() if c.round_number == 1]
    assert [cohort.state for cohort in first] == ["summed", "summed"]


@pytest.mark.parametrize(
    ("own", "server", "waits"), [(None, 60, 60), (5, 60, 5), (90, 60, 60)]
)
def test_hosted_nodes_wait_as_long_as_both_sides_say(
    own: float | None, server: float, waits: float, tmp_path: Path
) -> None:
    asked = dataclasses.replace(
        experiment("sealed", "memory"),
        rewards=RewardSettings(means=(0.1, 0.2), timeout_s=own),
        transport=TransportSettings(reward_timeout_s=server),
    )
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        setup = hosted_setup(asked, ledger, lambda name: None, None)
    assert setup.patience.timeout_s == waits


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
        command("run", stuck_experiment(tmp_path, "timeout-s = 2"), "--run-dir", "run"),
        cwd=tmp_path,
        env={**environment(), "WALLFLOWER_TEST_ASKED": str(tmp_path / "asked")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "asked").exists()
    with Journal.read(tmp_path / "run") as journal:
        last = journal.last_round()
        cohorts = journal.cohorts()
    assert last is not None
    assert last.finished == "winner"
    assert [view["active"] for view in last.views] == [False, True, False]
    # A starved machine may lose a whole cohort to the two seconds; not the run.
    cohorts = [cohort for cohort in cohorts if cohort.state == "summed"]
    lost = sum(c.size - c.result.survivors for c in cohorts if c.result is not None)
    assert 0 < lost < sum(c.size for c in cohorts) / 10


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_whose_users_never_answer_ends_when_told(
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
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "wallflower resume run" in said


def _as_in_a_terminal() -> None:
    # A shell's background jobs, tests among them, inherit that SIGINT is ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
