"""Means, intervals and differences are shown in the unit of the outcomes."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from fractions import Fraction
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.run_fixtures import SMALL, write
from tests.wallflower.results.test_page import Page
from tests.wallflower.test_run_commands import invoke
from wallflower.policy_text import describe_reason, values_in_unit
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange
from wallflower.results.endings import still_needed
from wallflower.results.live import RunView
from wallflower.results.page import load_run
from wallflower.results.view import print_result
from wallflower.strategy.bandit.policy import ArmView, EliminationReason
from wallflower.strategy.config import load_config
from wallflower.strategy.store import events

EUROS = RewardRange(Fraction(-50), Fraction(150), "€")
PAID = SMALL.replace(
    "means = [0.1, 0.9, 0.2]",
    'range = [-50, 150]\nunit = "€"\nmeans = [-30, 130, -10]',
)
NAMES = ("a", "b", "c")
FAR = EliminationReason(1, 0.1359, radius=0.121)
UNLIKELY = EliminationReason(1, 0.05677, chance=0.01)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("units")
    words = ("--engine", "fast", "--run-dir", folder / "run")
    code, said = invoke("run", write(folder, PAID), *words)
    assert code == 0, said
    return folder / "run"


def recorded(run_dir: Path) -> tuple[ArmView, ...]:
    last = load_run(run_dir).result.last
    assert last is not None
    return last.views


def test_the_terminal_shows_means_and_intervals_in_the_unit(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = io.StringIO()
    out = Console(file=text, width=200, highlight=False)
    monkeypatch.setattr("wallflower.results.view.console", lambda: out)
    print_result(load_run(run_dir).result)
    for view in recorded(run_dir):
        low, high = (200 * end - 50 for end in (view.lower, view.upper))
        assert view.estimate is not None
        assert f" {200 * view.estimate - 50:.2f} € " in text.getvalue()
        assert f" {low:.2f} – {high:.2f} € " in text.getvalue()


def test_bars_run_from_one_end_of_the_range_to_the_other(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = io.StringIO()
    out = Console(file=text, width=200, highlight=False)
    monkeypatch.setattr("wallflower.results.view.console", lambda: out)
    print_result(load_run(run_dir).result)
    assert "-50" + " " * 24 + "150" in text.getvalue()


async def test_the_table_of_a_run_under_way_is_in_the_unit() -> None:
    view = RunView(("first",), EUROS)
    shown = (ArmView(0, 100, 0.25, 0.1, 0.4, True, None, asked=100),)
    await view.listen(events.RoundFinished(1, shown, 200, 95, 105, None, 1.25))
    text = io.StringIO()
    Console(file=text, width=120).print(view._render())
    assert " 0.00 € " in text.getvalue()
    assert " -30.00 – 30.00 € " in text.getvalue()


def test_json_has_arms_in_the_unit_and_states_range_and_unit(run_dir: Path) -> None:
    code, said = invoke("status", run_dir, "--format", "json")
    told = json.loads(said)
    assert code == 0
    assert (told["range"], told["unit"]) == ([-50.0, 150.0], "€")
    for arm, view in zip(told["arms"], recorded(run_dir), strict=True):
        for field in ("estimate", "lower", "upper"):
            assert arm[field] == pytest.approx(200 * getattr(view, field) - 50)
        assert arm["reason"] == describe_reason(view.reason, NAMES, EUROS)
        assert arm["users"] == view.users


def test_the_history_in_json_is_in_the_unit_as_well(run_dir: Path) -> None:
    told = json.loads(invoke("status", run_dir, "--format", "json")[1])
    fields = ("estimate", "lower", "upper", "reason")
    last = [{key: arm[key] for key in fields} for arm in told["history"][-1]["arms"]]
    assert last == [{key: arm[key] for key in fields} for arm in told["arms"]]


def test_an_export_is_in_the_unit_and_states_range_and_unit(run_dir: Path) -> None:
    told = json.loads(invoke("export", run_dir, "--format", "json")[1])
    assert (told["range"], told["unit"]) == ([-50.0, 150.0], "€")
    (*_, row) = csv.DictReader(io.StringIO(invoke("export", run_dir)[1]))
    assert (row["range_low"], row["range_high"], row["unit"]) == ("-50.0", "150.0", "€")
    view = recorded(run_dir)[-1]
    for field in ("estimate", "lower", "upper"):
        in_unit = pytest.approx(200 * getattr(view, field) - 50)
        assert told["rounds"][-1][field] == float(row[field]) == in_unit
        assert getattr(load_run(run_dir).rounds[-1], field) == in_unit


def test_json_without_a_range_stays_as_it_is(tmp_path: Path) -> None:
    words = ("--engine", "fast", "--run-dir", tmp_path / "run")
    assert invoke("run", write(tmp_path), *words)[0] == 0
    told = load_run(tmp_path / "run").result.as_json()
    assert not {"range", "unit"} & set(told)
    for arm, view in zip(told["arms"], recorded(tmp_path / "run"), strict=True):
        shown = values_in_unit(view, NAMES, DEFAULT_RANGE)
        assert {key: arm[key] for key in shown} == shown
        assert (arm["estimate"], arm["lower"]) == (view.estimate, view.lower)


def test_a_reason_gives_its_differences_in_the_unit() -> None:
    far, unlikely = (describe_reason(one, NAMES, EUROS) for one in (FAR, UNLIKELY))
    assert far == 'trails "b" by 27.18 € > radius 24.20 €'
    assert unlikely == (
        'trails "b" by 11.35 €; the chance of such sums, were it as good as any, is '
        "at most 0.01"
    )
    without_unit = describe_reason(FAR, NAMES, DEFAULT_RANGE)
    assert without_unit == 'trails "b" by 0.1359 > radius 0.121'


def test_the_reason_of_a_person_stays_as_they_wrote_it() -> None:
    view = ArmView(0, 1, 0.5, 0.0, 1.0, False, 1, retired=True, note="a rash")
    assert values_in_unit(view, NAMES, EUROS)["reason"] == "a rash"


def test_an_arm_that_was_not_heard_has_no_mean_in_the_unit_either() -> None:
    view = ArmView(0, 0, None, 0.0, 1.0, True, None)
    shown = values_in_unit(view, NAMES, EUROS)
    assert (shown["estimate"], shown["lower"], shown["upper"]) == (None, -50.0, 150.0)


def test_what_another_experiment_would_take_is_said_in_the_unit(tmp_path: Path) -> None:
    views = [
        ArmView(0, 400, 0.6, 0.45, 0.75, True, None),
        ArmView(1, 400, 0.4, 0.3, 0.5, True, None),
    ]
    needed = still_needed(load_config(write(tmp_path, PAID)), views)
    assert needed is not None
    assert "ahead by 40 €, as the sums suggest" in needed.sentence
    assert "if it is by 90 €, the most" in needed.sentence
    told = needed.as_json()
    assert (told["gap"], told["base_rate"], told["widest_gap"]) == (40.0, 30.0, 90.0)


@pytest.fixture(scope="module")
def page(run_dir: Path) -> Page:
    assert invoke("report", run_dir)[0] == 0
    return Page(run_dir / "report.html")


def test_the_page_shows_means_and_intervals_in_the_unit(
    page: Page, run_dir: Path
) -> None:
    shown = {(row[2], row[3]) for row in page.table("Estimates after")}
    assert shown == {
        (
            f"{200 * (view.estimate or 0.0) - 50:.2f} €",
            f"{200 * view.lower - 50:.2f} – {200 * view.upper - 50:.2f} €",
        )
        for view in recorded(run_dir)
    }


def test_every_round_on_the_page_is_in_the_unit(page: Page) -> None:
    every = page.table("Every arm after every round")
    assert every
    assert all(cell.endswith(" €") for row in every for cell in row[3:6])


def test_the_page_says_by_how_much_an_arm_fell_in_the_unit(page: Page) -> None:
    fallen = [row[5] for row in page.table("Estimates after") if "behind" in row[5]]
    assert len(fallen) == 2
    assert all(re.search(r"\d\.\d\d € behind “b”", words) for words in fallen)
    assert re.search(r"fell in round \d: \d+\.\d\d € behind “b”", page.flat)


def test_pictures_are_labelled_in_the_unit(page: Page) -> None:
    axis = page.text.partition('<svg class="axis"')[2].partition("</svg>")[0]
    shown = ["-50", "-10", "30", "70", "110", "150"]
    assert re.findall(r">([^<>]+)</text>", axis) == shown
    assert "(from -50 to 150 €)" in page.flat


@pytest.mark.parametrize("unit", ["€", "Swedish kronor a day"])
def test_a_unit_leaves_room_for_names_and_numbers_on_a_narrow_terminal(
    unit: str, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = load_run(run_dir).result
    assert result.config.rewards is not None
    rewards = dataclasses.replace(result.config.rewards, unit=unit)
    config = dataclasses.replace(result.config, rewards=rewards)
    text = io.StringIO()
    out = Console(file=text, width=60, highlight=False)
    monkeypatch.setattr("wallflower.results.view.console", lambda: out)
    print_result(dataclasses.replace(result, config=config))
    assert "…" not in text.getvalue()
    assert unit in text.getvalue()
    assert all(f"● {name} " in text.getvalue() for name in "abc")
    for view in recorded(run_dir):
        low, high = (200 * end - 50 for end in (view.lower, view.upper))
        assert f" {low:.2f} – {high:.2f}" in text.getvalue()


async def test_a_long_unit_stands_above_the_table_of_a_run_under_way() -> None:
    kronor = dataclasses.replace(EUROS, unit="Swedish kronor a day")
    view = RunView(("first",), kronor)
    shown = (ArmView(0, 100, 0.25, 0.1, 0.4, True, None, asked=100),)
    await view.listen(events.RoundFinished(1, shown, 200, 95, 105, None, 1.25))
    text = io.StringIO()
    Console(file=text, width=60).print(view._render(60))
    assert "; means in Swedish kronor a day" in " ".join(text.getvalue().split())
    assert "-30.00 – 30.00 " in text.getvalue()
    assert "first" in text.getvalue()
