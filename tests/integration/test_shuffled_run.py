"""Whole experiments through a shuffler of its own process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wallflower.cli import app

EXPERIMENT = """
[experiment]
name = "shuffled"
arms = ["a", "b"]
horizon = 24
failure-probability = 0.2

[privacy]
mechanism = "shuffle-dp"
epsilon = 1

[policy]
first-batch = 12

[secure-sum]
backend = "shuffle"
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


@pytest.mark.slow  # thousands of seals and a process of its own
@pytest.mark.parametrize(
    ("kind", "server"),
    [("memory", "semi-honest"), ("grpc", "semi-honest"), ("memory", "malicious")],
)
def test_a_run_on_engine_local_goes_through_a_shuffler(
    kind: str, server: str, tmp_path: Path
) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(EXPERIMENT.format(kind=kind, server=server))
    run_dir = tmp_path / "run"
    arguments = ["run", str(file), "--run-dir", str(run_dir), "--format", "json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert "the shuffler does not work with the operator" in json.dumps(told)
    # Two cohorts, each given once.
    assert len(list((run_dir / "shuffler" / "given").iterdir())) == 2
    assert CliRunner().invoke(app, ["verify", str(run_dir)]).exit_code == 0
