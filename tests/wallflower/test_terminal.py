"""What commands show fits the terminal, and nothing of it is cut."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.run_fixtures import SMALL, write
from tests.support.terminal import behind_a_pty, lines_of, shown, widest
from wallflower.output import Plain, console, print_table, print_text
from wallflower.protocol.numbers import counted

WIDTHS = [60, 80, 200]
PLAN = (
    *("plan", "--arms", "3", "--horizon", "20000"),
    *("--set", "privacy.max-participations=2"),
)
SIMULATED = (
    *("simulate", "--horizon", "20000", "--instances", "3"),
    *("--set", "rewards.means=[0.2, 0.8]"),
)
LONG = "a name of an arm that is rather too long for any table"


def drawn(width: int, headings: list[str], rows: list[list[str]]) -> str:
    text = io.StringIO()
    print_table(Console(width=width, file=text), headings, rows)
    return text.getvalue()


def words(text: str) -> set[str]:
    """Every word and number, without the rules of tables, as long as those are wide."""
    return {word for word in " ".join(lines_of(text)).split() if word.strip("─━")}


@pytest.mark.parametrize("width", WIDTHS)
def test_a_plan_fits_and_every_number_of_it_is_there(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = shown(monkeypatch, width, *PLAN)
    whole = shown(monkeypatch, 400, *PLAN)
    assert widest(said) <= width
    assert "…" not in said
    assert words(whole) <= words(said)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_simulation_fits_and_every_number_of_it_is_there(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = shown(monkeypatch, width, *SIMULATED)
    whole = shown(monkeypatch, 400, *SIMULATED)
    assert widest(said) <= width
    assert "…" not in said
    assert words(whole) <= words(said)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_preflight_and_a_verification_fit(
    width: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path).name
    checked = shown(monkeypatch, width, "check", file)
    shown(monkeypatch, width, "run", file, "--engine", "fast", "--run-dir", "run")
    verified = shown(monkeypatch, width, "verify", "run")
    assert max(widest(checked), widest(verified)) <= width
    assert "Nobody was asked and nothing was written." in " ".join(checked.split())
    assert "The record holds." in verified


@pytest.mark.parametrize("width", WIDTHS)
def test_a_run_from_its_live_view_to_its_result_fits(
    width: int, tmp_path: Path
) -> None:
    file = write(tmp_path, SMALL.replace('"b"', f'"{LONG}"')).name
    said = behind_a_pty(width, tmp_path, "run", file, "--run-dir", "run")
    assert widest(said) <= width
    assert "…" not in said
    assert "in all invited" in said  # the live view was there
    assert "is the best of 3 arms" in " ".join(said.split())


def test_the_live_view_leaves_no_estimate_behind_when_the_run_is_over(
    tmp_path: Path,
) -> None:
    file = write(tmp_path).name
    said = behind_a_pty(80, tmp_path, "run", file, "--run-dir", "run")
    result = said[said.rindex("interval") :]
    assert "at the pace so far" not in result


def test_columns_that_do_not_fit_go_below_beside_the_first_one_again() -> None:
    said = drawn(24, ["arm", "users so far", "mean", "bits"], [["a", "1", "2", "3"]])
    assert widest(said) <= 24
    assert [line.split() for line in lines_of(said) if "a" in line.split()] == [
        ["a", "1", "2", "3"]
    ]
    said = drawn(12, ["arm", "users so far", "mean", "bits"], [["a", "1", "2", "3"]])
    rows = [line.split() for line in lines_of(said) if "a" in line.split()]
    assert [row[0] for row in rows] == ["a"] * len(rows)
    assert [cell for row in rows for cell in row[1:]] == ["1", "2", "3"]
    assert len(rows) > 1


def test_a_long_name_folds_and_is_not_cut() -> None:
    said = drawn(60, ["arm", "users"], [[LONG, "12"]])
    assert widest(said) <= 60
    assert "".join(LONG.split()) in "".join(said.replace("12", "").split())


def test_a_table_that_no_terminal_shows_is_as_wide_as_its_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(Plain(), ["arm", "users"], [[LONG * 4, "12"], ["長い", "3"]], [0, 1])
    heading, rule, first, second = capsys.readouterr().out.split("\n")[1:-2]
    assert first == f" ● {LONG * 4}      12"
    assert {widest(heading), widest(rule), widest(first), widest(second)} == {
        len(first)
    }


def test_a_name_that_spells_a_picture_is_written_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for out in (console(), Plain()):
        print_text(out, "arm :warning: leads")
        assert capsys.readouterr().out == "arm :warning: leads\n"


def test_one_is_counted_in_the_singular() -> None:
    assert counted(1, "batch") == "1 batch"
    assert counted(2, "batch") == "2 batches"


def test_an_arm_has_its_mark_in_a_simulation_and_a_rank_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named = shown(monkeypatch, 100, *SIMULATED)
    drawn_anew = shown(monkeypatch, 100, "simulate", "--arms", "2", "--horizon", "2000")
    assert [line.split()[:2] for line in lines_of(named) if "●" in line] == [
        ["●", "0"],
        ["●", "1"],
    ]
    assert "●" not in drawn_anew


def test_plan_and_simulate_say_what_an_index_policy_is_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = write(tmp_path, SMALL.replace("[policy]", '[policy]\nname = "dp-imed"'))
    purpose = "dp-imed is an index policy: while it learns it gives more people"
    planned = " ".join(shown(monkeypatch, 80, "plan", file).split())
    simulated = " ".join(shown(monkeypatch, 80, "simulate", file).split())
    assert purpose in planned
    assert "This plans elimination." in planned
    assert purpose in simulated
