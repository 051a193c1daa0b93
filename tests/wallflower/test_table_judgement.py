"""`check`, `run` and `simulate` judge a table of outcomes arm by arm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from tests.integration import test_flower_homes
from tests.support.run_fixtures import SMALL, write
from tests.wallflower.test_run_commands import invoke
from wallflower.clients.rewards.local import read_table
from wallflower.keys.store import KeyStore
from wallflower.protocol.errors import ConfigError
from wallflower.protocol.rewards.cells import is_empty, read_cell, read_cells
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.strategy.config import load_config

keys = test_flower_homes.keys  # the fixture
EUROS = RewardRange(Fraction(0), Fraction(200), "€")
TABLE = '[rewards]\nsource = "table"\ntable = "people.csv"\n'
IN_EUROS = 'range = [0, 200]\nunit = "€"\n'


def with_table(
    folder: Path, columns: Mapping[str, Sequence[object]], more: str = ""
) -> Path:
    """Write an experiment of 720 people whose cells are repeated from these."""
    rows = [
        ",".join(
            [f"u{user}", *(str(cells[user % len(cells)]) for cells in columns.values())]
        )
        for user in range(720)
    ]
    header = ",".join(["user", *columns])
    (folder / "people.csv").write_text("\n".join([header, *rows]) + "\n")
    text = SMALL.partition("[rewards]")[0].replace("users = 60\n", "")
    return write(folder, text + TABLE + more)


def checked(path: Path, code: int) -> tuple[str, list[dict[str, Any]]]:
    ended, said = invoke("check", path)
    assert ended == code, said
    ended, told = invoke("check", path, "--format", "json")
    assert ended == code
    lines = json.loads(told)["checks"]
    return " ".join(said.split()), [one for one in lines if one["name"] == "rewards"]


def test_a_good_table_is_said_to_be_within_its_range(tmp_path: Path) -> None:
    path = with_table(tmp_path, {"a": [0, 20], "b": [200], "c": [0.5]}, IN_EUROS)
    said, (line,) = checked(path, 0)
    assert line["level"] == "ok"
    assert "table: 2,160 cells of 3 arms, all from 0 to 200 €" in said
    assert [one["cells"] for one in line["arms"]] == [720, 720, 720]


def test_values_outside_the_range_fail_with_file_and_row(tmp_path: Path) -> None:
    """Almost every cell was out of range, and `check` said that all was ready."""
    odd = [0.5] + [60] * 399
    path = with_table(tmp_path, {"a": odd, "b": [250, -1, 0], "c": [1]})
    said, lines = checked(path, 2)
    failed = {one["level"] for one in lines}
    assert failed == {"fail"}
    assert f'{tmp_path / "people.csv"}:3, column "a": the outcome is outside' in said
    assert 'rewards.range, 0 to 1. Arm "a" has 718 such cells of 720 (0 below,' in said
    assert f'{tmp_path / "people.csv"}:2, column "b"' in said
    assert "(240 below, 240 above)" in said
    assert "250" not in said.replace("2,50", "")
    assert "Not ready" in said
    code, told = invoke("run", path, "--run-dir", tmp_path / "run")
    assert (code, 'people.csv:3, column "a"' in told) == (2, True)
    assert not (tmp_path / "run").exists()


def test_few_empty_cells_are_counted_by_arm_with_what_they_count_as(
    tmp_path: Path,
) -> None:
    columns: dict[str, list[object]] = {
        "a": [0, 20, 30, 200],
        "b": ["", 20, 30, 40],
        "c": [1] * 9 + ["?"],
    }
    path = with_table(tmp_path, columns, IN_EUROS + "if-unknown = 50\n")
    said, lines = checked(path, 0)
    assert {one["level"] for one in lines} == {"warn"}
    assert (
        'arm "b": 180 of 720 cells hold no outcome (180 empty, 0 no number); each '
        f"counts as 50.00 € (rewards.if-unknown); the first: "
        f'{tmp_path / "people.csv"}:2, column "b"'
    ) in said
    assert 'arm "c": 72 of 720 cells hold no outcome (0 empty, 72 no number)' in said
    # A quarter of the cells, each up to 150 € from where it would be.
    assert "differ between arms by up to 25 %" in said
    assert "means may differ by 37.5 €" in said


def test_an_arm_that_is_mostly_empty_is_not_ready(tmp_path: Path) -> None:
    """A log of who saw which arm: 87 % of the cells were empty, and all was ready."""
    path = with_table(tmp_path, {"a": [1] + [""] * 7, "b": [0, 1], "c": [1, ""]})
    said, lines = checked(path, 2)
    assert [one["level"] for one in lines] == ["fail", "warn", "warn"]
    assert 'arm "a": 630 of 720 cells hold no outcome' in said
    assert "more than half of its mean would be that value and not outcomes" in said
    assert invoke("run", path, "--run-dir", tmp_path / "run")[0] == 2


def test_half_of_the_cells_may_be_empty(tmp_path: Path) -> None:
    path = with_table(tmp_path, {"a": [1, ""], "b": [0, ""], "c": [1, ""]})
    said, lines = checked(path, 0)
    assert [one["level"] for one in lines] == ["warn"] * 3
    assert "differ between arms" not in said  # all alike


def test_tables_of_single_nodes_are_judged_together(tmp_path: Path) -> None:
    for node in range(12):
        rows = "".join(f"u{user},0.5,{user % 2},\n" for user in range(60))
        (tmp_path / f"node-{node}.csv").write_text(f"user,a,b,c\n{rows}")
    rewards = '[rewards]\nsource = "table"\ntable = "{node}.csv"\n'
    text = SMALL.partition("[rewards]")[0] + rewards
    said, lines = checked(write(tmp_path, text), 2)
    assert 'arm "c": 720 of 720 cells hold no outcome' in said
    assert f'{tmp_path / "node-0.csv"}:2, column "c"' in said
    assert lines[0]["arms"][2]["empty"] == 720


def test_a_simulation_refuses_the_same_tables(tmp_path: Path) -> None:
    path = with_table(tmp_path, {"a": [0.5, 60], "b": [1], "c": [0]})
    code, said = invoke("simulate", path)
    assert (code, 'people.csv:3, column "a"' in said) == (2, True), said
    path = with_table(tmp_path, {"a": [1] + [""] * 7, "b": [1], "c": [0]})
    code, said = invoke("simulate", path)
    assert (code, 'arm "a": 630 of 720 cells' in said) == (2, True), said


def simulated(path: Path, *words: str) -> dict[str, Any]:
    code, said = invoke("simulate", path, *words, "--format", "json")
    assert code == 0, said
    found: dict[str, Any] = json.loads(said)
    return found


def test_a_simulation_takes_empty_cells_as_a_run_would(tmp_path: Path) -> None:
    more = IN_EUROS + "if-unknown = 50\n"
    columns: dict[str, list[object]] = {"a": [0, 20], "b": ["", 20], "c": [30]}
    path = with_table(tmp_path, columns, more)
    found = simulated(path)
    means = {one["arm"]: one["true_mean"] for one in found["arms"]}
    assert means == pytest.approx({"a": 10, "b": 35, "c": 30})
    assert (found["range"], found["unit"]) == ([0, 200], "€")
    assert found["table"]["arms"][1]["empty"] == 360
    assert len(found["table"]["warnings"]) == 2
    said = " ".join(invoke("simulate", path)[1].split())
    assert 'arm "b": 360 of 720 cells hold no outcome' in said


def test_a_simulation_speaks_in_the_unit(tmp_path: Path) -> None:
    columns = {"a": [0, 20], "b": [100, 160], "c": [30]}
    in_euros = with_table(tmp_path, columns, IN_EUROS)
    found = simulated(in_euros)
    parts = {name: [cell / 200 for cell in cells] for name, cells in columns.items()}
    bare = simulated(with_table(tmp_path, parts))
    for one, other in zip(found["arms"], bare["arms"], strict=True):
        for key in ("true_mean", "estimate", "lower", "upper"):
            assert one[key] == pytest.approx(200 * other[key])
        assert (one["users"], one["status"]) == (other["users"], other["status"])
    for key, value in bare["regret"].items():
        expected = None if value is None else pytest.approx(200 * value)
        assert found["regret"][key] == expected
    path = with_table(tmp_path, columns, IN_EUROS)
    said = invoke("simulate", path)[1]
    assert "130.00 €" in said
    assert " € after " in said  # the regret


def test_means_given_to_a_simulation_of_a_file_are_in_the_unit(tmp_path: Path) -> None:
    path = with_table(tmp_path, {"a": [0], "b": [1], "c": [2]}, IN_EUROS)
    synthetic = ("--set", "rewards.source=synthetic")
    found = simulated(path, *synthetic, "--set", "rewards.means=[50, 100, 150]")
    assert [one["true_mean"] for one in found["arms"]] == pytest.approx([50, 100, 150])
    beyond = ("--set", "rewards.means=[50, 250, 150]")
    code, said = invoke("simulate", path, *synthetic, *beyond)
    assert (code, "within rewards.range, 0 to 200 €" in said) == (2, True), said


def test_a_nodes_own_table_is_judged_on_its_machine(
    keys: KeyStore, tmp_path: Path
) -> None:
    test_flower_homes.homes(keys, tmp_path)
    file = tmp_path / "clinic-0" / "node.toml"
    text = file.read_text().partition("[rewards]")[0]
    assert "arms" not in text
    text = text.replace("[node]\n", '[node]\narms = ["a", "b"]\n', 1)
    file.write_text(text + TABLE)
    table = file.parent / "people.csv"
    table.write_text("user,a,b\np1,0.5,\np2,7,1\n")
    code, said = invoke("check", file)
    assert code == 2
    flat = " ".join(said.split())
    assert f'{table}:3, column "a": the outcome is outside rewards.range' in flat
    assert 'warn rewards: arm "b": 1 of 2 cells holds no outcome' in flat


@pytest.mark.parametrize("value", ["", "  ", None, float("nan"), "NaN"])
def test_a_cell_that_says_nothing_is_empty(value: object) -> None:
    assert is_empty(value)
    assert read_cell(value) is None


@pytest.mark.parametrize("value", ["n/a", "12 €", "1,5", "inf", float("-inf")])
def test_a_cell_with_something_else_is_no_number(value: object) -> None:
    assert not is_empty(value)
    assert read_cell(value) is None


def test_both_ends_of_the_range_are_within_it(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("user,a\nu1,0\nu2,200\nu3,-0.01\nu4,200.01\nu5,\n")
    judged, (values,) = read_cells([path], ["a"], EUROS, 0.25)
    assert values.tolist() == [0, 1, 0, 1, 0.25]
    (one,) = judged.arms
    assert (one.below, one.above, one.empty, one.no_number) == (1, 1, 1, 0)
    assert one.first_outside.endswith('people.csv:4, column "a"')
    assert one.first_unknown.endswith('people.csv:6, column "a"')


def test_a_table_without_people_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("user,a\n")
    with pytest.raises(ConfigError, match="holds no users"):
        read_cells([path], ["a"], EUROS)


def test_people_numbered_from_nought_in_parquet_are_people(tmp_path: Path) -> None:
    parquet.write_table(
        pyarrow.table({"user": [0, 1], "a": [0.5, 1]}), tmp_path / "t.parquet"
    )
    assert list(read_table(tmp_path / "t.parquet", ["a"], "user")) == ["0", "1"]


def test_numbers_with_a_comma_are_told_how_to_be_written(tmp_path: Path) -> None:
    cells = {"a": ['"0,5"'], "b": ["1"], "c": ["1"]}
    code, said = invoke("check", with_table(tmp_path, cells))
    assert (code, "written with a point: 0.5" in said) == (2, True)


def test_users_stated_beside_a_table_are_named_with_their_line(tmp_path: Path) -> None:
    file = with_table(tmp_path, {"a": [1], "b": [0], "c": [0]})
    file.write_text(file.read_text().replace("count = 12", "users = 60\ncount = 12"))
    with pytest.raises(ConfigError, match=r"toml:8: nodes: .users. follows from"):
        load_config(file)
