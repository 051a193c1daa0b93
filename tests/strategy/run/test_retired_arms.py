"""Arms retired by hand: written down, obeyed by whoever goes on, known to `verify`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from tests.support.orchestration import World, config, world
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.results.result import read_result
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.run.verify import verify
from wallflower.strategy.store import events
from wallflower.strategy.store.entries import Retirement
from wallflower.strategy.store.events import Event
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import requests_of

HARM = "it harms people"


def three(policy: str = "elimination") -> ExperimentConfig:
    """Three equal arms that no sum will tell apart."""
    return config(
        experiment=ExperimentSettings(
            "test", ("a", "b", "c"), 2_000, failure_probability=Fraction(1, 10**6)
        ),
        policy=PolicySettings(name=policy, first_batch=60),
        nodes=NodeSettings(20, 100),
        rewards=RewardSettings(means=(0.5, 0.5, 0.5)),
    )


def in_round(there: World, number: int, *arms: int) -> Callable[[Event], None]:
    """Ask for arms to be retired while round `number` is under way."""

    def react(event: Event) -> None:
        if isinstance(event, events.RoundStarted) and event.number == number:
            for arm in arms:
                requests_of(there.run_dir).request_retirement(arm, HARM)

    return react


def problems(run_dir: Path) -> list[str]:
    with Journal.read(run_dir) as journal:
        return [problem for check in verify(journal) for problem in check.problems]


def asked_by_round(run_dir: Path) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    with Journal.read(run_dir) as journal:
        for cohort in journal.cohorts():
            found.setdefault(cohort.round_number, set()).add(cohort.arm)
    return found


async def test_an_arm_is_retired_when_the_round_under_way_is_over(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, three()) as there:
        there.react = in_round(there, 1, 1)
        await there.run()
    asked = asked_by_round(there.run_dir)
    assert asked[1] == {0, 1, 2}
    assert set.union(*(arms for number, arms in asked.items() if number > 1)) == {0, 2}
    (told,) = (e for e in there.heard if isinstance(e, events.ArmRetired))
    assert (told.arm, told.number, told.reason) == (1, 2, HARM)
    assert requests_of(there.run_dir).read_retirements() == {}
    with Journal.read(there.run_dir) as journal:
        assert journal.retired() == [Retirement(1, 2, HARM)]
    assert problems(there.run_dir) == []


async def test_an_index_policy_never_comes_back_to_a_retired_arm(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, three("dp-imed")) as there:
        there.react = in_round(there, 1, 0)
        await there.run()
    asked = asked_by_round(there.run_dir)
    assert all(0 not in arms for number, arms in asked.items() if number > 1)
    assert problems(there.run_dir) == []


async def test_who_is_left_alone_is_the_result_and_nobody_else_is_asked(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, three()) as there:
        there.react = in_round(there, 2, 0, 2)
        await there.run()
        await there.run()  # a run that is over stays over
    assert set(asked_by_round(there.run_dir)) == {1, 2}
    with Journal.read(there.run_dir) as journal:
        result = read_result(journal)
    assert (result.finished, result.winner) == ("winner", "b")
    assert '"b" is the only arm left after a retirement by hand.' in result.sentence()
    assert '"a" was retired by hand before round 3' in result.sentence()
    assert problems(there.run_dir) == []


async def test_a_winner_after_a_retirement_is_said_to_be_the_best_of_who_was_left(
    tmp_path: Path,
) -> None:
    # Eight people an arm cannot rule one out at this level; a few hundred do.
    experiment = dataclasses.replace(
        three(),
        policy=PolicySettings(first_batch=8),
        rewards=RewardSettings(means=(0.9, 0.9, 0.1)),
    )
    async with world(tmp_path, experiment) as there:
        there.react = in_round(there, 1, 0)
        await there.run()
    with Journal.read(there.run_dir) as journal:
        said = read_result(journal).sentence()
    assert '"b" is the best of the 2 arms left after the last retirement' in said
    assert "the chance that it fell to one that is no better is at most 1e-06" in said
    assert "best of 3 arms" not in said
    assert problems(there.run_dir) == []


async def test_an_arm_that_cannot_be_retired_any_more_is_told_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as there:  # the first round drops arm 0
        there.react = in_round(there, 1, 0)
        await there.run()
    (told,) = (e for e in there.heard if isinstance(e, events.RetirementRefused))
    assert (told.arm, "over" in told.text) == (0, True)
    assert requests_of(there.run_dir).read_retirements() == {}
    assert problems(there.run_dir) == []


async def test_a_request_outlives_the_server_and_the_cohorts_it_left_are_not_used(
    tmp_path: Path,
) -> None:
    class StoppedError(Exception):
        pass

    async with world(tmp_path, three()) as there:

        def react(event: Event) -> None:
            in_round(there, 2, 1)(event)
            if isinstance(event, events.RoundStarted) and event.number == 2:
                raise StoppedError

        there.react = react
        with pytest.raises(StoppedError):
            await there.run()
        assert requests_of(there.run_dir).read_retirements() == {1: HARM}
        there.react = lambda event: None
        await there.run()
    with Journal.read(there.run_dir) as journal:
        of_arm = [cohort for cohort in journal.cohorts() if cohort.arm == 1]
    assert [(c.round_number, c.state) for c in of_arm] == [(1, "summed"), (2, "void")]
    assert problems(there.run_dir) == []


# --- what a lying operator could write


async def lied(
    tmp_path: Path, lie: Callable[[Journal], None], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Run a server that writes something else than it does; its chain is whole."""
    async with world(tmp_path, three()) as there:
        write = Journal.finish_round

        def finish(journal: Journal, record: object, sums: object) -> str:
            head = write(journal, record, sums)  # type: ignore[arg-type]
            if getattr(record, "number", 0) == 1:
                lie(journal)
                return journal.head
            return head

        monkeypatch.setattr(Journal, "finish_round", finish)
        await there.run()
    return problems(there.run_dir)


async def test_a_retired_arm_that_is_asked_all_the_same_does_not_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lie(journal: Journal) -> None:
        journal.retire(Retirement(1, 2, HARM))

    found = await lied(tmp_path, lie, monkeypatch)
    assert any("was not requested" in problem for problem in found)


async def test_a_retirement_of_another_round_than_it_says_does_not_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lie(journal: Journal) -> None:
        journal.retire(Retirement(1, 7, HARM))

    found = await lied(tmp_path, lie, monkeypatch)
    assert any("before round 2, not 7" in problem for problem in found)


async def test_a_retirement_of_everybody_does_not_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lie(journal: Journal) -> None:
        for arm in range(3):
            journal.retire(Retirement(arm, 2, HARM))

    found = await lied(tmp_path, lie, monkeypatch)
    assert any("which could not be" in problem for problem in found)


def test_a_retirement_beside_the_chain_is_noticed(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "run", "run", three(), "local") as journal:
        with journal.database.transaction() as database:
            database.execute("INSERT INTO retired VALUES (0, 1, 'x')")
        assert list(journal.breaks()) == [
            "arm 0 is retired, but the chain does not say so"
        ]


def test_a_reason_that_is_changed_afterwards_is_noticed(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "run", "run", three(), "local") as journal:
        journal.retire(Retirement(0, 1, HARM))
        with journal.database.transaction() as database:
            database.execute("UPDATE retired SET reason = 'the sums'")
        (broken,) = journal.breaks()
    assert "its rows were changed after they were written" in broken
