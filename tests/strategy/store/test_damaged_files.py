"""A damaged file of a run is refused by name: no traceback, no silent loss."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.strategy.store.test_journal import cohort, config, finished, summed
from wallflower.clients.node.ledger_tables import read_spends
from wallflower.protocol.errors import JournalError, UnavailableError
from wallflower.strategy.store import event_log
from wallflower.strategy.store.database import RunLock
from wallflower.strategy.store.events import RoundFinished
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.operator_requests import RequestFiles

DEEP = "[" * 100_000
NO_EVENTS = {
    "binary": b"\xff\xfe\x00\n",
    "deeply nested": DEEP.encode() + b"\n",
    "cut in a letter": "é".encode()[:1],
}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    with Journal.create(tmp_path / "run", "r", config(), "local") as journal:
        journal.invite([cohort("c1"), cohort("c2", arm=1)])
        journal.finish_round(finished(1), [summed("c1"), summed("c2")])
    return tmp_path / "run"


def test_a_request_to_retire_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "retire-0").write_bytes(b"\xff")
    with pytest.raises(JournalError, match=r"retire-0 .* by `wallflower retire`"):
        RequestFiles(tmp_path).read_retirements()


def test_a_request_to_retire_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "retire-0").mkdir()
    with pytest.raises(JournalError, match=r"retire-0 .* by `wallflower retire`"):
        RequestFiles(tmp_path).read_retirements()


def test_a_request_to_pause_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pause").mkdir()
    with pytest.raises(UnavailableError, match="pause cannot be removed"):
        RequestFiles(tmp_path).withdraw_pause()


@pytest.mark.parametrize("look", [event_log.so_far, event_log.read_heads])
def test_events_that_are_a_folder_are_refused(
    look: Callable[[Path], object], tmp_path: Path
) -> None:
    (tmp_path / "events.jsonl").mkdir()
    with pytest.raises(UnavailableError, match=r"events\.jsonl cannot be read"):
        look(tmp_path)


@pytest.mark.parametrize("content", NO_EVENTS.values(), ids=NO_EVENTS.keys())
def test_lines_that_are_no_events_are_passed_over(
    content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "events.jsonl").write_bytes(content)

    async def followed() -> list[object]:
        over = asyncio.Event()
        over.set()
        return [event async for event in event_log.follow(tmp_path, over)]

    assert event_log.so_far(tmp_path)[0] == []
    assert event_log.read_heads(tmp_path)[0] == []
    assert asyncio.run(followed()) == []


HEADED = RoundFinished(1, (), 40, 40, 0, None, 0.5, "f" * 64)


@pytest.mark.parametrize("place", [5, 60, -30, -10, -3])
def test_a_changed_line_tells_nothing_and_is_counted(
    place: int, tmp_path: Path
) -> None:
    line = bytearray(event_log.encode(HEADED).encode() + b"\n")
    path = tmp_path / "events.jsonl"
    path.write_bytes(line)
    assert event_log.read_heads(tmp_path) == (["f" * 64], 0)
    line[place] ^= 1
    path.write_bytes(line)
    assert event_log.read_heads(tmp_path) == ([], 1)
    assert event_log.so_far(tmp_path)[0] == []


def test_a_line_without_its_end_is_still_being_written(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(event_log.encode(HEADED))
    assert event_log.read_heads(tmp_path) == ([], 0)


def test_a_lock_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "lock")
    with pytest.raises(UnavailableError, match="lock cannot be opened"):
        RunLock.is_held(tmp_path)


@pytest.mark.parametrize("users", ["[", "5", DEEP], ids=["cut", "a number", "deep"])
def test_a_ledger_with_unreadable_users_is_refused(users: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE spend (run_id, cohort_id, node_id, users)")
        database.execute("INSERT INTO spend VALUES ('r', 'c', 'n', ?)", (users,))
        database.commit()
    with pytest.raises(UnavailableError, match=r"ledger\.sqlite cannot be read"):
        read_spends(path, "r")


def change(run_dir: Path, statement: str, value: object) -> None:
    """Write what no program of ours would: also bytes where text must stand."""
    with contextlib.closing(sqlite3.connect(run_dir / "journal.sqlite")) as database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_master SET sql = replace(sql, ' STRICT', '')")
        database.commit()
    with contextlib.closing(sqlite3.connect(run_dir / "journal.sqlite")) as database:
        assert database.execute(statement, (value,)).rowcount > 0
        database.commit()


READ: dict[str, tuple[str, Callable[[Journal], object]]] = {
    "created-at": (
        "UPDATE meta SET value = ? WHERE key = 'created-at'",
        lambda journal: journal.created_at,
    ),
    "result": ("UPDATE cohort SET result = ?", Journal.cohorts),
    "losses": ("UPDATE cohort SET losses = ?", Journal.cohorts),
    "users": (
        "UPDATE invitation SET users = ?",
        lambda journal: list(journal.invitations()),
    ),
    "used": ("UPDATE invitation SET users = ?", lambda journal: list(journal.used())),
    "views": ("UPDATE round SET views = ?", Journal.rounds),
    "state": ("UPDATE round SET policy_state = ?", Journal.last_round),
}


@pytest.mark.parametrize("value", ["[", DEEP, b"\xff"], ids=["cut", "deep", "bytes"])
@pytest.mark.parametrize("what", READ)
def test_an_unreadable_value_is_refused(
    what: str, value: object, run_dir: Path
) -> None:
    statement, look = READ[what]
    change(run_dir, statement, value)
    with (
        Journal.read(run_dir) as journal,
        pytest.raises(JournalError, match=r"cannot be read .*wallflower verify"),
    ):
        look(journal)


@pytest.mark.parametrize("what", READ)
def test_bytes_in_the_place_of_text_break_the_chain(what: str, run_dir: Path) -> None:
    change(run_dir, READ[what][0], b"[]")
    with pytest.raises(JournalError, match="was altered"):
        Journal.resume(run_dir)
