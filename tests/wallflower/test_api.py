"""The functions for Python: typed results, short in a log, tables in a notebook."""

from __future__ import annotations

import asyncio
import builtins
import dataclasses
import sqlite3
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import wallflower
from tests.support.run_fixtures import SMALL, write
from wallflower.protocol.errors import ConfigError, InputError, UnavailableError

EUROS = SMALL.replace(
    "means = [0.1, 0.9, 0.2]", 'means = [10, 90, 20]\nrange = [0, 100]\nunit = "€"'
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> wallflower.Run:
    folder = tmp_path_factory.mktemp("run")
    file = write(folder, SMALL + "[test]\nnoise-seed = 7\n")
    return wallflower.run(str(file), engine="fast", run_dir=str(folder / "run"))


def test_a_plan_says_how_many_people_each_gap_takes() -> None:
    report = wallflower.plan(arms=3, epsilon=0.5, gaps=[0.4, "0.2"])
    wide, narrow = report.gaps
    assert (wide.gap, narrow.gap) == (0.4, 0.2)
    assert wide.users is not None
    assert narrow.users is not None
    assert wide.users < narrow.users
    assert report.plan.request.epsilon == Fraction(1, 2)
    assert "0.5" in report.promise


def test_a_plan_is_in_the_unit_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, EUROS)
    (gap,) = wallflower.plan(file, gaps=[40]).gaps
    (part,) = wallflower.plan(write(tmp_path), gaps=[0.4]).gaps
    assert gap == dataclasses.replace(part, gap=40.0)


def test_a_key_of_the_file_can_be_changed_whether_it_is_a_file_or_an_experiment(
    tmp_path: Path,
) -> None:
    file = write(tmp_path)
    changes = {"privacy.epsilon": 0.1, "experiment.horizon": 5_000}
    for source in (file, str(file), wallflower.load_config(file)):
        request = wallflower.plan(source, gaps=[0.4], changes=changes).plan.request
        assert (request.epsilon, request.horizon) == (Fraction(1, 10), 5_000)


def test_an_unknown_key_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="epsilom"):
        wallflower.plan(write(tmp_path), changes={"privacy.epsilom": 1})
    with pytest.raises(InputError, match="SECTION"):
        wallflower.plan(write(tmp_path), changes={"epsilon": 1})


def test_a_simulation_gives_its_arms_and_its_instances(tmp_path: Path) -> None:
    report = wallflower.simulate(write(tmp_path), instances=3, seed=1)
    assert [arm.arm for arm in report.arms] == ["a", "b", "c"]
    assert [round(arm.true_mean, 9) for arm in report.arms] == [0.1, 0.9, 0.2]
    assert len(report.to_pandas("instances")) == 3
    assert report.users_until_decided == report.summary["users_until_decided"]["mean"]
    assert not report.interrupted


def test_a_simulation_can_be_stopped_between_steps() -> None:
    report = wallflower.simulate(arms=3, on_step=lambda part: True)
    assert report.interrupted


def test_a_check_says_what_fails_and_raises_nothing(tmp_path: Path) -> None:
    good = wallflower.check(write(tmp_path), run_dir=tmp_path)
    assert good.ready
    assert good.verdict.startswith("Ready")
    text = SMALL.replace("users = 60", "users = 1")
    bad = wallflower.check(write(tmp_path, text, "few.toml"), run_dir=tmp_path)
    assert not bad.ready
    assert isinstance(bad.error, InputError)


def test_a_run_is_loaded_when_it_is_over(finished: wallflower.Run) -> None:
    assert finished.result.winner == "b"
    assert wallflower.load_run(str(finished.path)).result.head == finished.result.head
    assert wallflower.resume(finished.path).result.head == finished.result.head


async def test_a_run_and_a_check_work_inside_a_running_loop(tmp_path: Path) -> None:
    asyncio.get_running_loop()
    file = write(tmp_path)
    assert wallflower.check(file, run_dir=tmp_path).ready
    run = wallflower.run(file, engine="fast", run_dir=tmp_path / "run")
    assert run.result.finished == "winner"


def test_a_record_that_holds_is_verified(finished: wallflower.Run) -> None:
    found = wallflower.verify(finished.path, heads=[finished.result.head])
    assert found.holds
    assert found.result is not None
    assert found.result.winner == "b"


def test_a_record_that_was_changed_promises_nothing(
    finished: wallflower.Run, tmp_path: Path
) -> None:
    changed = tmp_path / "changed"
    changed.mkdir()
    with (
        sqlite3.connect(finished.path / "journal.sqlite") as source,
        sqlite3.connect(changed / "journal.sqlite") as copy,
    ):
        source.backup(copy)
        copy.execute("UPDATE entry SET at = at + 3600")
    found = wallflower.verify(changed)
    assert (found.holds, found.result) == (False, None)


def shown(finished: wallflower.Run, folder: Path) -> list[Any]:
    return [
        wallflower.plan(arms=2, gaps=[0.4]),
        wallflower.simulate(arms=2, horizon=10_000),
        wallflower.check(write(folder), run_dir=folder),
        wallflower.verify(finished.path),
        finished,
    ]


def test_every_result_is_one_line_in_a_log_and_html_in_a_notebook(
    finished: wallflower.Run, tmp_path: Path
) -> None:
    for result in shown(finished, tmp_path):
        assert len(repr(result)) < 200
        assert "\n" not in repr(result)
        assert repr(result).startswith(f"{type(result).__name__}(")
        assert result._repr_html_().startswith(("<div>", "<iframe"))
        assert len(result.to_pandas())


def test_html_of_a_result_escapes_names(tmp_path: Path) -> None:
    file = write(tmp_path, SMALL.replace('"a"', '"<script>"'))
    assert "<script>" not in wallflower.simulate(file)._repr_html_()


def test_without_pandas_a_table_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import_module = builtins.__import__

    def without_pandas(name: str, *rest: Any) -> Any:
        if name == "pandas":
            raise ModuleNotFoundError(name)
        return import_module(name, *rest)

    report = wallflower.plan(arms=2, gaps=[0.4])
    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(UnavailableError, match="pip install pandas"):
        report.to_pandas()
