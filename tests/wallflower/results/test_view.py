"""The result fits its terminal, and arms are drawn as everywhere."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.run_fixtures import SMALL, write
from tests.wallflower.test_run_commands import invoke
from wallflower.marks import mark_of
from wallflower.protocol.secure_sum.session import SERVER, Finding
from wallflower.results.page import load_run
from wallflower.results.view import print_result

LONG = SMALL.replace('"b"', '"a rather long name of an arm"')


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("view")
    code, said = invoke("run", write(folder, LONG), "--run-dir", folder / "run")
    assert code == 0, said
    return folder / "run"


def drawn(run_dir: Path, width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    text = io.StringIO()
    out = Console(file=text, width=width, highlight=False)
    monkeypatch.setattr("wallflower.results.view.console", lambda: out)
    print_result(load_run(run_dir).result)
    return text.getvalue()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_result_fits_its_terminal_and_no_number_is_cut(
    width: int, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = drawn(run_dir, width, monkeypatch)
    result = load_run(run_dir).result
    assert max(map(len, said.splitlines())) <= width
    assert "…" not in said
    assert result.last is not None
    for view in result.last.views:
        assert f"{view.lower:.3f} – {view.upper:.3f}" in said
        assert f"{view.estimate:.3f}" in said


def test_only_a_wide_terminal_has_room_for_bars(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "━" not in drawn(run_dir, 60, monkeypatch)
    assert "━" in drawn(run_dir, 200, monkeypatch)


def test_what_became_of_an_arm_stands_on_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--engine", "fast", "--run-dir", tmp_path / "run")
    text = SMALL.replace('"b"', '"with-photo"')
    assert invoke("run", write(tmp_path, text), *words)[0] == 0
    said = drawn(tmp_path / "run", 60, monkeypatch)
    assert said.count("out in round 1") == 2


def test_a_reason_is_given_once(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, stopped = io.StringIO(), Finding("", SERVER, "server-stopped")
    out = Console(file=text, width=100, highlight=False)
    monkeypatch.setattr("wallflower.results.view.console", lambda: out)
    result = load_run(run_dir).result
    blamed = ("c1", "server-stopped", (stopped,))
    print_result(dataclasses.replace(result, blame=(blamed,)))
    assert "c1 (void): the server itself (server-stopped)\n" in text.getvalue()


def test_what_an_interval_is_stands_below_the_table(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = " ".join(drawn(run_dir, 80, monkeypatch).split())
    assert "interval: an arm's mean lies in it" in said
    assert "at most 5 %" in said


def test_a_name_is_shown_as_it_is_and_never_taken_for_markup(tmp_path: Path) -> None:
    text = SMALL.replace('"b"', '"[/b]"').replace('"c"', '"[red]"')
    run_dir = tmp_path / "[i]run"
    words = ("--engine", "fast", "--run-dir", run_dir)
    code, said = invoke("run", write(tmp_path, text), *words)
    assert code == 0, said
    assert '"[/b]" is the best of 3 arms' in " ".join(said.split())
    assert "● [red]" in said
    assert "([i]run" in said


def test_every_shape_has_its_character() -> None:
    assert [mark_of(arm).glyph for arm in (0, 7, 14, 21)] == ["●", "■", "◆", "▲"]
