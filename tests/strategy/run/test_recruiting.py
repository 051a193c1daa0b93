"""Nodes that are away for a while: the run waits, and says no false "nobody left"."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from tests.support.faulty_transport import Faults, FaultyTransport
from tests.support.orchestration import SwitchedPort, World, config, world
from tests.support.virtual_time import run_virtually
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.protocol.messages.port import NodeId
from wallflower.results.result import read_result
from wallflower.strategy.config import ExperimentConfig, ExperimentSettings
from wallflower.strategy.run.recruiting import Recruiter
from wallflower.strategy.run.verify import verify
from wallflower.strategy.sections import TestSettings, TransportSettings
from wallflower.strategy.store import events
from wallflower.strategy.store.events import Event
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.transport.memory import MemoryTransport

PATIENCE_S = 300.0


def go_away(there: World, count: int, back_after_s: float | None) -> None:
    """Take nodes off the port; bring them back later, or never."""
    names = {f"node-{i}" for i in range(count)}
    there.port.away |= names
    if back_after_s is not None:
        asyncio.get_running_loop().call_later(
            back_after_s, there.port.away.difference_update, names
        )


def after_round(number: int, do: Callable[[], None]) -> Callable[[Event], None]:
    def react(event: Event) -> None:
        if isinstance(event, events.RoundFinished) and event.number == number:
            do()

    return react


def finished(there: World) -> str | None:
    with Journal.read(there.run_dir) as journal:
        last = journal.last_round()
        problems = [p for check in verify(journal) for p in check.problems]
    assert problems == []
    return None if last is None else last.finished


def close_race(nodes: int, users: int) -> ExperimentConfig:
    """Arms that cannot be told apart in the first round at this certainty."""
    return config(
        experiment=ExperimentSettings(
            "test", ("a", "b"), failure_probability=Fraction(1, 10**6)
        ),
        nodes=NodeSettings(nodes, users),
        rewards=RewardSettings(means=(0.4, 0.6)),
        test=TestSettings(noise_seed=7),
        transport=TransportSettings(attempts=3, return_timeout_s=PATIENCE_S),
    )


def virtually(
    tmp_path: Path,
    play: Callable[[World], Coroutine[object, object, None]],
    *,
    nodes: int = 20,
    users: int = 200,
) -> World:
    async def whole() -> World:
        async with world(tmp_path, close_race(nodes, users)) as there:
            await play(there)
            return there

    return run_virtually(whole())


@pytest.mark.parametrize("count", [19, 20], ids=["most", "all"])
def test_nodes_away_for_a_second_between_rounds_do_not_end_the_run(
    count: int, tmp_path: Path
) -> None:
    async def play(there: World) -> None:
        there.react = after_round(1, lambda: go_away(there, count, 1.0))
        await there.run()

    there = virtually(tmp_path, play)
    assert finished(there) == "winner"
    waits = [e for e in there.heard if isinstance(e, events.WaitingForNodes)]
    assert [(w.present, w.known) for w in waits] == [(20 - count, 20)]


def test_a_node_may_come_for_the_first_time_while_cohorts_are_offered(
    tmp_path: Path,
) -> None:
    class Arriving(SwitchedPort):
        async def nodes(self) -> Sequence[NodeId]:
            if any("/offer/" in request_id for request_id in self.asked):
                self.away.clear()
            return await super().nodes()

    async def play(there: World) -> None:
        there.port = Arriving(there.port.inner, away={"node-19"})
        await there.run()

    there = virtually(tmp_path, play)
    assert finished(there) == "winner"
    assert any("node-19" in nodes for nodes in there.invited().values())


@pytest.mark.parametrize("seed", range(5))
def test_a_run_over_nodes_that_flap_for_seconds_is_decided(
    seed: int, tmp_path: Path
) -> None:
    async def play(there: World) -> None:
        there.port.inner = FaultyTransport(
            MemoryTransport(there.handlers), Faults(flap=0.6), seed
        )
        await there.run()

    there = virtually(tmp_path, play, nodes=3, users=1400)
    assert finished(there) == "winner"


def test_nodes_that_stay_away_stop_the_run_unfinished_and_it_resumes(
    tmp_path: Path,
) -> None:
    async def play(there: World) -> None:
        there.react = after_round(1, lambda: go_away(there, 20, None))
        began = asyncio.get_running_loop().time()
        with pytest.raises(UnavailableError, match="0 of 20 nodes are there") as error:
            await there.run()
        assert error.value.exit_code == 4
        assert asyncio.get_running_loop().time() - began >= PATIENCE_S
        assert finished(there) is None
        with Journal.read(there.run_dir) as journal:
            assert read_result(journal).waiting
        there.port.away.clear()
        await there.run()

    assert finished(virtually(tmp_path, play)) == "winner"


def test_a_void_cohort_waits_for_nodes_before_it_is_recruited_again(
    tmp_path: Path,
) -> None:
    def react(event: Event) -> None:
        if isinstance(event, events.CohortAsked) and event.attempt == 1:
            go_away(there_now[0], 20, 30.0)

    there_now: list[World] = []

    async def play(there: World) -> None:
        there_now.append(there)
        there.react = react
        await there.run()

    there = virtually(tmp_path, play)
    with Journal.read(there.run_dir) as journal:
        first = [(c.arm, c.attempt, c.state) for c in journal.cohorts()][:4]
    assert first == [
        (arm, attempt, state)
        for arm in (0, 1)
        for attempt, state in ((1, "void"), (2, "summed"))
    ]
    assert finished(there) == "winner"


def test_a_node_that_never_came_back_after_a_restart_is_still_counted(
    tmp_path: Path,
) -> None:
    async def play(there: World) -> None:
        there.react = after_round(1, lambda: go_away(there, 20, None))
        with pytest.raises(UnavailableError):
            await there.run()
        for number in range(18):  # two nodes alone have too few users
            del there.handlers[f"node-{number}"]
        there.react, there.port.away = (lambda event: None), set()
        with pytest.raises(UnavailableError, match="2 of 20 nodes are there"):
            await there.run()

    assert finished(virtually(tmp_path, play, users=60)) is None


@pytest.mark.parametrize("users", [15, 20], ids=["for no arm", "for one arm only"])
async def test_no_round_without_a_cohort_is_written_when_nobody_is_left(
    users: int, tmp_path: Path
) -> None:
    experiment = config(
        experiment=ExperimentSettings(
            "test", ("a", "b"), 100_000, failure_probability=Fraction(1, 10**6)
        ),
        nodes=NodeSettings(20, users),
        rewards=RewardSettings(means=(0.5, 0.5)),
    )
    async with world(tmp_path, experiment) as there:
        await there.run()
    assert finished(there) == "users-exhausted"
    with Journal.read(there.run_dir) as journal:
        asked = {cohort.round_number for cohort in journal.cohorts()}
        assert [record.number for record in journal.rounds()] == sorted(asked)


def test_a_run_that_calls_users_exhausted_who_are_not_does_not_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def always(*_: object) -> bool:
        return True

    monkeypatch.setattr(Recruiter, "is_exhausted", always)

    async def play(there: World) -> None:
        await there.run()

    there = virtually(tmp_path, play)
    with Journal.read(there.run_dir) as journal:
        problems = [p for check in verify(journal) for p in check.problems]
    assert problems == [
        "ends users-exhausted, but enough of the 4000 users may be asked"
    ]
