from __future__ import annotations

import json
import multiprocessing
import shutil
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from wallflower.protocol.errors import ConfigError, JournalError, UnavailableError
from wallflower.protocol.files.sections import RewardSettings
from wallflower.strategy.bandit.policy import ArmView
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
    fingerprint_of,
)
from wallflower.strategy.store.database import RunLock
from wallflower.strategy.store.entries import (
    CohortRecord,
    PrivacySpend,
    RoundRecord,
    SumRecord,
)
from wallflower.strategy.store.journal import Journal


def config(**sections: object) -> ExperimentConfig:
    return ExperimentConfig(
        ExperimentSettings("test", ("a", "b")),
        rewards=RewardSettings(means=(0.1, 0.2)),
        **sections,  # type: ignore[arg-type]
    )


def cohort(
    name: str, number: int = 1, arm: int = 0, attempt: int = 1, users: int = 2
) -> CohortRecord:
    asked = {f"n{i}": (f"{name}-u{i}",) for i in range(users)}
    return CohortRecord(name, number, number, arm, attempt, users, b"spec", asked)


def summed(name: str) -> SumRecord:
    return SumRecord(name, 2**80, 2**80 + 13, -5, 3, 2, ("n0", "n1"))


def finished(number: int) -> RoundRecord:
    view = ArmView(0, 2, 0.5, 0.25, 0.75, active=True, eliminated_in=None)
    spent = PrivacySpend("pure", 1, Fraction(1), Fraction(1))
    return RoundRecord(number, (view,), {"at": number}, spent, None)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_what_is_written_is_read_back(run_dir: Path) -> None:
    with Journal.create(run_dir, "r1", config(), "local") as journal:
        journal.invite([cohort("c1"), cohort("c2", arm=1)])
        journal.void("c2", "below-quorum")
        journal.invite([cohort("c3", arm=1, attempt=2)])
        journal.finish_round(finished(1), [summed("c1"), summed("c3")])
    with Journal.read(run_dir) as journal:
        assert journal.run_id == "r1"
        assert journal.config == config()
        assert [c.state for c in journal.cohorts()] == ["summed", "void", "summed"]
        assert journal.cohorts()[0].result == summed("c1")
        assert ("c3", "n1", ("c3-u1",)) in list(journal.invitations())
        assert journal.last_round() == finished(1)


def test_people_are_counted_without_those_who_were_returned(run_dir: Path) -> None:
    again = CohortRecord("c2", 1, 1, 1, 1, 3, b"", {"n0": ("c1-u0",), "n2": ("x", "é")})
    with Journal.create(run_dir, "r", config(), "local") as journal:
        journal.invite([cohort("c1", users=3), again])
        journal.give_back("c1", {"n1": "busy"})
    with Journal.read(run_dir) as journal:
        assert journal.count_asked() == {"c1": 2, "c2": 3}
        # n0/c1-u0 came twice; n2/c1-u2, n2/x and n2/é once.
        assert journal.count_participations() == {1: 3, 2: 1}
        assert journal.count_invited()["c1"] == {"n0": 1, "n1": 1, "n2": 1}
        assert list(journal.used_after(1)) == []
        assert len(list(journal.used_after(0))) == 4


def test_a_reader_reads_once_and_a_writer_anew(run_dir: Path) -> None:
    with Journal.create(run_dir, "r", config(), "local") as journal:
        journal.invite([cohort("c1")])
        assert len(journal.cohorts()) == 1
        journal.invite([cohort("c2", arm=1)])
        assert len(journal.cohorts()) == 2
    with Journal.read(run_dir) as journal:
        assert journal.cohorts() is journal.cohorts()


def test_a_directory_with_a_run_is_refused(run_dir: Path) -> None:
    Journal.create(run_dir, "r", config(), "local").close()
    with pytest.raises(JournalError, match="already holds a run"):
        Journal.create(run_dir, "r", config(), "local")


def test_a_changed_config_is_refused_and_every_change_named(run_dir: Path) -> None:
    Journal.create(run_dir, "r", config(), "local").close()
    with pytest.raises(ConfigError, match=r"policy\.first-batch: 0 → 50"):
        Journal.resume(run_dir, config(policy=PolicySettings(first_batch=50)))
    Journal.resume(run_dir, config()).close()


