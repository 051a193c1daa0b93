"""The example that measures euros, from `check` to the page."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.scaling import EXAMPLE_HIGH, write_example
from tests.wallflower.results.test_page import Page
from tests.wallflower.test_run_commands import invoke

EXAMPLES = Path(__file__).parents[2] / "examples"
# Noise and assignment are seeded, so that this run is the same every time.
SEEDED = "\n[test]\nnoise-seed = 11\n"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("revenue")
    shutil.copy(EXAMPLES / "revenue.csv", folder)
    path = folder / "revenue.toml"
    text = (EXAMPLES / "revenue.toml").read_text(encoding="utf-8")
    path.write_text(text + SEEDED, encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=["fast", "local"])
def finished(
    request: pytest.FixtureRequest,
    example: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, str]:
    run_dir = tmp_path_factory.mktemp("run") / "run"
    words = ("--engine", request.param, "--run-dir", run_dir)
    code, said = invoke("run", example, *words)
    assert code == 0, said
    return run_dir, " ".join(said.split())


@pytest.fixture(scope="module")
def told(finished: tuple[Path, str]) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(
        invoke("status", finished[0], "--format", "json")[1]
    )
    return status


def true_means() -> dict[str, float]:
    with (EXAMPLES / "revenue.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {
        arm: float(np.mean([float(row[arm]) for row in rows]))
        for arm in ("tips", "season ticket")
    }


def test_the_table_is_the_one_that_the_command_writes(tmp_path: Path) -> None:
    write_example(tmp_path / "again.csv")
    written = (tmp_path / "again.csv").read_bytes()
    assert written == (EXAMPLES / "revenue.csv").read_bytes()


def test_most_readers_pay_nothing_and_tickets_bring_more() -> None:
    with (EXAMPLES / "revenue.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for arm, least in (("tips", 0.65), ("season ticket", 0.85)):
        assert np.mean([float(row[arm]) == 0 for row in rows]) > least
        assert max(float(row[arm]) for row in rows) <= EXAMPLE_HIGH
    # By outcomes of at most 1 alone, tips would win: so it was before ranges.
    small = {
        arm: np.mean([float(row[arm]) for row in rows if float(row[arm]) <= 1])
        for arm in ("tips", "season ticket")
    }
    assert small["tips"] > small["season ticket"] == 0
    assert true_means()["season ticket"] > 30 * true_means()["tips"]


def test_the_example_is_ready(example: Path) -> None:
    code, said = invoke("check", example)
    assert code == 0
    assert "table: 8,000 cells of 2 arms, all from 0 to 200 €" in said


def test_the_arm_with_the_higher_revenue_wins(
    finished: tuple[Path, str], told: dict[str, Any]
) -> None:
    assert told["winner"] == "season ticket"
    assert '"season ticket" is the best of 2 arms' in finished[1]
    assert invoke("verify", finished[0])[0] == 0


def test_the_terminal_shows_euros(finished: tuple[Path, str]) -> None:
    cells = re.findall(r"([\d.]+) € +([\d.]+) – ([\d.]+) €", finished[1])
    assert len(cells) == 2
    (_, low, high), truth = cells[1], true_means()["season ticket"]
    assert float(low) <= truth <= float(high)


def test_json_has_range_unit_and_means_in_euros(told: dict[str, Any]) -> None:
    assert (told["range"], told["unit"]) == ([0, 200], "€")
    for arm in told["arms"]:
        assert arm["lower"] <= true_means()[arm["name"]] <= arm["upper"]
        assert arm["users"] == arm["asked"] > 0
    assert " € > radius" in told["arms"][0]["reason"] or re.search(
        r'trails "season ticket" by [\d.]+ €;', told["arms"][0]["reason"]
    )


def test_the_export_states_range_and_unit(finished: tuple[Path, str]) -> None:
    rows = list(csv.DictReader(io.StringIO(invoke("export", finished[0])[1])))
    stated = {(row["range_low"], row["range_high"], row["unit"]) for row in rows}
    assert stated == {("0.0", "200.0", "€")}


def test_the_page_and_its_pictures_are_in_euros(finished: tuple[Path, str]) -> None:
    assert invoke("report", finished[0])[0] == 0
    page = Page(finished[0] / "report.html")
    shown = {row[0].strip(): row for row in page.table("Estimates after")}
    assert shown["season ticket"][2].endswith(" €")
    assert shown["season ticket"][3].endswith(" €")
    axis = page.text.partition('<svg class="axis"')[2].partition("</svg>")[0]
    marks = [float(text) for text in re.findall(r">([^<>]+)</text>", axis)]
    assert marks[0] == 0
    assert true_means()["season ticket"] < marks[-1] <= 200
    assert re.search(r"\(from \d+ to \d+ €\)", page.flat)
    assert re.search(r"fell in round \d+: [\d.]+ € behind “season ticket”", page.flat)


def test_plan_and_simulation_speak_of_euros(example: Path) -> None:
    said = " ".join(invoke("plan", example, "--gap", "8")[1].split())
    assert "Outcomes count from 0 to 200 €." in said
    assert " 8 € " in said
    found = json.loads(invoke("simulate", example, "--format", "json")[1])
    means = {arm["arm"]: arm["true_mean"] for arm in found["arms"]}
    assert means == pytest.approx(true_means())


def test_one_payment_beyond_the_range_is_found_by_its_row(
    example: Path, tmp_path: Path
) -> None:
    lines = (EXAMPLES / "revenue.csv").read_text(encoding="utf-8").splitlines()
    lines[1234] = "r1233,0,250.5"
    (tmp_path / "revenue.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    path = tmp_path / "revenue.toml"
    shutil.copy(example, path)
    code, said = invoke("check", path)
    assert code == 2
    assert f'{tmp_path / "revenue.csv"}:1235, column "season ticket"' in said
    assert "250.5" not in said
