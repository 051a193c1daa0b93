"""What somebody does to a run's record afterwards, `verify` notices."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.run_fixtures import SMALL, write
from tests.wallflower.test_run_commands import invoke
from wallflower.strategy.record.journal import Journal

# Three rounds: the second arm falls late.
ROUNDS = SMALL.replace("first-batch = 40", "first-batch = 12").replace(
    "means = [0.1, 0.9, 0.2]", "means = [0.1, 0.9, 0.5]\nseed = 5"
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    assert invoke("run", write(folder, ROUNDS), "--run-dir", folder / "run")[0] == 0
    return folder / "run"


@pytest.fixture
def run_dir(finished: Path, tmp_path: Path) -> Path:
    """A copy of a finished run of several rounds, to be tampered with."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def head_of(run_dir: Path) -> str:
    with Journal.read(run_dir) as journal:
        assert len(journal.rounds()) >= 2
        return journal.head


def change(run_dir: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(run_dir / "journal.sqlite")) as database:
        for statement in statements:
            assert database.execute(statement).rowcount > 0, statement
        database.commit()


LAST = "(SELECT max(number) FROM round)"
COHORTS = f"(SELECT cohort_id FROM cohort WHERE round = {LAST})"
LAST_ROUND = (
    f"DELETE FROM invitation WHERE cohort_id IN {COHORTS}",
    f"DELETE FROM cohort WHERE round = {LAST}",
    f"DELETE FROM round WHERE number = {LAST}",
)
# The chain up to the round before: what is left of it is whole.
CHAIN_TAIL = (
    "DELETE FROM entry WHERE number > (SELECT max(number) FROM entry WHERE kind = "
    "'round' AND number < (SELECT max(number) FROM entry))"
)


def swap_a_user(run_dir: Path) -> None:
    """Put somebody who was never asked in the place of somebody who was."""
    with contextlib.closing(sqlite3.connect(run_dir / "journal.sqlite")) as database:
        asked = {
            user
            for (users,) in database.execute(
                "SELECT users FROM invitation WHERE node_id = 'node-1'"
            )
            for user in json.loads(users)
        }
        other = next(f"u{n}" for n in range(60) if f"u{n}" not in asked)
        cohort, users = database.execute(
            "SELECT cohort_id, users FROM invitation WHERE node_id = 'node-1' LIMIT 1"
        ).fetchone()
        swapped = json.dumps([other, *json.loads(users)[1:]])
        database.execute(
            "UPDATE invitation SET users = ? WHERE cohort_id = ? AND node_id = "
            "'node-1'",
            (swapped, cohort),
        )
        database.commit()


def in_the_tables(*statements: str) -> Callable[[Path], None]:
    return lambda run_dir: change(run_dir, *statements)


TAMPERED: dict[str, tuple[Callable[[Path], None], str]] = {
    "the last round deleted": (in_the_tables(*LAST_ROUND), "changed after"),
    "a user swapped": (swap_a_user, "changed after they were written"),
    "the time of a round moved": (
        in_the_tables("UPDATE entry SET at = at - 86400 WHERE kind = 'round'"),
        "its time was changed",
    ),
    "the time of all moved": (
        in_the_tables("UPDATE entry SET at = at + 3600"),
        "its time was changed",
    ),
    "an entry taken out": (
        in_the_tables("DELETE FROM entry WHERE number = 3"),
        "entry 3 is missing",
    ),
    "the whole chain taken out": (in_the_tables("DELETE FROM entry"), "no chain"),
    "a restart invented": (
        in_the_tables(
            "INSERT INTO entry SELECT max(number) + 1, at, 'resumed', '2', digest, "
            "'00' FROM entry"
        ),
        "was changed",
    ),
    "the run's name changed": (
        in_the_tables("UPDATE meta SET value = 'another' WHERE key = 'run-id'"),
        "changed after they were written",
    ),
    "a cohort added beside the chain": (
        in_the_tables(
            "INSERT INTO cohort SELECT 'extra', round, batch, arm, attempt + 1, size, "
            "spec, 'void', 'x', NULL, '{}' FROM cohort LIMIT 1"
        ),
        "the chain does not say so",
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_verify_notices(what: str, run_dir: Path) -> None:
    tamper, message = TAMPERED[what]
    tamper(run_dir)
    code, said = invoke("verify", run_dir)
    assert code == 3
    assert message in said


def test_a_cut_off_tail_shows_by_the_heads_in_the_events(run_dir: Path) -> None:
    (run_dir / "ledger.sqlite").unlink()
    change(run_dir, *LAST_ROUND, CHAIN_TAIL)
    code, said = invoke("verify", run_dir)
    assert (code, "no entry has the head" in said) == (3, True)


def test_a_cut_off_tail_shows_by_the_hosted_ledger(run_dir: Path) -> None:
    (run_dir / "events.jsonl").unlink()
    change(run_dir, *LAST_ROUND, CHAIN_TAIL)
    code, said = invoke("verify", run_dir)
    assert (code, "but the record invited nobody" in said) == (3, True)


def test_a_cut_off_tail_shows_by_the_head_that_was_printed(run_dir: Path) -> None:
    head = head_of(run_dir)
    for trace in ("events.jsonl", "ledger.sqlite"):
        (run_dir / trace).unlink()
    assert invoke("verify", run_dir, "--head", head)[0] == 0
    change(run_dir, *LAST_ROUND, CHAIN_TAIL)
    assert invoke("verify", run_dir)[0] == 0  # nothing else is left to tell
    code, said = invoke("verify", run_dir, "--head", head)
    assert (code, f"no entry has the head {head}" in said) == (3, True)


def test_a_swapped_user_shows_by_the_hosted_ledger(run_dir: Path) -> None:
    swap_a_user(run_dir)
    said = invoke("verify", run_dir)[1]
    assert "1 users spent whom the record did not invite" in said


def test_a_head_of_an_earlier_round_is_still_in_the_chain(run_dir: Path) -> None:
    with Journal.read(run_dir) as journal:
        first = next(e for e in journal.entries() if e.kind == "round")
    assert invoke("verify", run_dir, "--head", first.link[:16])[0] == 0


@pytest.mark.parametrize("word", ["abc", "x" * 64])
def test_a_word_that_is_no_head_is_refused(word: str, run_dir: Path) -> None:
    code, said = invoke("verify", run_dir, "--head", word)
    assert (code, "head" in said) == (2, True)


def test_result_status_events_and_verify_show_the_same_head(run_dir: Path) -> None:
    head = head_of(run_dir)
    assert f"Head of the record: {head}" in invoke("status", run_dir)[1]
    assert json.loads(invoke("status", run_dir, "--format", "json")[1])["head"] == head
    assert f"head {head}" in invoke("verify", run_dir)[1]
    told = (run_dir / "events.jsonl").read_text().splitlines()
    assert json.loads(told[-1])["head"] == head
