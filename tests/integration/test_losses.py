"""No count that an operator sees follows from an outcome, whatever carries the run."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from tests.integration.failing_rewards import TELLING_REWARD, TELLING_WORDS
from tests.integration.test_flower_app import config, engine_run, flower_run
from tests.support.operator_counts import count_samples, counts_of, hear_events
from tests.support.shuffled_sums import started
from tests.support.slow_cases import slow_cases
from tests.support.virtual_time import run_virtually
from tests.wallflower.test_run_commands import invoke
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.results.result import read_result
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.sections import SecureSumSettings, TransportSettings
from wallflower.strategy.store import events
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.transport.grpc.stats import GrpcServerStats
from wallflower.strategy.watch.telemetry import RunMetrics

BACKENDS = ("sealed", "secagg-plus", "shuffle")
MIXED = SecureSumSettings(backend="shuffle", shuffle="mixed", dropout=Fraction(1, 5))
ARMS = ("a", "b")


def experiment(
    function: str, backend: str, kind: str, window_s: float = 0.3
) -> ExperimentConfig:
    """One round, whatever its outcomes are."""
    plain = SecureSumSettings(backend=backend, dropout=Fraction(1, 5))
    return config(
        experiment=ExperimentSettings("test", ARMS, horizon=len(ARMS) * 60),
        rewards=RewardSettings(
            source="callable",
            function=f"tests.integration.failing_rewards:{function}",
            window_s=window_s,
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


def over_grpc(function: str, backend: str, run_dir: Path) -> None:
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


WAYS = [in_memory, without_crypto, over_grpc, through_flower]
Way = Callable[[str, str, Path], None]


def everything_kept(folder: Path) -> bytes:
    """All that a run has written anywhere, and what is shown of it."""
    assert invoke("report", folder)[0] == 0
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("backend", ["sealed", *slow_cases("secagg-plus", "shuffle")])
@pytest.mark.parametrize(
    "way", [in_memory, without_crypto, *slow_cases(over_grpc, through_flower)]
)
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


def test_outcomes_and_their_times_change_nothing_that_the_grpc_server_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[GrpcServerStats] = []

    def keep_stats() -> GrpcServerStats:
        opened.append(GrpcServerStats())
        return opened[-1]

    monkeypatch.setattr(
        "wallflower.strategy.transport.grpc.server.GrpcServerStats", keep_stats
    )
    over_grpc("quick", "sealed", tmp_path / "quick")
    over_grpc("troubled", "sealed", tmp_path / "troubled")
    # A sum opens with the first shares. Whether the others are still heard is a race.
    raced = re.compile(r"wallflower_grpc_(answers_|answer_seconds|bytes_)")
    quick, troubled = (
        {name: n for name, n in count_samples(stats).items() if not raced.match(name)}
        for stats in opened
    )
    assert quick == troubled
    assert quick["wallflower_grpc_requests_total{}"] > 24
    for stats in opened:
        assert set(stats.answers) == {"ok"}
        # An answer of each of 12 nodes for each arm came after its window, no earlier.
        times = count_samples(stats, times=True)
        early = times["wallflower_grpc_answer_seconds_bucket{'le': '0.1'}"]
        assert times["wallflower_grpc_answer_seconds_count{}"] - early >= 24


@pytest.mark.parametrize(
    ("engine", "backend"),
    [("fast", "sealed"), ("local", "sealed"), ("local", "secagg-plus")],
)
def test_by_the_nodes_clocks_outcomes_change_no_time_that_an_operator_has(
    engine: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In virtual time to the instant: progress, ends of cohorts, buckets of metrics."""
    monkeypatch.setattr(time, "monotonic", lambda: asyncio.get_running_loop().time())

    def run_for_times(function: str) -> tuple[list[object], dict[str, float]]:
        run_dir = tmp_path / function
        asked_for = experiment(function, backend, "auto", window_s=90)
        run_virtually(engine_run(engine, asked_for, run_dir))
        metrics = RunMetrics("r", clock=lambda: 0.0)
        heard = hear_events(run_dir)
        for event in heard:
            run_virtually(metrics(event))
        times = [
            (type(event).__name__, event.arm, event.stage, event.heard)
            if isinstance(event, events.CohortProgress)
            else (type(event).__name__, getattr(event, "seconds", None))
            for event in heard
        ]
        return sorted(times, key=str), count_samples(metrics, times=True)

    quick, troubled = run_for_times("quick"), run_for_times("troubled")
    assert quick == troubled
    _, buckets = quick
    assert buckets["wallflower_run_batch_seconds_sum{}"] == 90
    assert buckets["wallflower_run_batch_seconds_bucket{'le': '60.0'}"] == 0


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