def test_an_altered_stored_config_is_noticed(run_dir: Path) -> None:
    Journal.create(run_dir, "r", config(), "local").close()
    database = sqlite3.connect(run_dir / "journal.sqlite")
    changed = config(policy=PolicySettings(first_batch=50)).canonical()
    database.execute("UPDATE meta SET value = ? WHERE key = 'config'", (changed,))
    database.commit()
    database.close()
    with pytest.raises(JournalError, match="was altered"):
        Journal.read(run_dir)


@pytest.mark.parametrize("look", [Journal.read, Journal.resume])
def test_a_run_whose_back_end_is_gone_is_refused_with_the_way_out(
    run_dir: Path, look: Callable[[Path], Journal]
) -> None:
    """Its sums cannot be recomputed here: the record is whole, for the program of its
    time.
    """
    Journal.create(run_dir, "r", config(), "local").close()
    gone = config().canonical().replace('"sealed"', '"committee"')
    assert gone != config().canonical()
    database = sqlite3.connect(run_dir / "journal.sqlite")
    for key, value in (("config", gone), ("fingerprint", fingerprint_of(gone))):
        database.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))
    database.commit()
    database.close()
    with pytest.raises(JournalError, match="Use the version of Wallflower") as caught:
        look(run_dir)
    assert "one of secagg-plus, sealed, shuffle" in str(caught.value)
    assert "does not read" in str(caught.value)


def test_a_reader_sees_the_record_as_it_was_when_it_was_opened(run_dir: Path) -> None:
    with Journal.create(run_dir, "r", config(), "local") as server:
        server.invite([cohort("c1")])
        with Journal.read(run_dir) as reader:
            head = reader.head
            server.finish_round(finished(1), [summed("c1")])
            assert (reader.rounds(), reader.head) == ([], head)
        with Journal.read(run_dir) as reader:
            assert reader.rounds() == [finished(1)]


def test_whoever_looks_whether_a_server_is_there_keeps_none_off(run_dir: Path) -> None:
    Journal.create(run_dir, "r", config(), "local").close()
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.001):
            RunLock.is_held(run_dir)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(200):
            RunLock(run_dir).release()
    finally:
        stop.set()
        looking.join()
    assert not RunLock.is_held(run_dir)


def test_a_lock_tells_whether_a_server_holds_it(run_dir: Path) -> None:
    assert not RunLock.is_held(run_dir)
    with Journal.create(run_dir, "r", config(), "local"):
        assert RunLock.is_held(run_dir)
    assert not RunLock.is_held(run_dir)


def hold(run_dir: Path, ready: object, done: object) -> None:
    with Journal.resume(run_dir):
        ready.set()  # type: ignore[attr-defined]
        done.wait(60)  # type: ignore[attr-defined]


def test_two_servers_cannot_run_the_same_run_but_anyone_may_look(run_dir: Path) -> None:
    Journal.create(run_dir, "r", config(), "local").close()
    spawn = multiprocessing.get_context("spawn")
    ready, done = spawn.Event(), spawn.Event()
    other = spawn.Process(target=hold, args=(run_dir, ready, done))
    other.start()
    try:
        assert ready.wait(60)
        with pytest.raises(UnavailableError, match="another server works on"):
            Journal.resume(run_dir)
        with Journal.read(run_dir) as journal:
            assert journal.run_id == "r"
    finally:
        done.set()
        other.join(60)
    Journal.resume(run_dir).close()


