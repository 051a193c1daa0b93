"""A plan of outcomes with a unit speaks in the unit and says what clipping means."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_fixtures import SMALL, write
from tests.wallflower.test_run_commands import invoke

EUROS = SMALL.replace(
    "means = [0.1, 0.9, 0.2]",
    'range = [-50, 150]\nunit = "€"\nmeans = [-30, 130, -10]',
)


@pytest.fixture
def euros(tmp_path: Path) -> Path:
    return write(tmp_path, EUROS)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return write(tmp_path, SMALL, "plain.toml")


def planned(*words: str | Path) -> dict[str, Any]:
    code, said = invoke("plan", *words, "--format", "json")
    assert code == 0, said
    found: dict[str, Any] = json.loads(said)
    return found


def test_a_gap_is_given_and_told_in_the_unit(euros: Path, plain: Path) -> None:
    in_euros = planned(euros, "--gap", "80", "--gap", "160")
    bare = planned(plain, "--gap", "0.4", "--gap", "0.8")
    assert [row["gap"] for row in in_euros["gaps"]] == [160, 80]
    for one, other in zip(in_euros["gaps"], bare["gaps"], strict=True):
        assert {**one, "gap": one["gap"] / 200} == other
    assert (in_euros["range"], in_euros["unit"]) == ([-50, 150], "€")
    assert "range" not in bare


def test_what_a_batch_tells_apart_is_in_the_unit(euros: Path, plain: Path) -> None:
    pairs = zip(planned(euros)["batches"], planned(plain)["batches"], strict=True)
    for one, other in pairs:
        assert one["separates"] == pytest.approx(200 * other["separates"])
        assert {**one, "separates": 0} == {**other, "separates": 0}
    said = invoke("plan", euros)[1]
    assert re.search(r"\d+ €\n", said)  # the last column of the batches


def test_a_base_rate_and_a_lift_are_in_the_unit(euros: Path, plain: Path) -> None:
    # 50 euros lie in the middle of the range; a tenth more are 5 euros.
    (row,) = planned(euros, "--base-rate", "50", "--lift", "0.1")["gaps"]
    (bare,) = planned(plain, "--base-rate", "0.5", "--gap", "0.025")["gaps"]
    assert row["gap"] == 5
    assert {**row, "gap": 0} == {**bare, "gap": 0}
    said = " ".join(invoke("plan", euros, "--base-rate", "50")[1].split())
    assert "the others' mean of 50 €" in said


@pytest.mark.parametrize("gap", ["0", "200.5", "-3"])
def test_a_gap_beyond_the_range_is_refused_in_the_unit(gap: str, euros: Path) -> None:
    code, said = invoke("plan", euros, "--gap", gap)
    assert code == 2
    assert "gap is" in said
    assert "above 0 and at most 200 €" in said


@pytest.mark.parametrize("rate", ["-50", "150", "-51"])
def test_a_base_rate_beyond_the_range_is_refused_in_the_unit(
    rate: str, euros: Path
) -> None:
    code, said = invoke("plan", euros, "--base-rate", rate)
    assert code == 2
    assert "between -50 and 150 €" in said


def test_the_usual_gaps_are_parts_of_the_range(euros: Path) -> None:
    assert [row["gap"] for row in planned(euros)["gaps"]] == [40, 20, 10]


def test_a_plan_says_what_clipping_means(euros: Path, plain: Path) -> None:
    said = " ".join(invoke("plan", euros)[1].split())
    assert "Outcomes count from -50 to 150 €." in said
    assert "clips it to the nearer end" in said
    assert "What an arm brings beyond -50 to 150 € does not count for it." in said
    assert planned(euros)["clipping"] in said
    assert "Outcomes count from 0 to 1." in " ".join(invoke("plan", plain)[1].split())
    assert planned("--arms", "3")["clipping"] is None  # no file, no outcomes


def test_what_a_liar_moves_is_in_the_unit(euros: Path, plain: Path) -> None:
    for one, other in zip(planned(euros)["lies"], planned(plain)["lies"], strict=True):
        for key in ("trusted", "proved"):
            assert one[key] == pytest.approx(200 * other[key])
        assert (one["people"], one["counts_as"]) == (
            other["people"],
            other["counts_as"],
        )
    assert re.search(r"anywhere, up to [\d,.]+ € away", " ".join(said_by(euros)))


def said_by(path: Path) -> list[str]:
    return invoke("plan", path)[1].split()


def test_check_says_what_is_told_apart_in_the_unit(euros: Path) -> None:
    said = " ".join(invoke("check", euros)[1].split())
    assert re.search(r"means that differ by [\d,.]+ € are told apart", said)


def test_the_base_rates_of_a_power_table_are_in_the_unit(
    euros: Path, plain: Path
) -> None:
    # 10 euros lie at 0.3 of the range; 3 times as much are 20 euros more, 0.1 of it.
    table = ("--power", "--epsilon", "5")
    in_euros = planned(euros, *table, "--base-rate", "10,50", "--lift", "2,1")
    (low, _, _, high) = in_euros["power"]
    assert (low["base_rate"], low["lift"]) == (10, 2)
    assert (high["base_rate"], high["lift"]) == (50, 1)
    assert (in_euros["range"], in_euros["unit"]) == ([-50, 150], "€")
    for cell, rate, lift in ((low, "3/10", "1/3"), (high, "1/2", "1/2")):
        bare = planned(plain, *table, "--base-rate", rate, "--lift", lift)
        assert "range" not in bare
        assert cell["users"] == bare["power"][0]["users"]


def test_the_usual_base_rates_of_a_power_table_are_means_a_lift_can_raise(
    euros: Path,
) -> None:
    found = planned(euros, "--power", "--epsilon", "5", "--lift", "1")["power"]
    assert [cell["base_rate"] for cell in found] == [1.5, 7.5, 30]


def test_a_power_table_and_its_picture_name_the_unit(
    euros: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "power.svg"
    words = ("--power", "--epsilon", "5", "--base-rate", "50", "--lift", "1")
    code, said = invoke("plan", euros, *words, "--picture", picture)
    assert code == 0, said
    page = " ".join(said.split())
    assert "50 € 1 " in page
    assert "outcomes at either end of -50 to 150 €" in page
    assert "times as often" not in page
    assert "others' mean 50 €" in picture.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("rate", "lift", "allowed"),
    [
        ("150", "0.1", "between 0 and 150 €"),
        ("-10", "0.1", "between 0 and 150 €"),
        ("0", "0.1", "between 0 and 150 €"),
        ("100", "0.6", "at most 1/2 at base rate 100 €"),
    ],
)
def test_a_power_table_beyond_the_range_is_refused_in_the_unit(
    rate: str, lift: str, allowed: str, euros: Path
) -> None:
    code, said = invoke("plan", euros, "--power", "--base-rate", rate, "--lift", lift)
    assert code == 2
    assert allowed in said


def test_no_power_table_has_lifts_of_a_range_without_means_above_0(
    tmp_path: Path,
) -> None:
    losses = EUROS.replace("[-50, 150]", "[-50, 0]").replace("130", "-5")
    code, said = invoke("plan", write(tmp_path, losses), "--power")
    assert code == 2
    assert "a lift is relative to a mean above 0" in said
