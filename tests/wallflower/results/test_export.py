"""What leaves for other programs is what the journal has."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import wallflower
from tests.support.run_fixtures import SMALL
from tests.wallflower.results.test_page import made, rows
from tests.wallflower.test_run_commands import invoke
from wallflower.results.history import as_csv


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("finished"), SMALL)


def recorded(run_dir: Path) -> list[dict[str, Any]]:
    return [
        {"round": number, **view}
        for number, views in rows(run_dir, "SELECT number, views FROM round")
        for view in json.loads(views)
    ]


def test_csv_has_every_arm_after_every_round_digit_by_digit(finished: Path) -> None:
    code, said = invoke("export", finished)
    shown = list(csv.DictReader(io.StringIO(said)))
    assert code == 0
    for row, view in zip(shown, recorded(finished), strict=True):
        assert (int(row["round"]), row["arm"]) == (view["round"], "abc"[view["arm"]])
        assert float(row["estimate"]) == view["estimate"]
        assert (float(row["lower"]), float(row["upper"])) == (
            view["lower"],
            view["upper"],
        )


def test_json_has_both_tables_and_the_head(finished: Path) -> None:
    _, said = invoke("export", finished, "--format", "json")
    told = json.loads(said)
    _, verified = invoke("verify", finished, "--format", "json")
    assert told["head"] == json.loads(verified)["head"]
    assert len(told["rounds"]) == len(recorded(finished))
    ((invited,),) = rows(
        finished, "SELECT sum(json_array_length(users)) FROM invitation"
    )
    assert sum(row["invited"] for row in told["cohorts"]) == invited


def test_parquet_reads_back_as_the_same_rows(finished: Path, tmp_path: Path) -> None:
    from pyarrow import parquet

    path = tmp_path / "rounds.parquet"
    words = ("export", finished, "--format", "parquet", "--output", path)
    assert invoke(*words) == (0, "")
    lower = [row["lower"] for row in parquet.read_table(path).to_pylist()]
    assert lower == [view["lower"] for view in recorded(finished)]


def test_parquet_without_a_file_is_refused(finished: Path) -> None:
    code, said = invoke("export", finished, "--format", "parquet")
    assert (code, "--output FILE" in said) == (2, True)


def test_no_user_and_no_node_leaves(finished: Path) -> None:
    nodes = {node for (node,) in rows(finished, "SELECT node_id FROM node")}
    for form in (["json"], ["csv", "--table", "cohorts"]):
        _, said = invoke("export", finished, "--format", *form)
        assert not [
            node for node in nodes if f'"{node}"' in said or f",{node}," in said
        ]


def test_status_carries_the_history(finished: Path) -> None:
    _, said = invoke("status", finished, "--format", "json")
    history = json.loads(said)["history"]
    shown = [(one["round"], arm["lower"]) for one in history for arm in one["arms"]]
    assert shown == [(v["round"], v["lower"]) for v in recorded(finished)]
    assert all(one["seconds"] > 0 for one in history)


def test_a_notebook_gets_typed_rows_and_the_page(finished: Path) -> None:
    run = wallflower.load_run(finished)
    assert {row.arm for row in run.rounds if row.fell} == {"a", "c"}
    assert run.result.winner == "b"
    cell = run._repr_html_()
    assert cell.startswith("<iframe srcdoc=")
    assert "“b” is the best of 3 arms." in cell
    assert "<script" not in cell


def test_a_data_frame_has_the_same_rows(finished: Path) -> None:
    frame = wallflower.load_run(finished).to_pandas()
    assert list(frame["lower"]) == [view["lower"] for view in recorded(finished)]


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@sum", "\tx", "\rx"])
def test_no_name_is_a_formula_in_csv(name: str) -> None:
    text = as_csv([{"arm": name, "estimate": -0.5}])
    assert text == f"arm,estimate\n'{name},-0.5\n"


@pytest.mark.parametrize("command", ["report", "export"])
def test_what_is_written_does_not_follow_a_link(
    command: str, finished: Path, tmp_path: Path
) -> None:
    precious, link = tmp_path / "precious", tmp_path / "link"
    precious.write_text("precious")
    link.symlink_to(precious)
    invoke(command, finished, "--output", link)
    assert precious.read_text() == "precious"
    assert link.stat().st_size > 100


def test_a_report_does_not_follow_a_link_in_the_run_directory(
    finished: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "foreign"
    shutil.copytree(finished, directory)
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (directory / "report.html").unlink(missing_ok=True)
    (directory / "report.html").symlink_to(precious)
    code, _ = invoke("report", directory)
    assert (code, precious.read_text()) == (0, "precious")
    assert "<html" in (directory / "report.html").read_text(encoding="utf-8")


def test_an_output_that_is_no_file_is_written_to(finished: Path) -> None:
    reading, writing = os.pipe()
    code, _ = invoke("export", finished, "--output", f"/dev/fd/{writing}")
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert (code, pipe.readline().split(",")[0]) == (0, "round")
