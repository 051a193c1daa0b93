"""Whoever waits for another process's transaction goes on as soon as it is over."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wallflower.protocol.files.sqlite import open_database, transaction

_LOOKS = 5


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[sqlite3.Connection, sqlite3.Connection]]:
    path = tmp_path / "store.sqlite"
    with (
        contextlib.closing(open_database(path)) as mine,
        contextlib.closing(open_database(path, wait_s=0.01)) as theirs,
    ):
        mine.execute("CREATE TABLE line (word TEXT)")
        yield mine, theirs


def sleeping(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]
) -> list[float]:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        act(len(slept))

    monkeypatch.setattr(time, "sleep", sleep)
    return slept


def test_a_writer_looks_every_millisecond_whether_the_other_one_is_done(
    two: tuple[sqlite3.Connection, sqlite3.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = two
    theirs.execute("PRAGMA busy_timeout = 30000")
    mine.execute("BEGIN IMMEDIATE")

    def end_at_last(looks: int) -> None:
        if looks == _LOOKS:
            mine.execute("COMMIT")

    slept = sleeping(monkeypatch, end_at_last)
    with transaction(theirs):
        theirs.execute("INSERT INTO line VALUES ('theirs')")
    assert slept == [0.001] * _LOOKS
    assert mine.execute("SELECT * FROM line").fetchall() == [("theirs",)]
    assert theirs.execute("PRAGMA busy_timeout").fetchall() == [(30_000,)]


def test_a_writer_that_waits_too_long_says_so_and_changes_nothing(
    two: tuple[sqlite3.Connection, sqlite3.Connection],
) -> None:
    mine, theirs = two
    with (
        transaction(mine),
        pytest.raises(sqlite3.OperationalError, match="database is locked"),
        transaction(theirs),
    ):
        pass
    assert theirs.execute("PRAGMA busy_timeout").fetchall() == [(10,)]
    with transaction(theirs):
        theirs.execute("INSERT INTO line VALUES ('later')")
