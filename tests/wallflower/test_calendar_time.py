"""Plans and simulations of people who arrive say how long it takes."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.wallflower.test_run_commands import invoke
from wallflower.calendar_time import Calendar
from wallflower.planning.plan import make_plan
from wallflower.planning.request import read_request
from wallflower.planning.units import Question
from wallflower.planning.view import plan_json
from wallflower.regret.report import summarize
from wallflower.regret.setup import Request, prepare
from wallflower.stated_experiment import StatedExperiment, read_experiment

SITE = """
[experiment]
name = "site"
arms = ["a", "b"]
horizon = 100000
[policy]
most-rounds = 4
[visitors]
admission = "open"
per-day = 1000
answer-s = 43200
[rewards]
window-s = 43200
means = [0.2, 0.6]
"""


def stated(tmp_path: Path, text: str = SITE) -> StatedExperiment:
    path = tmp_path / "site.toml"
    path.write_text(text)
    return read_experiment(path, {}, {})


def planned(experiment: StatedExperiment) -> dict[str, Any]:
    request = read_request(experiment, {}, Question((), Fraction(1, 2)))
    return plan_json(make_plan(request))


def test_a_run_takes_as_long_as_its_people_and_its_rounds() -> None:
    assert Calendar(1000, 86_400).days(5000, 3) == 8.0


def test_a_plan_says_when_each_batch_is_over(tmp_path: Path) -> None:
    told = planned(stated(tmp_path))
    people = [batch["users"] for batch in told["batches"]]
    assert len(people) == 4
    days = [users / 1000 + number for number, users in enumerate(people, 1)]
    assert told["calendar"]["days_by_batch"] == pytest.approx(days)


def test_a_simulation_says_how_many_days_a_decision_takes(tmp_path: Path) -> None:
    prepared = prepare(Request(experiment=stated(tmp_path), instances=20))
    for _ in prepared.engine.steps():
        pass
    told = summarize(prepared, prepared.engine.result())
    found, asked = told["days_until_decided"], told["users_until_decided"]
    assert found["mean"] == pytest.approx(asked["mean"] / 1000 + found["rounds"])
    assert 1 <= found["rounds"] <= 4


def test_known_people_have_no_calendar(tmp_path: Path) -> None:
    head, _, rest = SITE.partition("[visitors]")
    text = head + rest[rest.index("[rewards]") :]
    assert planned(stated(tmp_path, text))["calendar"] is None


@pytest.mark.parametrize(
    ("name", "warned"), [("elimination", False), ("dp-imed", True)]
)
def test_a_check_says_which_policy_compares_hours(
    tmp_path: Path, name: str, warned: bool
) -> None:
    stated(tmp_path, SITE.replace("most-rounds = 4", f'name = "{name}"'))
    said = " ".join(invoke("check", tmp_path / "site.toml")[1].split())
    assert ("shows arms at different hours" in said) == warned
