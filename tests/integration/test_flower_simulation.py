"""One experiment through `flwr run`: SuperLink, Ray and all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.integration.test_flower_app import best, config, decided, engine_run, sums
from tests.support.operator_counts import counts_of
from tests.support.shuffled_sums import started
from wallflower.engines.flower import run_simulation
from wallflower.engines.registry import EngineJob
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.strategy.config import (
    ExperimentSettings,
    PolicySettings,
    PrivacySettings,
)
from wallflower.strategy.run.verify import verify
from wallflower.strategy.sections import SecureSumSettings, TestSettings
from wallflower.strategy.store import events
from wallflower.strategy.store.journal import Journal


# Slow: as below, and a shuffler of its own process.
@pytest.mark.usefixtures("one_ray_at_a_time")
@pytest.mark.slow
async def test_flowers_simulation_sends_its_nodes_to_the_shuffler(
    tmp_path: Path,
) -> None:
    process, place = await started(tmp_path / "shuffler")
    experiment = config(
        experiment=ExperimentSettings("test", ("a", "b"), horizon=24),
        privacy=PrivacySettings("dist-dp"),
        policy=PolicySettings(first_batch=12),
        secure_sum=SecureSumSettings(
            backend="shuffle",
            shuffle="mixed",  # the other kind goes the same way: test_shuffled_run
            shuffler=place.address,
            shuffler_files=tmp_path / "shuffler" / "operator",
        ),
        nodes=NodeSettings(6, 4),
        rewards=RewardSettings(means=(0.1, 0.9)),
        test=TestSettings(),
    )
    run_dir = tmp_path / "run"
    Journal.create(run_dir, "run", experiment, "simulation").close()
    try:
        await run_simulation(EngineJob(experiment, run_dir, "run", events.ignore))
    finally:
        process.terminate()
        await process.wait()
    assert [users for _, users in decided(run_dir).values()] == [12, 12]
    assert len(list((tmp_path / "shuffler" / "released").iterdir())) == 2
    with Journal.read(run_dir) as journal:
        assert all(check.holds for check in verify(journal))


# Slow: Flower starts a SuperLink, a ServerApp and Ray, which takes 10 to 30 seconds.
@pytest.mark.usefixtures("one_ray_at_a_time")
@pytest.mark.slow
async def test_flowers_simulation_agrees_with_the_other_engines_on_every_sum(
    tmp_path: Path,
) -> None:
    experiment = config(nodes=NodeSettings(8, 90))
    heard: list[events.Event] = []

    async def listen(event: events.Event) -> None:
        heard.append(event)

    local, fast, flower = tmp_path / "local", tmp_path / "fast", tmp_path / "flower"
    await engine_run("local", experiment, local)
    await engine_run("fast", experiment, fast)
    Journal.create(flower, "run", experiment, "simulation").close()
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    await run_simulation(EngineJob(experiment, flower, "run", listen))

    assert best(flower) == [False, True, False]
    assert sums(local) == sums(flower)
    assert decided(fast) == decided(flower)
    assert len(sums(local)) >= 5
    with Journal.read(flower) as journal:
        assert all(check.holds for check in verify(journal))
    assert isinstance(heard[0], events.RunStarted)
    assert isinstance(heard[-1], events.RoundFinished)
    after = psutil.Process().children(recursive=True)
    assert [child for child in after if child.pid not in before] == []


def write_people(folder: Path, cells: Sequence[str]) -> None:
    """Write tables of 6 nodes with 8 people; their outcomes go round the cells."""
    folder.mkdir()
    for number in range(6):
        outcomes = (cells[(number + user) % len(cells)] for user in range(8))
        rows = [f"u{user},{cell},{cell}" for user, cell in enumerate(outcomes)]
        table = folder / f"node-{number}.csv"
        table.write_text("\n".join(["user,a,b", *rows]) + "\n")


# Slow: as above, twice.
@pytest.mark.usefixtures("one_ray_at_a_time")
@pytest.mark.slow
async def test_outcomes_change_no_count_of_flowers_simulation(tmp_path: Path) -> None:
    """Outcomes of every kind, an unknown one included, of an immediate source."""
    found = []
    for name, cells in (("same", ["1"]), ("mixed", ["0", "", "1", "0.25", "7"])):
        write_people(tmp_path / f"{name}-people", cells)
        table = tmp_path / f"{name}-people" / "{node}.csv"
        experiment = config(
            experiment=ExperimentSettings("test", ("a", "b"), horizon=24),
            policy=PolicySettings(first_batch=12),
            nodes=NodeSettings(6, 8),
            rewards=RewardSettings(source="table", table=table),
        )
        run_dir = tmp_path / name
        Journal.create(run_dir, "run", experiment, "simulation").close()
        await run_simulation(EngineJob(experiment, run_dir, "run", events.ignore))
        found.append(await asyncio.to_thread(counts_of, run_dir))
    same, mixed = found
    assert same == mixed
    assert same["people"] == (24, 24)
    totals = [
        sum(total for total, _ in decided(tmp_path / name).values())
        for name in ("same", "mixed")
    ]
    assert totals[0] > totals[1]  # they did differ in outcomes
