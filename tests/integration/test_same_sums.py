"""Same seed, same data: crypto and transport change nothing."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from wallflower.engines.registry import EngineJob, find_engine
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
    PrivacySettings,
)
from wallflower.strategy.run.verify import verify
from wallflower.strategy.sections import (
    SecureSumSettings,
    TestSettings,
    TransportSettings,
)
from wallflower.strategy.store.events import ignore
from wallflower.strategy.store.journal import Journal

Sums = list[tuple[int, int, int, int]]


def config(
    mechanism: str, backend: str, kind: str = "memory", seed: int = 11
) -> ExperimentConfig:
    return ExperimentConfig(
        ExperimentSettings("same", ("a", "b", "c")),
        PrivacySettings(mechanism, Fraction(1, 2)),
        PolicySettings(first_batch=40),
        SecureSumSettings(backend),
        TransportSettings(kind),
        NodeSettings(9, (5, 100, 40, 7, 80, 60, 60, 60, 90)),
        RewardSettings(model="gaussian", means=(0.2, 0.5, 0.8)),
        TestSettings(noise_seed=seed),
    )


async def sums(engine: str, experiment: ExperimentConfig, run_dir: Path) -> Sums:
    """Run an experiment; give batch, arm, users and decoded total of every cohort."""
    Journal.create(run_dir, run_dir.name, experiment, engine).close()
    await find_engine(engine).run(EngineJob(experiment, run_dir, run_dir.name, ignore))
    with Journal.read(run_dir) as journal:
        assert [p for check in verify(journal) for p in check.problems] == []
        return [
            (c.batch, c.arm, c.result.survivors, c.result.total)
            for c in journal.cohorts()
            if c.result is not None
        ]


@pytest.mark.parametrize("mechanism", ["dist-dp", "dist-rdp", "dist-cdp", "local-dp"])
async def test_local_with_secure_sums_gives_every_sum_of_the_fast_engine(
    mechanism: str, tmp_path: Path
) -> None:
    plain = await sums("fast", config(mechanism, "sealed"), tmp_path / "fast")
    assert len(plain) >= 3
    assert len({total for *_, total in plain}) > 1
    for backend in ("sealed", "secagg-plus"):
        experiment = config(mechanism, backend)
        assert await sums("local", experiment, tmp_path / backend) == plain


async def test_grpc_over_tls_gives_the_same_sums(tmp_path: Path) -> None:
    plain = await sums("fast", config("dist-dp", "sealed"), tmp_path / "fast")
    grpc_server = config("dist-dp", "sealed", "grpc")
    assert await sums("local", grpc_server, tmp_path / "server") == plain


async def test_another_seed_gives_other_sums(tmp_path: Path) -> None:
    one = await sums("fast", config("dist-dp", "sealed"), tmp_path / "one")
    two = await sums("fast", config("dist-dp", "sealed", seed=12), tmp_path / "two")
    assert one != two
