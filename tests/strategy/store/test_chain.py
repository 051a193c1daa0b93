from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.strategy.store.test_journal import cohort, config, finished, summed
from wallflower.protocol.errors import JournalError
from wallflower.strategy.store.chain import place_of
from wallflower.strategy.store.entries import RESUMED, WAITING, Met
from wallflower.strategy.store.journal import Journal


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    with Journal.create(path, "r", config(), "local") as journal:
        journal.invite([cohort("c1"), cohort("c2", arm=1)])
        journal.void("c2", "quorum-not-met", {"reward-late": 2})
        journal.note(RESUMED, 1)
        journal.finish_round(finished(1), [summed("c1")])
    return path


def test_everything_that_is_written_adds_a_link(run_dir: Path) -> None:
    with Journal.read(run_dir) as journal:
        entries = journal.entries()
        assert list(journal.breaks()) == []
    assert [(entry.kind, entry.subject) for entry in entries] == [
        ("founded", ""),
        ("invited", "c1"),
        ("invited", "c2"),
        ("void", "c2"),
        ("resumed", "1"),
        ("summed", "c1"),
        ("round", "1"),
    ]
    assert len({entry.link for entry in entries}) == len(entries)


def test_a_finished_round_gives_the_new_head(run_dir: Path) -> None:
    with Journal.resume(run_dir) as journal:
        before = journal.head
        assert journal.finish_round(finished(2), []) == journal.head != before


def test_what_failed_to_be_written_adds_no_link(run_dir: Path) -> None:
    with Journal.resume(run_dir) as journal:
        before = journal.head
        with pytest.raises(JournalError):
            journal.void("c1", "again")
        assert journal.head == before


def test_cohorts_voided_together_each_have_a_link(run_dir: Path) -> None:
    with Journal.resume(run_dir) as journal:
        journal.invite([cohort("c3", 2), cohort("c4", 2, arm=1)])
        assert journal.void_open("server-stopped") == 2
        assert [e.subject for e in journal.entries() if e.kind == "void"] == [
            "c2",
            "c3",
            "c4",
        ]
        assert list(journal.breaks()) == []


def test_the_reasons_of_lost_users_are_part_of_the_chain(run_dir: Path) -> None:
    with closing(sqlite3.connect(run_dir / "journal.sqlite")) as database:
        database.execute("UPDATE cohort SET losses = '{}' WHERE cohort_id = 'c2'")
        database.commit()
    with Journal.read(run_dir) as journal:
        assert list(journal.breaks()) == [
            "entry 4 (void c2): its rows were changed after they were written"
        ]


def test_nothing_is_built_upon_a_record_that_was_altered(run_dir: Path) -> None:
    with closing(sqlite3.connect(run_dir / "journal.sqlite")) as database:
        database.execute("UPDATE entry SET at = 0 WHERE number = 2")
        database.commit()
    with pytest.raises(JournalError, match="was altered: entry 2"):
        Journal.resume(run_dir)
    with pytest.raises(JournalError, match="was altered"):
        Journal.resume(run_dir)  # and the lock was given back the first time


@pytest.mark.parametrize("schema", [1, 2])  # 2: its arms fell by another test
def test_a_record_of_another_version_is_refused_by_its_number(
    run_dir: Path, schema: int
) -> None:
    with closing(sqlite3.connect(run_dir / "journal.sqlite")) as database:
        database.execute(f"PRAGMA user_version = {schema}")
    refused = f"has schema {schema}, this program reads 10"
    with pytest.raises(JournalError, match=refused):
        Journal.read(run_dir)


def test_a_head_is_found_by_sixteen_digits_and_not_by_fewer(run_dir: Path) -> None:
    with Journal.read(run_dir) as journal:
        entries = journal.entries()
    assert place_of(entries, entries[2].link[:16].upper()) == entries[2]
    assert place_of(entries, entries[2].link[:15]) is None
    assert place_of(entries, "0" * 64) is None


def test_nodes_met_users_returned_and_waits_are_part_of_the_chain(
    run_dir: Path,
) -> None:
    with Journal.resume(run_dir) as journal:
        journal.meet({"n0": Met(5), "n1": Met(7)})
        journal.meet({"n1": Met(8, 3)})
        journal.give_back("c2", {"n1": "floor-too-low"})
        journal.note(WAITING, 2)
        assert [(e.kind, e.subject) for e in journal.entries()[-4:]] == [
            ("met", "1"),
            ("met", "2"),
            ("returned", "c2"),
            ("waiting", "2"),
        ]
        assert list(journal.breaks()) == []
        assert journal.read_met() == {"n0": Met(5), "n1": Met(8, 3)}
        used = {(cohort_id, node) for cohort_id, node, _ in journal.used()}
    assert used == {("c1", "n0"), ("c1", "n1"), ("c2", "n0")}


@pytest.mark.parametrize(
    "forgery",
    [
        "INSERT INTO returned VALUES ('c1', 'n0', 'forged')",
        "DELETE FROM returned",
        "UPDATE node SET users = 1",
        "UPDATE node SET left_out = 0",
    ],
)
def test_forged_returns_and_populations_show(forgery: str, run_dir: Path) -> None:
    with Journal.resume(run_dir) as journal:
        journal.meet({"n0": Met(5, 2)})
        journal.give_back("c2", {"n1": "floor-too-low"})
    with closing(sqlite3.connect(run_dir / "journal.sqlite")) as database, database:
        database.execute(forgery)
    with Journal.read(run_dir) as journal:
        assert len(list(journal.breaks())) == 1
