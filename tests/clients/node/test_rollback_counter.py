"""Ledgers that were put back, replaced, copied or moved are not answered from."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from wallflower.clients.host.adopt_ledger import main as adopt
from wallflower.clients.node import rollback_counter as counters
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.rollback_counter import RollbackCounter
from wallflower.clients.node.spends import OneTimeAnswer
from wallflower.protocol.errors import RefusalError, UnavailableError

NAME = "ledger.sqlite"


def opened(home: Path, apart: Path | None = None) -> Ledger:
    return Ledger(home / NAME, RollbackCounter((apart or home) / "ledger.counter"))


def tally(answer: bytes, cohort: str = "c") -> OneTimeAnswer:
    return OneTimeAnswer("n", "run", cohort, "open", answer)


async def answer(home: Path, claim: OneTimeAnswer, apart: Path | None = None) -> None:
    with opened(home, apart) as ledger:
        await ledger.record_answer(claim)


def copied(home: Path, to: Path) -> Path:
    """Copy a ledger as a backup does, with what SQLite has not yet moved."""
    to.mkdir(exist_ok=True)
    for path in home.glob(f"{NAME}*"):
        shutil.copy2(path, to)
    return to


def put_back(backup: Path, home: Path) -> None:
    for path in home.glob(f"{NAME}*"):
        path.unlink()
    copied(backup, home)


def delete(home: Path) -> None:
    for path in home.glob(f"{NAME}*"):
        path.unlink()


def empty(home: Path) -> None:
    """Take the rows away and leave the rest, as a hand with a shell would."""
    with sqlite3.connect(home / NAME) as database:
        for table in ("answer", "spend"):
            database.execute(f"DROP TRIGGER {table}_is_not_removed")
            database.execute(f"DELETE FROM {table}")


async def test_a_ledger_and_its_counter_go_on_together(tmp_path: Path) -> None:
    for number in range(3):
        await answer(tmp_path, tally(b"sum", f"c{number}"))
    with opened(tmp_path) as ledger:
        assert [await ledger.has_answered("n", "run", f"c{n}") for n in range(4)] == [
            *(True, True, True),
            False,
        ]


async def test_a_ledger_put_back_to_a_backup_answers_nothing(tmp_path: Path) -> None:
    home, backup = tmp_path / "home", tmp_path / "backup"
    home.mkdir()
    await answer(home, tally(b"sum", "before"))
    copied(home, backup)
    await answer(home, tally(b"sum"))
    put_back(backup, home)
    with pytest.raises(UnavailableError, match="ledger-rolled-back"):
        await answer(home, tally(b"sum without the victim"))


@pytest.mark.parametrize("lose", [delete, empty])
async def test_a_ledger_deleted_or_emptied_is_not_begun_anew(
    lose: Callable[[Path], None], tmp_path: Path
) -> None:
    await answer(tmp_path, tally(b"sum"))
    lose(tmp_path)
    for _ in range(2):  # also not at the second try
        with pytest.raises(UnavailableError, match="ledger-rolled-back"):
            await answer(tmp_path, tally(b"another"))


async def test_of_two_copies_on_one_machine_one_goes_on(tmp_path: Path) -> None:
    one, two, apart = tmp_path / "one", tmp_path / "two", tmp_path / "apart"
    one.mkdir()
    await answer(one, tally(b"sum", "before"), apart)
    copied(one, two)
    await answer(one, tally(b"sum"), apart)
    with pytest.raises(UnavailableError, match="ledger-rolled-back"):
        await answer(two, tally(b"sum without the victim"), apart)


async def test_a_copy_is_noticed_between_two_answers_of_one_process(
    tmp_path: Path,
) -> None:
    one, two, apart = tmp_path / "one", tmp_path / "two", tmp_path / "apart"
    one.mkdir()
    await answer(one, tally(b"sum", "before"), apart)
    copied(one, two)
    with opened(one, apart) as first, opened(two, apart) as second:
        await first.record_answer(tally(b"sum"))
        with pytest.raises(RefusalError, match="ledger-rolled-back"):
            await second.record_answer(tally(b"sum without the victim"))


async def test_a_copy_that_came_further_elsewhere_does_not_take_the_place(
    tmp_path: Path,
) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    await answer(home, tally(b"sum", "before"))
    shutil.copy2(home / "ledger.counter", copied(home, other))
    await answer(home, tally(b"sum"))
    for number in range(3):
        await answer(other, tally(b"sum", f"c{number}"))
    put_back(other, home)
    with pytest.raises(UnavailableError, match="in another copy"):
        await answer(home, tally(b"sum without the victim"))


async def test_a_home_copied_to_another_machine_answers_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "machine-id").write_text("another machine\n")
    monkeypatch.setattr(counters, "_MACHINE", tmp_path / "machine-id")
    await answer(tmp_path, tally(b"sum"))
    (tmp_path / "machine-id").write_text("this machine\n")
    with pytest.raises(UnavailableError, match="on another machine"):
        await answer(tmp_path, tally(b"sum without the victim"))


async def test_a_ledger_whose_counter_is_gone_answers_nothing(tmp_path: Path) -> None:
    await answer(tmp_path, tally(b"sum"))
    (tmp_path / "ledger.counter").unlink()
    with pytest.raises(UnavailableError, match="is gone"):
        await answer(tmp_path, tally(b"sum"))


async def test_a_ledger_from_before_counters_gets_one(tmp_path: Path) -> None:
    with Ledger(tmp_path / NAME) as old:
        await old.record_answer(tally(b"sum"))
    await answer(tmp_path, tally(b"sum"))
    with pytest.raises(RefusalError):
        await answer(tmp_path, tally(b"another"))


async def test_a_commit_without_its_counter_is_no_reason_for_alarm(
    tmp_path: Path,
) -> None:
    """A crash between the two: nothing left, and the ledger is the one further."""
    await answer(tmp_path, tally(b"sum", "c1"))
    before = (tmp_path / "ledger.counter").read_bytes()
    await answer(tmp_path, tally(b"sum", "c2"))
    (tmp_path / "ledger.counter").write_bytes(before)
    await answer(tmp_path, tally(b"sum", "c3"))
    with opened(tmp_path) as ledger:
        assert await ledger.has_answered("n", "run", "c2")
        assert await ledger.has_answered("n", "run", "c3")


async def test_a_torn_counter_falls_back_to_the_mark_before(tmp_path: Path) -> None:
    for number in range(4):
        await answer(tmp_path, tally(b"sum", f"c{number}"))
    path = tmp_path / "ledger.counter"
    content = bytearray(path.read_bytes())
    content[3] ^= 1  # in the slot of even numbers, the last that was written
    path.write_bytes(content)
    mark = RollbackCounter(path).read()
    assert mark is not None
    assert mark.number == 3
    await answer(tmp_path, tally(b"sum", "c4"))


def test_one_torn_write_after_the_other_leaves_the_last_whole_mark(
    tmp_path: Path,
) -> None:
    counter = RollbackCounter(tmp_path / "counter")
    marks = [
        counters.CounterState(b"l" * 16, n, bytes([n]) * 32, bytes(32))
        for n in range(1, 12)
    ]
    counter.write(marks[0])
    for mark in marks[1:]:
        before = counter.path.read_bytes()
        counter.write(mark)
        whole = counter.path.read_bytes()
        first = next(n for n in range(len(whole)) if before[n:][:1] != whole[n:][:1])
        cut = first + 10  # within what was written
        rest = before[cut:].ljust(len(whole) - cut, b"\0")
        counter.path.write_bytes(whole[:cut] + rest)
        assert counter.read() == marks[0]


async def test_the_counter_never_goes_back(tmp_path: Path) -> None:
    for number in range(3):
        await answer(tmp_path, tally(b"sum", f"c{number}"))
    counter = RollbackCounter(tmp_path / "ledger.counter")
    mark, written = counter.read(), counter.path.read_bytes()
    assert mark is not None
    for number in (1, mark.number):
        counter.write(
            counters.CounterState(mark.ledger, number, b"h" * 32, mark.machine)
        )
        # Not even the mark before the last one, on which a torn write falls back.
        assert counter.path.read_bytes() == written


async def test_the_owner_may_adopt_what_they_answer_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await answer(tmp_path, tally(b"sum"))
    (tmp_path / "ledger.counter").unlink()
    assert adopt([str(tmp_path)]) == 0
    assert "destroy every other copy" in capsys.readouterr().out
    await answer(tmp_path, tally(b"sum", "later"))
    with pytest.raises(RefusalError):
        await answer(tmp_path, tally(b"another"))


def test_a_home_without_ledger_cannot_be_adopted(tmp_path: Path) -> None:
    assert adopt([str(tmp_path)]) == 4
    assert list(tmp_path.iterdir()) == []
