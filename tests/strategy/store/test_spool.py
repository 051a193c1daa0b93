from __future__ import annotations

import asyncio
import sqlite3
import stat
from pathlib import Path

import pytest

from wallflower.protocol.errors import JournalError
from wallflower.protocol.secure_sum.session import SecureSum, Void
from wallflower.strategy.store.spool import Spool, StageEvent


async def test_a_snapshot_and_later_answers_survive_a_reopening(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    with Spool(path) as spool:
        cohort = spool.cohort("c1")
        await cohort.enter_stage("contribute", b"state")
        cohort.note(StageEvent("a", b"sealed"))
        cohort.note(StageEvent("b", lost="node-gone"))
        cohort.note(StageEvent("c", b""))
        await cohort.snapshot()  # waits for the writing thread
        await asyncio.sleep(0)
        await cohort.snapshot()
    with Spool(path) as spool:
        cohort = spool.cohort("c1")
        assert await cohort.snapshot() == b"state"
        assert await cohort.outcome() is None
        assert await cohort.events() == [
            StageEvent("a", b"sealed"),
            StageEvent("b", lost="node-gone"),
            StageEvent("c", b""),
        ]


async def test_the_next_stage_replaces_snapshot_and_answers(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool.sqlite") as spool:
        cohort = spool.cohort("c1")
        await cohort.enter_stage("contribute", b"one")
        for number in range(100):
            cohort.note(StageEvent(f"n{number}", b"sealed"))
        await cohort.enter_stage("tally", b"two")
        assert await cohort.snapshot() == b"two"
        assert await cohort.events() == []


async def test_numbers_go_on_after_a_reopening(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    for party in "abc":
        with Spool(path) as spool:
            cohort = spool.cohort("c1")
            if party == "a":
                await cohort.enter_stage("contribute", b"state")
            heard = await cohort.events()
            cohort.note(StageEvent(party, b""))
            await spool.open_cohorts()
            assert len(heard) == "abc".index(party)


@pytest.mark.parametrize(
    "outcome",
    [
        SecureSum(2**62 + 1, 2**63 - 25, ("a", "b"), 7),
        Void("below-quorum", "3 of 5 users"),
    ],
)
async def test_an_outcome_is_kept_until_forgotten(
    tmp_path: Path, outcome: SecureSum | Void
) -> None:
    with Spool(tmp_path / "spool.sqlite") as spool:
        cohort = spool.cohort("c1")
        await cohort.enter_stage("tally", b"state")
        cohort.note(StageEvent("a", b"x"))
        await cohort.finish(outcome)
        assert await cohort.outcome() == outcome
        assert await cohort.snapshot() is None
        assert await cohort.events() == []
        await cohort.forget()
        assert await cohort.outcome() is None
        assert await spool.open_cohorts() == []


async def test_cohorts_do_not_see_each_other(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool.sqlite") as spool:
        one, two = spool.cohort("c1"), spool.cohort("c2")
        await one.enter_stage("contribute", b"one")
        await two.enter_stage("contribute", b"two")
        one.note(StageEvent("a", b"1"))
        await one.forget()
        assert await spool.open_cohorts() == ["c2"]
        assert await two.snapshot() == b"two"


async def test_the_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool.sqlite"):
        mode = (tmp_path / "spool.sqlite").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_a_spool_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot be opened"):
        Spool(tmp_path / "missing" / "spool.sqlite")


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    path.write_bytes(b"not a database, but long enough to have a header" * 40)
    with pytest.raises(JournalError, match="cannot be opened"):
        Spool(path)


async def test_a_failed_write_is_an_error_not_a_silent_loss(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    with Spool(path) as spool:
        cohort = spool.cohort("c1")
        await cohort.enter_stage("contribute", b"state")
        with sqlite3.connect(path) as other:
            other.execute("DROP TABLE spooled_event")
        other.close()
        cohort.note(StageEvent("a", b"x"))
        await spool.open_cohorts()
        await asyncio.sleep(0)
        with pytest.raises(JournalError, match="cannot be written"):
            cohort.note(StageEvent("b", b"x"))


def test_the_representation_of_an_answer_shows_no_body() -> None:
    assert "sealed" not in repr(StageEvent("a", b"sealed"))
