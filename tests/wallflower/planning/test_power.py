from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from wallflower.cli import main
from wallflower.figures import power as figure
from wallflower.planning.plan import make_plan
from wallflower.planning.power import Grid, PowerCell, power_cells
from wallflower.planning.request import PlanRequest
from wallflower.protocol.errors import InputError

REQUEST = PlanRequest(arms=2, horizon=20_000)
GRID = Grid(
    epsilons=(Fraction(1, 2), Fraction(5)),
    base_rates=(Fraction(1, 10), Fraction(2, 5)),
    lifts=(Fraction(1), Fraction(1, 2)),
)
SMALL = ["--arms=2", "--horizon=2e4", "--epsilon=1/2,5", "--base-rate=0.1,0.4"]
Plan = Callable[..., str]


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Plan:
    """Run ``wallflower plan``; gives what it wrote, the error where it refused."""

    def command(*flags: str) -> str:
        monkeypatch.setattr(sys, "argv", ["wallflower", "plan", *flags])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return said.err if ended.value.code else said.out

    return command


@pytest.fixture(scope="module")
def cells() -> list[PowerCell]:
    return list(power_cells(REQUEST, GRID))


def users(cells: list[PowerCell], **chosen: Fraction) -> list[int]:
    found = [
        cell.users
        for cell in cells
        if all(getattr(cell, name) == value for name, value in chosen.items())
    ]
    return [count for count in found if count is not None]


def test_the_worst_case_of_a_plan_counts_on_everybody_and_says_so(plan: Plan) -> None:
    said = " ".join(plan("--arms", "2", "--horizon", "2000").split())
    assert "suffice whatever the rates are, if everybody who is asked answers" in said


def test_a_cell_is_what_a_plan_calls_typical(cells: list[PowerCell]) -> None:
    request = dataclasses.replace(
        REQUEST,
        epsilon=GRID.epsilons[0],
        base_rate=GRID.base_rates[1],
        gaps=(GRID.base_rates[1] * GRID.lifts[1],),
    )
    (cost,) = make_plan(request).gaps
    (found,) = (
        cell.users
        for cell in cells
        if (cell.epsilon, cell.base_rate, cell.lift)
        == (GRID.epsilons[0], GRID.base_rates[1], GRID.lifts[1])
    )
    assert found == cost.typically


@pytest.mark.parametrize("name", ["epsilon", "base_rate", "lift"])
def test_less_epsilon_base_rate_or_lift_takes_more_users(
    cells: list[PowerCell], name: str
) -> None:
    values = sorted({getattr(cell, name) for cell in cells})
    less, more = (users(cells, **{name: value}) for value in values)
    assert len(less) == len(more) == 4
    assert sum(less) > sum(more)


def test_what_a_hundred_horizons_do_not_decide_is_left_open() -> None:
    request = dataclasses.replace(REQUEST, horizon=200)
    grid = Grid((Fraction(1),), (Fraction(1, 100),), (Fraction(1, 100),))
    (cell,) = power_cells(request, grid)
    assert cell.users is None


@pytest.mark.parametrize(
    ("rate", "lift"), [("1/2", "2"), ("1/2", "0"), ("0", "1"), ("1", "1")]
)
def test_rates_that_no_arm_can_have_are_refused(rate: str, lift: str) -> None:
    with pytest.raises(InputError):
        Grid(base_rates=(Fraction(rate),), lifts=(Fraction(lift),))


def test_the_usual_lifts_leave_out_what_a_high_base_rate_cannot_have() -> None:
    grid = Grid.read(None, "0.6", (), None)
    assert max(grid.lifts) == Fraction(1, 2)


def test_the_epsilon_of_a_file_joins_the_usual_ones() -> None:
    grid = Grid.read(None, None, (), Fraction(1, 2))
    assert grid.epsilons == (Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(10))


def test_a_table_for_programs_has_every_cell(plan: Plan) -> None:
    flags = ["--power", *SMALL, "--lift=1", "--lift=1/2", "--format=json"]
    found: dict[str, Any] = json.loads(plan(*flags))
    assert (found["command"], found["settings"]["arms"]) == ("plan", 2)
    assert len(found["power"]) == 8
    assert found["power"][0].keys() == {"epsilon", "base_rate", "lift", "users"}


def test_a_table_for_people_says_what_it_counts_and_is_drawn(
    plan: Plan, tmp_path: Path
) -> None:
    picture = tmp_path / "power.svg"
    said = plan("--power", *SMALL, "--lift=1", "--picture", str(picture))
    page = " ".join(said.split())
    for words in ("base rate", "lift", "ε = 0.5", "ε = 5", "undecided after 2,000,000"):
        assert words in page
    assert "users until one arm is left" in picture.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--power", "--picture", "power.pdf"], "ends in .svg or .png"),
        (["--power", "--picture", "no/such/folder.svg"], "a folder that exists"),
        (["--picture", "power.svg"], "beside --power"),
        (["--power", "--lift", "200"], "lift is 200"),
        (["--power", "--epsilon", "1,none"], "epsilon is none"),
        (["--epsilon", "1,2"], "epsilon is 1,2"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_in_one_line(
    plan: Plan, flags: list[str], said: str
) -> None:
    error = plan(*flags)
    assert said in error
    assert error.count("\n") == 1


def test_the_picture_of_the_results_is_drawn_again_without_simulating(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure, "REQUEST", REQUEST)
    monkeypatch.setattr(figure, "GRID", GRID)
    *steps, (_, paths) = figure.make_power(tmp_path)
    assert len(steps) == GRID.size
    assert [path.suffix for path in paths] == [".svg", ".png", ".csv"]
    drawn = [path.read_bytes() for path in paths]
    monkeypatch.delattr(figure, "power_cells")
    ((_, again),) = figure.make_power(tmp_path)
    assert [path.read_bytes() for path in again] == drawn
