"""``plan`` and ``simulate`` take arms' names, floors and dropouts from a run's file."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wallflower.cli import main
from wallflower.strategy.bandit.policies import planned_floors
from wallflower.strategy.config import load_config

EXPERIMENT = """
[experiment]
name = "onboarding"
arms = ["long", "short [x]", "video"]
horizon = 9000

[privacy]
epsilon = 1

[secure-sum]
corrupt = 0.1
dropout = {dropout}

[nodes]
count = 30
users = 300

[rewards]
model = "bernoulli"
means = [0.25, 0.45, 0.30]
"""
Command = Callable[..., str]


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["wallflower", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert not ended.value.code, said.err
        return said.out

    return run


def file_with(folder: Path, dropout: str) -> Path:
    path = folder / f"experiment-{dropout}.toml"
    path.write_text(EXPERIMENT.format(dropout=dropout), encoding="utf-8")
    return path


def planned(command: Command, path: Path) -> dict[str, Any]:
    flags = ["--gap=0.5", "--format=json"]
    found: dict[str, Any] = json.loads(command("plan", str(path), *flags))
    return found


def test_a_plan_names_the_files_arms(command: Command, tmp_path: Path) -> None:
    path = file_with(tmp_path, "0.1")
    assert planned(command, path)["settings"]["names"] == ["long", "short [x]", "video"]
    assert "Arms: long, short [x], video." in command("plan", str(path), "--gap=0.5")


def test_a_plan_has_the_floors_of_the_files_nodes(
    command: Command, tmp_path: Path
) -> None:
    path = file_with(tmp_path, "0.1")
    floors = planned_floors(load_config(path))
    assert floors is not None
    batches = planned(command, path)["batches"]
    assert batches
    for batch in batches:
        assert batch["honest_floor"] == floors(batch["cohort_size"])


def test_a_plan_counts_on_fewer_people_where_more_may_drop_out(
    command: Command, tmp_path: Path
) -> None:
    few, many = (
        planned(command, file_with(tmp_path, dropout))["batches"][-1]
        for dropout in ("0.05", "0.3")
    )
    assert (
        many["honest_floor"] / many["cohort_size"]
        < few["honest_floor"] / few["cohort_size"]
    )


def simulated(command: Command, path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("simulate", str(path), "--format=json"))
    return found


def test_a_simulation_names_the_files_arms(command: Command, tmp_path: Path) -> None:
    found = simulated(command, file_with(tmp_path, "0.1"))
    assert [arm["arm"] for arm in found["arms"]] == ["long", "short [x]", "video"]


def test_a_simulation_has_the_first_cohort_and_floor_of_the_plan(
    command: Command, tmp_path: Path
) -> None:
    for dropout in ("0.05", "0.3"):
        path = file_with(tmp_path, dropout)
        batch = planned(command, path)["batches"][0]
        found = simulated(command, path)
        assert found["settings"]["first_batch"] == batch["cohort_size"]
        assert batch["honest_floor"] < batch["cohort_size"]


def condition(sentence: str) -> str:
    return sentence.partition("This holds as long as")[2]


def test_a_simulation_states_the_condition_of_the_plan(
    command: Command, tmp_path: Path
) -> None:
    path = file_with(tmp_path, "0.1")
    stated = condition(planned(command, path)["guarantee"]["sentence"])
    assert "at most 10 % of the run's nodes work with the operator" in stated
    assert condition(simulated(command, path)["guarantee"]["sentence"]) == stated


def test_a_plan_of_a_file_names_the_parts_that_its_noise_counts_on(
    command: Command, tmp_path: Path
) -> None:
    path = file_with(tmp_path, "0.1")
    parts = [
        b["honest_floor"] / b["cohort_size"] for b in planned(command, path)["batches"]
    ]
    said = " ".join(command("plan", str(path), "--gap=0.5").split())
    low, high = (math.ceil(1000 * part) / 10 for part in (min(parts), max(parts)))
    assert low < high
    assert f"counts on {low:g} % to {high:g} % of the cohort, by its size" in said
    # The promise and the paragraph on dropouts name the same part.
    assert f"at least {high:g} % of its people answer honestly" in said
