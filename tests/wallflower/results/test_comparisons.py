"""Differences and lifts beside control and the best, wherever a result is shown."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wallflower
from tests.support.run_fixtures import SMALL, write
from tests.support.vanishing import is_fifth_node_in_first_arm
from tests.wallflower.results.test_missing import MISSING, ran
from tests.wallflower.results.test_page import Page, made
from tests.wallflower.test_run_commands import invoke
from wallflower.protocol.errors import ConfigError, InputError
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.results.comparisons import Comparison, describe_lift, judge
from wallflower.results.difference_chart import signed_scale
from wallflower.strategy.config import load_config

EUROS = (
    SMALL.replace(
        'arms = ["a", "b", "c"]',
        'arms = ["a", "b", "c"]\ncontrol = "a"\nkeep-control = true\nmargin = 30',
    )
    .replace(
        "means = [0.1, 0.9, 0.2]",
        'range = [0, 200]\nunit = "€"\nmeans = [50, 150, 152]',
    )
    .replace("users = 60", "users = 400")
    .replace("first-batch = 40", "first-batch = 40\nratio = 1.5")
    + "[test]\nnoise-seed = 3\n"
)
FUTILE = (
    SMALL.replace(
        'arms = ["a", "b", "c"]',
        'arms = ["a", "b", "c"]\ncontrol = "a"\nmargin = 0.2',
    )
    .replace("means = [0.1, 0.9, 0.2]", "means = [0.6, 0.5, 0.4]")
    .replace("users = 60", "users = 400")
    .replace("first-batch = 40", "first-batch = 40\nratio = 1.5")
    + "[test]\nnoise-seed = 3\n"
)
SIMILAR = (
    SMALL.replace(
        'arms = ["a", "b", "c"]',
        'arms = ["a", "b", "c"]\ncontrol = "a"\nmargin = 0.1',
    )
    .replace("means = [0.1, 0.9, 0.2]", "means = [0.1, 0.11, 0.12]")
    .replace("users = 60", "users = 400")
    .replace("first-batch = 40", "first-batch = 40\nratio = 1.2")
    + "[test]\nnoise-seed = 6\n"
)


@pytest.fixture(scope="module")
def equal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("equal"), EUROS)


@pytest.fixture(scope="module")
def futile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("futile"), FUTILE)


def told(run_dir: Path) -> dict[str, Any]:
    code, said = invoke("status", run_dir, "--format", "json")
    assert code == 0
    found: dict[str, Any] = json.loads(said)
    return found


def test_a_run_that_ends_as_equal_names_the_arms_that_will_do(equal: Path) -> None:
    found = told(equal)
    assert (found["finished"], found["winner"]) == ("equal", None)
    text = 'Any of "b" and "c" will do. None of them is better than another by 30 €'
    assert text in found["sentence"]
    assert "or that a better arm was dropped, is at most 0.05" in found["sentence"]
    assert found["still_needed"] is None


def test_a_run_that_ends_as_futile_says_that_none_beats_control(futile: Path) -> None:
    found = told(futile)
    assert found["finished"] == "futile"
    assert 'No arm beats "a" by 0.2.' in found["sentence"]


@pytest.mark.parametrize("kind", ["equal", "futile"])
def test_an_end_by_the_margin_verifies(
    kind: str, request: pytest.FixtureRequest
) -> None:
    code, said = invoke("verify", request.getfixturevalue(kind))
    assert code == 0
    assert "The record holds." in said


def test_json_has_differences_in_the_unit_and_lifts_as_parts(equal: Path) -> None:
    found = told(equal)["differences"]
    assert (found["control"], found["margin"]) == ("a", 30)
    assert found["wrong_with_chance_at_most"] == 0.05
    first = found["to_control"][0]
    assert (first["arm"], first["other"]) == ("b", "a")
    assert first["lower"] < first["difference"] < first["upper"]
    assert 60 < first["lower"] < 100 < first["upper"] < 140
    assert first["lift_lower"] < first["lift"] < first["lift_upper"]
    assert 0.7 < first["lift_lower"] < 2 < first["lift_upper"] < 4
    assert [row["other"] for row in found["to_leader"]] == [found["leader"]] * 2


def test_control_that_is_kept_has_as_many_people_as_the_arms_left(equal: Path) -> None:
    arms = {row["name"]: row for row in told(equal)["arms"]}
    assert arms["a"]["users"] == arms["b"]["users"]
    assert not arms["a"]["active"]


def test_the_terminal_shows_difference_lift_and_what_they_show(equal: Path) -> None:
    _, said = invoke("status", equal)
    flat = " ".join(said.split())
    assert 'less "a" (control), in €' in flat
    assert "surely better" in flat
    assert "out in round" in flat
    assert ", kept" in flat
    assert "Differences and lifts of all arms in all rounds hold together" in flat
    assert "these may overlap" not in flat


def test_the_page_draws_differences_before_the_arms(equal: Path) -> None:
    assert invoke("report", equal)[0] == 0
    page = Page(equal / "report.html")
    assert page.text.index('id="differences"') < page.text.index('id="arms"')
    rows = {row[0].strip(): row for row in page.table("Every arm less “a”")}
    assert rows["b"][-1] == rows["c"][-1] == "surely better"
    assert "Any of “b” and “c” will do." in page.flat
    assert "kept as control" in page.flat
    assert "differences within 30 € do not matter" in page.flat
    assert "these may overlap although one arm is surely better" in page.flat


def test_the_page_shows_a_kept_control_after_its_fall(equal: Path) -> None:
    assert invoke("report", equal)[0] == 0
    page = Page(equal / "report.html")
    rounds = told(equal)["rounds"]
    rows = [row for row in page.table("Every arm after every round") if row[0] == "a"]
    assert [row[1] for row in rows] == [str(number + 1) for number in range(rounds)]
    assert rows[-1][2] == str(told(equal)["arms"][0]["users"])
    assert "kept as control" in rows[-1][-1]


def test_export_has_a_row_for_every_difference(equal: Path) -> None:
    _, said = invoke("export", equal, "--table", "differences")
    rows = list(csv.DictReader(io.StringIO(said)))
    assert len(rows) == 4
    assert {row["unit"] for row in rows} == {"€"}


def test_python_has_the_same_differences_as_json(equal: Path) -> None:
    found = wallflower.load_run(equal).differences
    assert found is not None
    assert found.as_json() == told(equal)["differences"]


def test_without_control_arms_are_compared_with_the_best(
    tmp_path: Path,
) -> None:
    run_dir = made(tmp_path, SMALL)
    found = told(run_dir)["differences"]
    assert (found["control"], found["to_control"]) == (None, [])
    assert [row["other"] for row in found["to_leader"]] == ["b", "b"]


def test_missing_people_widen_what_holds_for_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = ran(tmp_path, MISSING, is_fifth_node_in_first_arm, monkeypatch)
    rows = told(run_dir)["differences"]["to_leader"]
    for row in rows:
        assert row["lower_all_asked"] <= row["lower"]
        assert row["upper_all_asked"] >= row["upper"]
    (first,) = (row for row in rows if row["arm"] == "a")  # it misses people
    assert first["lower_all_asked"] < first["lower"]
    assert first["upper_all_asked"] > first["upper"]


def test_a_lift_over_a_mean_that_may_be_zero_has_one_end() -> None:
    one = Comparison("a", "b", 0.3, 0.1, 0.4, 0.1, 0.4, None, 2.0, None)
    assert describe_lift(one) == "– (+200 % or more)"
    open_ended = Comparison("a", "b", 0.3, -0.1, 0.4, -0.1, 0.4, None, -1.0, None)
    assert describe_lift(open_ended) == "not bounded"


def test_a_large_lift_is_written_in_whole_percent() -> None:
    one = Comparison("a", "b", 0.3, 0.1, 0.4, 0.1, 0.4, 14.5, 10.23, 300.0)
    assert describe_lift(one) == "+1,450 % (+1,023 % to +30,000 %)"
    small = Comparison("a", "b", 0.3, 0.1, 0.4, 0.1, 0.4, 0.7721, 0.0002, 0.99996)
    assert describe_lift(small) == "+77.2 % (+0.02 % to +100 %)"


def test_an_arm_that_is_out_is_not_called_undecided_beside_the_best() -> None:
    one = Comparison("a", "b", -0.1, -0.3, 0.01, -0.3, 0.01, -0.1, -0.3, 0.1, True)
    assert judge(one, None, to_leader=True) == "out"
    assert judge(one, None) == "not decided"


def test_arms_that_a_run_called_equal_are_not_called_undecided(tmp_path: Path) -> None:
    run_dir = made(tmp_path, SIMILAR)
    found = told(run_dir)
    assert found["finished"] == "equal"
    rows = [*found["differences"]["to_control"], *found["differences"]["to_leader"]]
    # One interval alone reaches beyond the margin: the ending is what settles it.
    assert any(max(-row["lower"], row["upper"]) > 0.1 for row in rows)
    assert {row["settled_by"] for row in rows} == {"equal"}
    _, said = invoke("status", run_dir)
    assert "within the margin" in said
    assert "not decided" not in said


def test_after_a_futile_end_no_arm_left_is_called_undecided_beside_control(
    futile: Path,
) -> None:
    rows = told(futile)["differences"]["to_control"]
    assert {row["settled_by"] for row in rows if not row["is_out"]} == {"futile"}
    one = Comparison("b", "a", 0.0, -0.3, 0.25, -0.3, 0.25, 0.0, -0.3, 0.3)
    assert judge(one, 0.2) == "not decided"
    settled = replace(one, settled_by="futile")
    assert judge(settled, 0.2) == "not better by the margin"


def test_scales_of_differences_hold_zero_and_every_end() -> None:
    generator = np.random.default_rng(28)
    for _ in range(200):
        ends = (generator.normal(0, 10.0 ** generator.uniform(-3, 3), 4)).tolist()
        scale = signed_scale(ends)
        assert scale.low <= min(0, *ends)
        assert scale.high >= max(0, *ends)
        assert 2 <= len(scale.ticks) <= 6
        assert min(abs(tick) for tick in scale.ticks) < 1e-9 * scale.step


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('control = "d"', "one of the arms"),
        ("keep-control = true", "beside a control"),
        ("margin = 0", "margin"),
        ("margin = 1", "less than the width of the range"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(
    line: str, said: str, tmp_path: Path
) -> None:
    text = SMALL.replace('arms = ["a"', f'{line}\narms = ["a"')
    with pytest.raises((ConfigError, InputError), match=said):
        load_config(write(tmp_path, text))


def test_a_margin_is_stated_in_the_unit_of_outcomes(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, EUROS))
    assert config.reward_range == RewardRange(Fraction(0), Fraction(200), "€")
    assert config.margin == Fraction(3, 20)
