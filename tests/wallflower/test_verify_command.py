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
from wallflower.strategy.store.event_log import encode
from wallflower.strategy.store.events import RoundFinished
from wallflower.strategy.store.journal import Journal

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


def head_of_any(run_dir: Path) -> str:
    with Journal.read(run_dir) as journal:
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
    "the rounds renumbered": (
        in_the_tables("UPDATE round SET number = number + 1000000"),
        "round 1 is missing",
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
            "INSERT INTO cohort (cohort_id, round, batch, arm, attempt, size, spec, "
            "draw, state, reason) SELECT 'extra', round, batch, arm, attempt + 1, "
            "size, spec, draw, 'void', 'x' FROM cohort LIMIT 1"
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


def cut_ledger(run_dir: Path) -> None:
    """Make the hosted ledger forget the spends of the last round, too."""
    with contextlib.closing(sqlite3.connect(run_dir / "ledger.sqlite")) as database:
        database.execute("ATTACH ? AS record", (str(run_dir / "journal.sqlite"),))
        database.execute("DROP TRIGGER spend_is_not_removed")
        database.execute(
            "DELETE FROM spend WHERE cohort_id IN (SELECT cohort_id FROM record.cohort "
            "WHERE round = (SELECT max(number) FROM record.round))"
        )
        database.commit()


def test_a_cut_off_tail_shows_by_the_heads_in_the_events(run_dir: Path) -> None:
    cut_ledger(run_dir)
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
    (run_dir / "events.jsonl").unlink()
    assert invoke("verify", run_dir, "--head", head)[0] == 0
    cut_ledger(run_dir)
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


def test_resume_asks_nobody_upon_a_cut_off_tail(run_dir: Path) -> None:
    """People of the lost rounds have spent: asking them again would lose them."""
    change(run_dir, *LAST_ROUND, CHAIN_TAIL)
    before = head_of_any(run_dir)
    code, said = invoke("resume", run_dir)
    assert (code, "an older copy" in said, "put back the newest" in said) == (
        3,
        True,
        True,
    )
    assert head_of_any(run_dir) == before


def test_a_changed_head_in_the_events_is_named_and_stops_nothing(
    run_dir: Path,
) -> None:
    head = head_of(run_dir)
    path = run_dir / "events.jsonl"
    flipped = head[:-1] + ("0" if head[-1] != "0" else "1")
    path.write_text(path.read_text().replace(head, flipped))
    code, said = invoke("verify", run_dir)
    assert (code, "1 line of it cut or changed" in said) == (0, True)
    assert "The record holds." in said
    assert invoke("resume", run_dir)[0] == 0


@pytest.mark.parametrize("command", ["verify", "resume", "status", "export", "report"])
def test_every_command_refuses_what_lacks_a_told_entry(
    command: str, run_dir: Path
) -> None:
    """The run is over, and the events tell of an entry that its journal lacks."""
    told = RoundFinished(9, (), 0, 0, 0, None, 1.0, "f" * 64)
    with (run_dir / "events.jsonl").open("a") as events:
        events.write(encode(told) + "\n")
    code, said = invoke(command, run_dir)
    assert (code, "f" * 64 in said or "does not hold" in said) == (3, True)


@pytest.mark.parametrize("command", ["verify", "resume"])
def test_a_lost_ledger_of_hosted_nodes_is_noticed(command: str, run_dir: Path) -> None:
    (run_dir / "ledger.sqlite").unlink()
    code, said = invoke(command, run_dir)
    assert (code, "ledger.sqlite is gone" in said) == (3, True)


def test_what_the_events_lack_is_said(run_dir: Path) -> None:
    whole = invoke("verify", run_dir)[1]
    path = run_dir / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "RoundFinished" not in line))
    code, said = invoke("verify", run_dir)
    with Journal.read(run_dir) as journal:
        rounds = len(journal.rounds())
    assert (code, f"has those of 0 of {rounds} rounds" in said) == (0, True)
    assert f"has those of {rounds} of {rounds} rounds" in whole


def test_a_damaged_index_is_noticed(run_dir: Path) -> None:
    """Rows that an index lacks are hidden from some questions, not from others."""
    with contextlib.closing(sqlite3.connect(run_dir / "journal.sqlite")) as database:
        (root,) = database.execute(
            "SELECT rootpage FROM sqlite_master "
            "WHERE name = 'sqlite_autoindex_cohort_2'"
        ).fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    content = bytearray((run_dir / "journal.sqlite").read_bytes())
    page = content[(root - 1) * size :][:size]
    cells = int.from_bytes(page[3:5], "big")
    page[3:5] = (cells - 1).to_bytes(2, "big")
    content[(root - 1) * size : root * size] = page
    (run_dir / "journal.sqlite").write_bytes(content)
    code, said = invoke("status", run_dir)
    assert (code, "SQLite finds it damaged" in said) == (3, True)


@pytest.mark.parametrize("command", ["status", "export"])
@pytest.mark.parametrize("what", TAMPERED)
def test_nothing_is_told_of_an_altered_record(
    what: str, command: str, run_dir: Path
) -> None:
    TAMPERED[what][0](run_dir)
    code, said = invoke(command, run_dir)
    assert (code, "no chain" in said or "was altered" in said) == (3, True)


UNREADABLE = {
    "a sum": "UPDATE cohort SET result = '[' WHERE result IS NOT NULL",
    "the invited": "UPDATE invitation SET users = '['",
    "a round": "UPDATE round SET views = '['",
    "a description": "UPDATE cohort SET spec = x'ff'",
    "when it began": "UPDATE meta SET value = 'x' WHERE key = 'created-at'",
}


@pytest.mark.parametrize("command", ["verify", "status", "export"])
@pytest.mark.parametrize("what", UNREADABLE)
def test_the_chain_is_looked_at_before_anything_is_read(
    what: str, command: str, run_dir: Path
) -> None:
    change(run_dir, UNREADABLE[what])
    code, said = invoke(command, run_dir)
    assert (code, "changed after they were written" in said) == (3, True)
