"""Whole experiments through a shuffler of its own process."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.integration.test_flower_app import config, decided, flower_run
from tests.support.run_fixtures import wallflower
from tests.support.shuffled_sums import started
from tests.wallflower.shuffler.test_killed import ENDS_AFTER_THE_CLAIM
from wallflower.cli import command_line
from wallflower.protocol.errors import ConfigError
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.strategy.config import (
    ExperimentSettings,
    PolicySettings,
    PrivacySettings,
)
from wallflower.strategy.sections import SecureSumSettings
from wallflower.strategy.store.journal import Journal

EXPERIMENT = """
[experiment]
name = "shuffled"
arms = ["a", "b"]
horizon = 24
failure-probability = 0.2

[privacy]
mechanism = "{mechanism}"
epsilon = 1

[policy]
first-batch = 12

[secure-sum]
backend = "shuffle"
shuffle = "{shuffle}"
server = "{server}"

[transport]
kind = "{kind}"

[nodes]
count = 6
users = 4

[rewards]
source = "synthetic"
means = [0.1, 0.9]
"""


@pytest.mark.slow  # thousands of messages and a process of its own
@pytest.mark.parametrize(
    ("kind", "server", "shuffle"),
    [
        ("memory", "semi-honest", "pure"),
        ("grpc", "semi-honest", "pure"),
        ("memory", "malicious", "pure"),
        ("memory", "semi-honest", "mixed"),
        ("grpc", "malicious", "mixed"),
    ],
)
def test_a_run_on_engine_local_goes_through_a_shuffler(
    kind: str, server: str, shuffle: str, tmp_path: Path
) -> None:
    file = tmp_path / "experiment.toml"
    mechanism = "shuffle-dp" if shuffle == "pure" else "dist-dp"
    file.write_text(
        EXPERIMENT.format(
            kind=kind,
            server=server,
            shuffle=shuffle,
            mechanism=mechanism,
        )
    )
    run_dir = tmp_path / "run"
    arguments = ["run", str(file), "--run-dir", str(run_dir), "--format", "json"]
    result = CliRunner().invoke(command_line(), arguments)
    assert result.exit_code == 0, result.output
    reported = json.loads(result.stdout)
    assert "the shuffler does not work with the operator" in json.dumps(reported)
    assert ("mixing-delta" in reported["guarantee"]) == (shuffle == "mixed")
    # Two cohorts, each released once.
    assert len(list((run_dir / "shuffler" / "released").iterdir())) == 2
    assert CliRunner().invoke(command_line(), ["verify", str(run_dir)]).exit_code == 0


@pytest.mark.slow  # as above
async def test_users_whose_shuffler_was_killed_count_as_used(
    tmp_path: Path,
) -> None:
    process, place = await started(tmp_path / "shuffler", ENDS_AFTER_THE_CLAIM)
    text = EXPERIMENT.format(
        kind="memory",
        server="semi-honest",
        shuffle="mixed",
        mechanism="dist-dp",
    ).replace(
        "[transport]",
        f'shuffler = "{place.address}"\nshuffler-files = "shuffler/operator"\n'
        "[transport]\nattempts = 2",
    )
    file, run_dir = tmp_path / "experiment.toml", tmp_path / "run"
    file.write_text(text)
    done = await asyncio.to_thread(
        wallflower, "run", file, "--run-dir", run_dir, cwd=tmp_path
    )
    assert await process.wait() == -signal.SIGKILL
    assert done.returncode == 4, done.stderr
    with Journal.read(run_dir) as journal:
        assert [cohort.state for cohort in journal.cohorts()] == ["void", "void"]
        used = [(node, user) for _, node, users in journal.used() for user in users]
    assert len(used) == len(set(used)) == 24
    assert wallflower("verify", run_dir, cwd=tmp_path).returncode == 0


@pytest.mark.slow  # as above, on Flower's grid
async def test_flowers_app_goes_through_the_shuffler_that_the_experiment_names(
    tmp_path: Path,
) -> None:
    process, place = await started(tmp_path / "shuffler")
    try:
        experiment = config(
            experiment=ExperimentSettings("test", ("a", "b"), horizon=24),
            privacy=PrivacySettings("shuffle-dp"),
            policy=PolicySettings(first_batch=12),
            secure_sum=SecureSumSettings(
                backend="shuffle",
                shuffler=place.address,
                shuffler_files=tmp_path / "shuffler" / "operator",
            ),
            nodes=NodeSettings(6, 4),
            rewards=RewardSettings(means=(0.1, 0.9)),
        )
        await asyncio.to_thread(flower_run, experiment, tmp_path / "run")
    finally:
        process.terminate()
        await process.wait()
    assert [users for _, users in decided(tmp_path / "run").values()] == [12, 12]
    assert len(list((tmp_path / "shuffler" / "released").iterdir())) == 2


def test_flowers_app_names_the_missing_shuffler(tmp_path: Path) -> None:
    experiment = config(
        privacy=PrivacySettings("shuffle-dp"),
        secure_sum=SecureSumSettings(backend="shuffle"),
    )
    with pytest.raises(ConfigError, match=r"secure-sum\.shuffler"):
        flower_run(experiment, tmp_path)
