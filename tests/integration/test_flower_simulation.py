"""One experiment through `flwr run`: SuperLink, Ray and all."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.integration.test_flower_app import best, config, decided, engine_run, sums
from wallflower.engines.registry import EngineJob
from wallflower.engines.simulation import run_simulation
from wallflower.protocol.files.sections import NodeSettings
from wallflower.strategy.record import events
from wallflower.strategy.record.journal import Journal
from wallflower.strategy.run.verify import verify


# Slow: Flower starts a SuperLink, a ServerApp and Ray, which takes 10 to 30 seconds.
@pytest.mark.slow
@pytest.mark.timeout(300)
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
