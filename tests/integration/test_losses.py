"""Why users are in no sum is counted and told, whatever carries the run."""

from __future__ import annotations

import asyncio
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
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.results.result import read_result
from wallflower.strategy.config import (
    ExperimentConfig,
    PolicySettings,
    SecureSumSettings,
    TransportSettings,
)
from wallflower.strategy.record import events
from wallflower.strategy.record.event_log import decode
from wallflower.strategy.record.journal import Journal

BACKENDS = ("sealed", "secagg-plus", "shuffle")
MIXED = SecureSumSettings(backend="shuffle", shuffle="mixed", dropout=Fraction(1, 5))


def experiment(function: str, backend: str, kind: str) -> ExperimentConfig:
    plain = SecureSumSettings(backend=backend, dropout=Fraction(1, 5))
    return config(
        rewards=RewardSettings(
            source="callable", function=f"tests.integration.failing_rewards:{function}"
        ),
        policy=PolicySettings(first_batch=60),
        nodes=NodeSettings(12, 60),
        secure_sum=MIXED if backend == "shuffle" else plain,
        transport=TransportSettings(kind=kind, attempts=1),
    )


def in_memory(function: str, backend: str, run_dir: Path) -> None:
    asyncio.run(engine_run("local", experiment(function, backend, "memory"), run_dir))


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
    home = run_dir.with_name("shuffler")
    process, place = await started(home)
    named = replace(MIXED, shuffler=place.address, shuffler_files=home / "operator")
    try:
        asked_for = replace(asked_for, secure_sum=named)
        await asyncio.to_thread(flower_run, asked_for, run_dir)
    finally:
        process.terminate()
        await process.wait()


WAYS = [in_memory, over_the_desk, through_flower]
Way = Callable[[str, str, Path], None]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


def everything_kept(folder: Path) -> bytes:
    """All that a run has written anywhere, and what is shown of it."""
    assert invoke("report", folder)[0] == 0
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def ended(run_dir: Path) -> list[events.CohortEnded]:
    lines = (run_dir / "events.jsonl").read_text().splitlines()
    heard = [decode(line) for line in lines]
    return [event for event in heard if isinstance(event, events.CohortEnded)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_cohort_void_for_want_of_rewards_says_so_everywhere(
    way: Way, backend: str, run_dir: Path
) -> None:
    with pytest.raises(UnavailableError, match="reward-source-failed"):
        way("all_fail", backend, run_dir)
    with Journal.read(run_dir) as journal:
        cohorts = journal.cohorts()
        result = read_result(journal)
    assert len(cohorts) == 3
    for cohort in cohorts:
        assert cohort.state == "void"
        assert cohort.losses == {"reward-source-failed": result.invited // 3}
    assert result.losses == {"reward-source-failed": result.invited}
    told = [dict(event.losses) for event in ended(run_dir)]
    assert told == [cohort.losses for cohort in cohorts]
    said = " ".join(invoke("status", run_dir)[1].split())
    assert f"lost {result.invited:,}: {result.invited:,} reward-source-failed" in said
    status = json.loads(invoke("status", run_dir, "--format", "json")[1])
    assert status["users"]["lost_by_reason"] == result.losses
    assert invoke("verify", run_dir)[0] == 0
    assert TELLING_WORDS.encode() not in everything_kept(run_dir)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", WAYS)
def test_users_missing_from_a_released_sum_are_counted_by_reason(
    way: Way, backend: str, run_dir: Path
) -> None:
    way("some_fail", backend, run_dir)
    with Journal.read(run_dir) as journal:
        cohorts = journal.cohorts()
        result = read_result(journal)
    assert {cohort.state for cohort in cohorts} == {"summed"}
    assert result.invited > result.answered
    assert result.losses == {"reward-out-of-range": result.invited - result.answered}
    for event, cohort in zip(
        sorted(ended(run_dir), key=lambda e: e.cohort_id),
        sorted(cohorts, key=lambda c: c.cohort_id),
        strict=True,
    ):
        assert dict(event.losses) == cohort.losses
        assert sum(cohort.losses.values()) == event.lost
    assert str(TELLING_REWARD).encode() not in everything_kept(run_dir)
