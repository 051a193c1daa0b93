"""What a file's users suffice for: the smallest lead, and the margin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_fixtures import SMALL, write
from tests.wallflower.test_run_commands import invoke

pytestmark = pytest.mark.slow  # every plan simulates a few hundred experiments

ARMS = 'arms = ["a", "b", "c"]'
RARE = SMALL.replace("means = [0.1, 0.9, 0.2]", "means = [0.03, 0.02, 0.05]").replace(
    "users = 60", "users = 1000"
)
WITH_MARGIN = RARE.replace(ARMS, f'{ARMS}\ncontrol = "a"\nmargin = 0.04')


def planned(folder: Path, text: str) -> dict[str, Any]:
    code, said = invoke("plan", write(folder, text), "--format", "json")
    assert code == 0, said
    found: dict[str, Any] = json.loads(said)
    return found


@pytest.mark.parametrize(
    ("text", "base"),
    [(RARE, 0.02), (RARE.replace(ARMS, f'{ARMS}\ncontrol = "a"'), 0.03)],
    ids=["the worst arm", "control"],
)
def test_the_others_have_the_mean_that_the_file_expects(
    text: str, base: float, tmp_path: Path
) -> None:
    found = planned(tmp_path, text)["minimum_detectable"]
    assert found["base_rate"] == pytest.approx(base)
    # At a rate of one half these users would find a lead three times as large.
    assert 0.01 < found["gap"] < 0.06
    assert found["lift"] == pytest.approx(found["gap"] / base)


def test_more_users_detect_a_smaller_lead(tmp_path: Path) -> None:
    many = planned(tmp_path, RARE.replace("users = 1000", "users = 4000"))
    few = planned(tmp_path, RARE)
    assert many["minimum_detectable"]["gap"] < few["minimum_detectable"]["gap"]


def test_a_plan_says_what_the_margin_takes_were_all_arms_alike(tmp_path: Path) -> None:
    found = planned(tmp_path, WITH_MARGIN)["margin"]
    assert found["margin"] == 0.04
    assert 300 < found["users_if_equal"] < 12_000
    wider = WITH_MARGIN.replace("margin = 0.04", "margin = 0.2")
    assert (
        planned(tmp_path, wider)["margin"]["users_if_equal"] < (found["users_if_equal"])
    )
    _, said = invoke("plan", write(tmp_path, WITH_MARGIN))
    flat = " ".join(said.split())
    assert "a run also ends when no difference of 0.04 or more is left" in flat
    assert f"typically takes {found['users_if_equal']:,} users" in flat


def test_a_margin_that_the_users_cannot_show_is_named(tmp_path: Path) -> None:
    narrow = WITH_MARGIN.replace("margin = 0.04", "margin = 0.0001")
    assert planned(tmp_path, narrow)["margin"]["users_if_equal"] is None
    _, said = invoke("plan", write(tmp_path, narrow))
    assert "the users there are would not suffice" in " ".join(said.split())


def test_without_a_margin_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert planned(tmp_path, RARE)["margin"] is None
