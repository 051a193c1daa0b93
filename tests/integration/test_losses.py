"""No count that an operator sees follows from an outcome, whatever carries the run."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from tests.integration.failing_rewards import TELLING_REWARD, TELLING_WORDS
from tests.integration.test_flower_app import config, engine_run, flower_run
from tests.support.shuffled_sums import started
from tests.wallflower.test_run_commands import invoke
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.results.result import read_result
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
    SecureSumSettings,
    TransportSettings,
)
from wallflower.strategy.record import events
from wallflower.strategy.record.event_log import decode
from wallflower.strategy.record.journal import Journal
from wallflower.strategy.watch.metrics import Metrics
from wallflower.strategy.watch.telemetry import RunMetrics

BACKENDS = ("sealed", "secagg-plus", "shuffle")
MIXED = SecureSumSettings(backend="shuffle", shuffle="mixed", dropout=Fraction(1, 5))
ARMS = ("a", "b")


def experiment(function: str, backend: str, kind: str) -> ExperimentConfig:
    """One round, whatever its outcomes are."""
    plain = SecureSumSettings(backend=backend, dropout=Fraction(1, 5))
    return config(
        experiment=ExperimentSettings("test", ARMS, horizon=len(ARMS) * 60),
        rewards=RewardSettings(
            source="callable",
            function=f"tests.integration.failing_rewards:{function}",
            window_s=0.3,
        ),
        policy=PolicySettings(first_batch=60),
        nodes=NodeSettings(12, 20),
        secure_sum=MIXED if backend == "shuffle" else plain,
        transport=TransportSettings(kind=kind, attempts=1),
    )


def in_memory(function: str, backend: str, run_dir: Path) -> None:
    asyncio.run(engine_run("local", experiment(function, backend, "memory"), run_dir))


def without_crypto(function: str, backend: str, run_dir: Path) -> None:
    asyncio.run(engine_run("fast", experiment(function, backend, "auto"), run_dir))


def over_the_desk(function: str, backend: str, run_dir: Path) -> None:
    asyncio.run(engine_run("local", experiment(function, backend, "grpc"), run_dir))


def through_flower(function: str, backend: str, run_dir: Path) -> None:
    asked_for = experiment(function, backend, "flower")
    if backend == "shuffle":
        asyncio.run(_beside_a_shuffler(asked_for, run_dir))
    else:
        flower_run(asked_for, run_dir)


async def _beside_a_shuffler(asked_for: ExperimentConfig, run_dir: Path) -> None:
    """Flower's app starts no shuffler: the experiment must name one."""
    home = run_dir.with_name(f"{run_dir.name}-shuffler")
    process, place = await started(home)
    named = replace(MIXED, shuffler=place.address, shuffler_files=home / "operator")
    try:
        asked_for = replace(asked_for, secure_sum=named)
        await asyncio.to_thread(flower_run, asked_for, run_dir)
    finally:
        process.terminate()
        await process.wait()


WAYS = [in_memory, without_crypto, over_the_desk, through_flower]
Way = Callable[[str, str, Path], None]


def everything_kept(folder: Path) -> bytes:
    """All that a run has written anywhere, and what is shown of it."""
    assert invoke("report", folder)[0] == 0
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def heard(run_dir: Path) -> list[events.Event]:
    lines = (run_dir / "events.jsonl").read_text().splitlines()
    return [decode(line) for line in lines]


def counts_of(run_dir: Path) -> dict[str, object]:
    """Every count of a run's directory, events, metrics, status and export."""
    with Journal.read(run_dir) as journal:
        cohorts = [
            (c.arm, c.attempt, c.state, c.reason, c.size, dict(c.losses))
            for c in journal.cohorts()
        ]
        sums = sorted(
            (c.arm, c.result.survivors, len(c.result.nodes))
            for c in journal.cohorts()
            if c.result is not None
        )
        result = read_result(journal)
    metrics = RunMetrics("r", clock=lambda: 0.0)
    for event in heard(run_dir):
        asyncio.run(metrics(event))
    measured = [
        line
        for line in Metrics(metrics).text().decode().splitlines()
        if "seconds" not in line and "arms_active" not in line
    ]
    ended = [
        dataclasses.replace(event, cohort_id="", seconds=0.0)
        for event in heard(run_dir)
        if isinstance(event, events.CohortEnded)
    ]
    status = json.loads(invoke("status", run_dir, "--format", "json")[1])
    return {
        "cohorts": sorted(cohorts, key=str),
        "sums": sums,
        "losses": dict(result.losses),
        "people": (result.invited, result.answered),
        "metrics": measured,
        "events": sorted(ended, key=str),
        "status": status["users"],
        "answer rates": status.get("answer_rates"),
    }


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", WAYS)
def test_outcomes_and_their_times_change_no_count(
    way: Way, backend: str, tmp_path: Path
) -> None:
    way("quick", backend, tmp_path / "quick")
    way("troubled", backend, tmp_path / "troubled")
    quick, troubled = counts_of(tmp_path / "quick"), counts_of(tmp_path / "troubled")
    assert quick == troubled
    assert quick["people"] == (120, 120)
    assert quick["losses"] == {}
    assert invoke("verify", tmp_path / "troubled")[0] == 0
    kept = everything_kept(tmp_path / "troubled")
    assert TELLING_WORDS.encode() not in kept
    assert str(TELLING_REWARD).encode() not in kept


@pytest.mark.parametrize("way", WAYS)
def test_a_source_that_always_fails_gives_sums_of_what_is_stated(
    way: Way, tmp_path: Path
) -> None:
    way("all_fail", "sealed", tmp_path / "run")
    with Journal.read(tmp_path / "run") as journal:
        result = read_result(journal)
        states = {cohort.state for cohort in journal.cohorts()}
    assert (states, result.losses) == ({"summed"}, {})
    assert result.answered == result.invited
