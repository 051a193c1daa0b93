"""The check of how often the best arm falls: it can fail, and it can go on."""

from __future__ import annotations

from pathlib import Path

import pytest

import benchmarks.decide_errors as check
from benchmarks.decide_errors import ARMS, DOUBLED, EPSILONS, Field, Kept, Row, fields
from wallflower.protocol.privacy.mechanism import load_mechanisms

FIELD = Field(2, 0.5, 0.0)


def test_every_mechanism_is_played_with_every_number_of_arms_and_epsilon() -> None:
    every = fields()
    assert {field.mechanism for field in every} == load_mechanisms().keys()
    for mechanism in load_mechanisms():
        here = [field for field in every if field.mechanism == mechanism]
        assert {field.arms for field in here} == set(ARMS)
        assert {field.epsilon for field in here} >= set(EPSILONS)


@pytest.mark.parametrize(
    ("times", "dropped", "wrong"),
    [(1, 10, False), (1, 30, True), (DOUBLED, 100, False), (DOUBLED, 40, True)],
)
def test_a_level_exceeded_and_a_doubled_one_unnoticed_are_wrong(
    times: int, dropped: int, wrong: bool
) -> None:
    assert bool(check.verdict([Row(FIELD, times, dropped, 2000)])) is wrong


def test_a_check_broken_off_goes_on_without_playing_a_row_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "played", lambda f, times, runs: Row(f, times, 7, runs))
    first = Kept(tmp_path / "rows").row(FIELD, 1, 2000)
    monkeypatch.delattr(check, "played")
    assert Kept(tmp_path / "rows").row(FIELD, 1, 2000) == first


def test_rows_of_another_number_of_runs_are_played_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "played", lambda f, times, runs: Row(f, times, 7, runs))
    Kept(tmp_path / "rows").row(FIELD, 1, 20)
    assert Kept(tmp_path / "rows").row(FIELD, 1, 2000).runs == 2000


def test_the_table_shows_the_worst_row_of_each_kind() -> None:
    rows = [Row(Field(k, 0.5, 0.0), 1, 3 * k, 2000) for k in ARMS]
    names, line = check.table(rows)
    shown = dict(zip(names, line, strict=True))
    assert (shown["arms"], shown["rows"]) == ("2 4 16", "3")
    assert (shown["dropped at most"], shown["of"]) == ("48", "2000")