def test_a_full_disk_is_said_and_leaves_nothing_half_written(run_dir: Path) -> None:
    with Journal.create(run_dir, "r", config(), "local") as journal:
        journal.invite([cohort("c1")])
        pages = journal.rows("PRAGMA page_count")[0][0]
        journal.rows(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(
            UnavailableError, match="make room, then `wallflower resume"
        ):
            journal.invite([cohort("c2", arm=1, users=2000)])
        assert [c.cohort_id for c in journal.cohorts()] == ["c1"]
        assert len(list(journal.invitations())) == 2
        journal.rows(f"PRAGMA max_page_count = {pages + 1000}")
        journal.invite([cohort("c2", arm=1, users=2000)])


def test_a_journal_that_cannot_be_founded_leaves_no_file(run_dir: Path) -> None:
    run_dir.mkdir()
    (run_dir / "journal.sqlite-wal").mkdir()  # SQLite cannot write its log
    with pytest.raises((UnavailableError, JournalError)):
        Journal.create(run_dir, "r", config(), "local")
    assert not (run_dir / "journal.sqlite").exists()


def test_a_file_that_is_no_journal_is_named(run_dir: Path) -> None:
    run_dir.mkdir()
    with pytest.raises(JournalError, match="holds no run"):
        Journal.read(run_dir)
    (run_dir / "journal.sqlite").write_bytes(b"garbage" * 500)
    with pytest.raises(JournalError, match=r"not a database.*restore a copy"):
        Journal.read(run_dir)
    (run_dir / "journal.sqlite").write_bytes(b"")
    with pytest.raises(JournalError, match="is empty; restore a copy"):
        Journal.read(run_dir)


def test_a_round_with_an_open_cohort_cannot_be_finished(run_dir: Path) -> None:
    with Journal.create(run_dir, "r", config(), "local") as journal:
        journal.invite([cohort("c1"), cohort("c2", arm=1)])
        with pytest.raises(JournalError, match="1 open cohorts"):
            journal.finish_round(finished(1), [summed("c1")])
        assert [c.state for c in journal.cohorts()] == ["invited", "invited"]


def test_a_cohort_ends_only_once(run_dir: Path) -> None:
    with Journal.create(run_dir, "r", config(), "local") as journal:
        journal.invite([cohort("c1")])
        journal.void("c1", "below-quorum")
        with pytest.raises(JournalError, match="not open"):
            journal.void("c1", "again")
        with pytest.raises(JournalError, match="not open"):
            journal.finish_round(finished(1), [summed("c1")])


class JournalMachine(RuleBasedStateMachine):
    """Invite, void, finish, crash at any point: the model and the file agree.

    A crash copies the files as they lie on disk and opens the copy, which is what a
    killed process leaves behind.
    """

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp())
        self.copies = 0
        self.run_dir = self.base / "0"
        self.journal = Journal.create(self.run_dir, "r", config(), "local")
        self.round = 1
        self.open: list[str] = []
        self.states: dict[str, str] = {}
        self.attempts: Counter[int] = Counter()

    @rule(arm=st.integers(0, 3), users=st.integers(1, 4))
    def invite(self, arm: int, users: int) -> None:
        self.attempts[arm] += 1
        name = f"{self.round}-{arm}-{self.attempts[arm]}"
        self.journal.invite([cohort(name, self.round, arm, self.attempts[arm], users)])
        self.open.append(name)
        self.states[name] = "invited"

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 100))
    def void(self, which: int) -> None:
        name = self.open.pop(which % len(self.open))
        self.journal.void(name, "some-reason")
        self.states[name] = "void"

    @rule()
    def finish(self) -> None:
        self.journal.finish_round(finished(self.round), [summed(n) for n in self.open])
        self.states |= dict.fromkeys(self.open, "summed")
        self.open.clear()
        self.attempts.clear()
        self.round += 1

    @rule()
    def crash_and_resume(self) -> None:
        self.copies += 1
        new = self.base / str(self.copies)
        shutil.copytree(self.run_dir, new)
        self.journal.close()
        self.run_dir = new
        self.journal = Journal.resume(new)
        assert self.journal.void_open("server-stopped") == len(self.open)
        self.states |= dict.fromkeys(self.open, "void")
        self.open.clear()

    @invariant()
    def model_and_file_agree(self) -> None:
        assert {c.cohort_id: c.state for c in self.journal.cohorts()} == self.states
        assert {c for c, _, _ in self.journal.invitations()} == set(self.states)
        last = self.journal.last_round()
        assert (last.number if last else 0) == self.round - 1

    def teardown(self) -> None:
        self.journal.close()
        shutil.rmtree(self.base)


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(
    max_examples=12, stateful_step_count=15, deadline=None
)


def test_results_are_text_where_json_readers_would_round(run_dir: Path) -> None:
    with Journal.create(run_dir, "r", config(), "local") as journal:
        journal.invite([cohort("c1")])
        journal.finish_round(finished(1), [summed("c1")])
        (stored,) = journal.rows("SELECT result FROM cohort")
    assert json.loads(stored[0])["released"] == str(2**80)
