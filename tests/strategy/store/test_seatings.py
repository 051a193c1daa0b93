"""Seats in the journal: what it says while they are open, and once they are closed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from wallflower.protocol.errors import JournalError
from wallflower.strategy.config import ExperimentConfig, ExperimentSettings
from wallflower.strategy.store.entries import CohortRecord, Seating
from wallflower.strategy.store.journal import Journal

CONFIG = ExperimentConfig(ExperimentSettings("test", ("a", "b")))
DECK = (1, 0, 0, 1)


def cohorts() -> list[CohortRecord]:
    return [CohortRecord(f"c{arm}", 1, 1, arm, 1, 2, b"spec") for arm in (0, 1)]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    with Journal.create(tmp_path / "run", "r", CONFIG, "local") as journal:
        assert journal.open_seats(cohorts(), DECK) == 1
    return tmp_path / "run"


def alter(run_dir: Path, statement: str) -> None:
    with closing(sqlite3.connect(run_dir / "journal.sqlite")) as database:
        database.execute(statement)
        database.commit()


def breaks(run_dir: Path) -> list[str]:
    with Journal.read(run_dir) as journal:
        return list(journal.breaks())


def test_open_seats_have_a_deck_and_no_people(run_dir: Path) -> None:
    with Journal.read(run_dir) as journal:
        assert journal.seatings() == {1: Seating(DECK)}
        assert {cohort.state for cohort in journal.cohorts()} == {"opened"}
        assert list(journal.invitations()) == []
        assert journal.is_asked_since_last_round() is False  # no round is finished
    assert breaks(run_dir) == []


def test_closing_writes_who_sat_where_as_if_they_had_been_invited(
    run_dir: Path,
) -> None:
    with Journal.resume(run_dir) as journal:
        journal.seat(1, ("v1", "v2", None, "v3"))
    with Journal.read(run_dir) as journal:
        assert journal.seatings()[1].taken == ((1, "v1"), (0, "v2"), (1, "v3"))
        assert {cohort.state for cohort in journal.cohorts()} == {"invited"}
        assert journal.count_asked() == {"c0": 1, "c1": 2}
        assert journal.count_participations() == {1: 3}
    assert breaks(run_dir) == []


def test_seats_are_closed_once(run_dir: Path) -> None:
    with Journal.resume(run_dir) as journal:
        journal.seat(1, ("v1", None, None, None))
        with pytest.raises(JournalError, match="written already"):
            journal.seat(1, ("v2", None, None, None))


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE seating SET deck = '[0, 1, 0, 1]'", "opened c0"),
        ("UPDATE seating SET visitors = '[null, null, null, null]'", "seated 1"),
        ("DELETE FROM invitation WHERE node_id = 'v2'", "invited c0"),
    ],
    ids=["deck", "visitors", "person"],
)
def test_a_changed_seat_breaks_the_chain(
    run_dir: Path, statement: str, says: str
) -> None:
    with Journal.resume(run_dir) as journal:
        journal.seat(1, ("v1", "v2", None, "v3"))
    alter(run_dir, statement)
    assert any(says in problem for problem in breaks(run_dir))
