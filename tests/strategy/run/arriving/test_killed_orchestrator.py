"""Orchestrators of people who arrive that are killed or stopped, and started again."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

import pytest

from tests.support.arriving import Site, config, finish, shown_to_a_newcomer, site
from tests.support.virtual_time import in_virtual_time
from wallflower.engines.run import retire_arm
from wallflower.protocol.files.sections import RewardSettings
from wallflower.results.result import read_result
from wallflower.strategy.config import ExperimentSettings
from wallflower.strategy.store import events
from wallflower.strategy.store.events import Event
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.seat_register import SeatRegister
from wallflower.strategy.store.seats import NoFreeSeat, TakenSeat


class _KilledError(Exception):
    """The orchestrator's process is gone."""


async def run_until(there: Site, event_kind: type[Event]) -> None:
    """Run the orchestrator until it dies of the first such event."""

    def die(event: Event) -> None:
        if isinstance(event, event_kind):
            raise _KilledError

    there.react = die
    with pytest.raises(_KilledError):
        await there.operate()
    there.react = lambda event: None


@pytest.mark.parametrize(
    "moment",
    [
        # The others take half a minute together: every run writes to a disk.
        moment if moment in (3, 6, 12) else pytest.param(moment, marks=pytest.mark.slow)
        for moment in range(1, 18)
    ],
)
@in_virtual_time
async def test_an_orchestrator_that_is_killed_loses_nobody_and_counts_nobody_twice(
    tmp_path: Path, moment: int
) -> None:
    async with site(tmp_path) as there:
        dies = {"at": moment}

        def react(event: Event) -> None:
            dies["at"] -= 1
            if dies["at"] == 0:
                raise _KilledError

        there.react = react
        try:
            await there.run()
        except _KilledError:
            await there.run()
        assert finish(there.heard).finished == "winner"
        assert there.problems() == []
        done = finish(there.heard)
        assert (done.invited, done.answered, done.lost) == (60, 60, 0)


@pytest.mark.parametrize(
    "write",
    [
        # The others take half a minute together: every run writes to a disk.
        write if write == 3 else pytest.param(write, marks=pytest.mark.slow)
        for write in range(1, 24)
    ],
)
@in_virtual_time
async def test_an_orchestrator_may_be_killed_after_whatever_it_wrote(
    tmp_path: Path, write: int
) -> None:
    close = config(rewards=RewardSettings(means=(0.1, 0.6)))
    async with site(tmp_path, close) as there:
        left = {"writes": write}

        def die() -> None:
            left["writes"] -= 1
            if left["writes"] == 0:
                raise _KilledError

        there.after_write = die
        with contextlib.suppress(_KilledError):
            await there.run()
        assert there.problems() == []
        there.after_write = lambda: None
        await there.run()
        assert there.problems() == []
        with Journal.read(there.run_dir) as journal:
            result = read_result(journal)
        assert (result.finished, result.answered) == ("winner", result.invited)


@in_virtual_time
async def test_people_who_come_while_an_orchestrator_takes_over_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path) as there:
        await run_until(there, events.RoundStarted)
        read, came = Journal.count_asked, list[object]()

        def read_and_seat_one_more(journal: Journal) -> Counter[str]:
            counted = read(journal)
            if not came:
                came.append(there.arrivals.store.take_seat("f" * 32, b"0" * 16))
            return counted

        monkeypatch.setattr(Journal, "count_asked", read_and_seat_one_more)
        await there.run()
        assert isinstance(came[0], TakenSeat)
        assert there.problems() == []
        assert finish(there.heard).invited == 60


@in_virtual_time
async def test_an_arm_may_be_retired_while_its_seats_are_open_and_no_server_runs(
    tmp_path: Path,
) -> None:
    three = config(
        experiment=ExperimentSettings("test", ("a", "b", "c"), horizon=150),
        rewards=RewardSettings(means=(0.5, 0.5, 0.5)),
    )
    async with site(tmp_path, three) as there:
        await run_until(there, events.CohortAsked)
        retire_arm(str(there.run_dir), "c", "too dear")
        await there.run()
        with Journal.read(there.run_dir) as journal:
            seated = SeatRegister(journal.database).seated()
        assert [one.counts.answered for one in seated][:2] == [30, 30]
        assert seated[2].counts.free > 8  # of the same deck, the retired arm's
        assert there.problems() == []


@in_virtual_time
async def test_a_run_that_ends_by_hand_while_it_is_stopped_gives_no_more_seats(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        await run_until(there, events.CohortAsked)
        assert isinstance(
            there.arrivals.store.take_seat("e" * 32, b"1" * 16), TakenSeat
        )
        retire_arm(str(there.run_dir), "b", "too dear")
        assert shown_to_a_newcomer(there) == NoFreeSeat(0, "run-over")
        assert there.problems() == []
