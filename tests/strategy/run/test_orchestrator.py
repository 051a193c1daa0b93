from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from tests.support.orchestration import Altered, Hung, World, config, world
from tests.support.virtual_time import in_virtual_time
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.protocol.wire.node_pb2 import Description, NodeAnswer, TaskAnswer
from wallflower.strategy.config import ExperimentSettings, PrivacySettings
from wallflower.strategy.run.verify import verify
from wallflower.strategy.sections import TransportSettings
from wallflower.strategy.store import events
from wallflower.strategy.store.events import Event
from wallflower.strategy.store.journal import Journal


def ended(heard: list[Event]) -> list[events.CohortEnded]:
    return [event for event in heard if isinstance(event, events.CohortEnded)]


def finish(heard: list[Event]) -> events.RoundFinished:
    last = heard[-1]
    assert isinstance(last, events.RoundFinished)
    return last


def once_asked(do: Callable[[], None]) -> Callable[[Event], None]:
    """Do something when nodes have agreed and invitations are about to leave."""

    def react(event: Event) -> None:
        if isinstance(event, events.CohortAsked):
            do()

    return react


def garble(there: World, prefix: str) -> None:
    """Let eight nodes answer garbage to the tasks whose name begins so."""

    def change(body: bytes) -> bytes:
        reply = NodeAnswer.FromString(body)
        for answer in reply.answers:
            if answer.task_id.startswith(prefix):
                answer.message = b"garbage"
        return reply.SerializeToString()

    for number in range(8):
        name = f"node-{number}"
        there.handlers[name] = Altered(there.nodes[name], change)


def assert_verified(there: World) -> None:
    with Journal.read(there.run_dir) as journal:
        problems = [problem for check in verify(journal) for problem in check.problems]
    assert problems == []


async def test_cohorts_of_all_arms_are_under_way_at_the_same_time(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as there:
        await there.run()
    kinds = [type(event) for event in there.heard]
    asked = [i for i, kind in enumerate(kinds) if kind is events.CohortAsked]
    assert asked[1] < kinds.index(events.CohortEnded)
    assert finish(there.heard).finished == "winner"
    assert [view.active for view in finish(there.heard).views] == [False, True]
    assert_verified(there)


async def test_gone_nodes_within_the_threat_cost_their_users_and_nothing_else(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as there:
        there.react = once_asked(lambda: there.port.gone.update(["node-3", "node-7"]))
        await there.run()
    first = ended(there.heard)[0]
    assert (first.void, first.survivors, first.lost) == (None, 54, 6)
    with Journal.read(there.run_dir) as journal:
        for cohort in journal.cohorts():
            assert cohort.result is not None
            assert {"node-3", "node-7"}.isdisjoint(cohort.result.nodes)
    assert_verified(there)


async def test_a_cohort_below_its_floor_is_void_and_recruited_from_unused_users(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as there:
        garble(there, "b1-a0-t1-")
        await there.run()
    voids = [event for event in ended(there.heard) if event.void is not None]
    assert [(e.arm, e.attempt, e.void) for e in voids] == [(0, 1, "quorum-not-met")]
    with Journal.read(there.run_dir) as journal:
        (again,) = (c for c in journal.cohorts() if c.attempt == 2)
    assert (again.arm, again.round_number, again.state) == (0, 1, "summed")
    first = there.invited()[voids[0].cohort_id]
    for node, users in there.invited()[again.cohort_id].items():
        assert set(users).isdisjoint(first.get(node, ()))
    assert finish(there.heard).finished == "winner"
    assert_verified(there)


async def test_too_many_gone_nodes_void_every_attempt_and_the_run_can_be_resumed(
    tmp_path: Path,
) -> None:
    experiment = config(transport=TransportSettings(attempts=2))
    async with world(tmp_path, experiment) as there:
        there.react = once_asked(
            lambda: there.port.gone.update(f"node-{i}" for i in range(10))
        )
        with pytest.raises(UnavailableError, match="no cohort of round 1 gave a sum"):
            await there.run()
        voids = ended(there.heard)
        assert Counter((e.arm, e.attempt) for e in voids) == {
            (arm, attempt): 1 for arm in (0, 1) for attempt in (1, 2)
        }
        assert {event.void for event in voids} == {"quorum-not-met"}
        assert dict(voids[0].refusals) == {}
        there.react = lambda event: None
        there.port.gone.clear()
        await there.run()
    assert finish(there.heard).finished == "winner"
    with Journal.read(there.run_dir) as journal:
        assert [c.attempt for c in journal.cohorts()][:6] == [1, 2, 3, 1, 2, 3]
    assert_verified(there)


async def test_an_arm_whose_cohorts_are_all_void_stays_in_the_race(
    tmp_path: Path,
) -> None:
    experiment = config(transport=TransportSettings(attempts=1))
    async with world(tmp_path, experiment) as there:
        garble(there, "b1-a0-")
        await there.run()
    first = next(e for e in there.heard if isinstance(e, events.RoundFinished))
    assert [view.active for view in first.views] == [True, True]
    assert first.views[0].estimate is None
    assert_verified(there)


async def test_a_lying_node_is_out_and_its_lie_in_no_sum(tmp_path: Path) -> None:
    def flip(body: bytes) -> bytes:
        reply = NodeAnswer.FromString(body)
        for answer in reply.answers:
            if answer.WhichOneof("kind") == "message":
                last = answer.message[-1] ^ 1
                answer.message = answer.message[:-1] + bytes([last])
        return reply.SerializeToString()

    async with world(tmp_path) as there:
        there.handlers["node-5"] = Altered(there.nodes["node-5"], flip)
        await there.run()
    assert finish(there.heard).finished == "winner"
    assert_verified(there)


@pytest.mark.parametrize(
    "users", [["u1", "u1"], [], ["x" * 1000]], ids=["twice", "none", "long"]
)
async def test_a_node_whose_description_cannot_be_true_is_left_out(
    users: list[str], tmp_path: Path
) -> None:
    def lie(body: bytes) -> bytes:
        reply = NodeAnswer.FromString(body)
        for answer in reply.answers:
            if answer.WhichOneof("kind") == "description":
                answer.CopyFrom(
                    TaskAnswer(
                        task_id=answer.task_id, description=Description(users=users)
                    )
                )
        return reply.SerializeToString()

    async with world(tmp_path) as there:
        there.handlers["node-1"] = Altered(there.nodes["node-1"], lie)
        await there.run()
    assert all("node-1" not in asked for asked in there.invited().values())
    assert_verified(there)


async def test_an_answer_to_another_question_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as there:
        there.handlers["node-2"] = Altered(
            there.nodes["node-2"],
            lambda body: (
                body
                if not NodeAnswer.FromString(body).answers[-1].HasField("message")
                else NodeAnswer().SerializeToString()
            ),
        )
        await there.run()
    assert all(
        dict(event.refusals).get("malformed-message") for event in ended(there.heard)
    )
    assert finish(there.heard).finished == "winner"


async def test_slow_nodes_are_waited_for(tmp_path: Path) -> None:
    async with world(tmp_path) as there:
        for name in ("node-1", "node-2"):
            there.handlers[name] = Altered(
                there.nodes[name], lambda body: body, before_s=0.1
            )
        await there.run()
    assert all(event.lost == 0 for event in ended(there.heard))


@in_virtual_time
async def test_a_node_that_misses_the_deadline_is_not_in_the_sum_and_is_stopped(
    tmp_path: Path,
) -> None:
    experiment = config(
        rewards=RewardSettings(means=(0.1, 0.9), window_s=0.5),
        transport=TransportSettings(stage_timeout_s=3, attempts=5),
    )
    hung = Hung()
    async with world(tmp_path, experiment) as there:

        def react(event: Event) -> None:
            if isinstance(event, events.CohortAsked):  # it had agreed to take part
                there.handlers["node-4"] = hung

        there.react = react
        await there.run()
    with Journal.read(there.run_dir) as journal:
        for cohort in journal.cohorts():
            if cohort.result is not None:
                assert "node-4" not in cohort.result.nodes
    assert hung.asked.is_set()
    assert hung.stopped > 0
    assert_verified(there)


async def test_cancelling_a_run_leaves_no_task_and_a_record_that_resumes(
    tmp_path: Path,
) -> None:
    before = asyncio.all_tasks()
    hung = Hung()
    async with world(tmp_path) as there:

        def react(event: Event) -> None:
            if isinstance(event, events.CohortAsked):
                there.handlers["node-0"] = hung

        there.react = react
        running = asyncio.create_task(there.run())
        await hung.asked.wait()
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() <= before
        there.react = lambda event: None
        there.handlers["node-0"] = there.nodes["node-0"]
        await there.run()
    with Journal.read(there.run_dir) as journal:
        assert {c.reason for c in journal.cohorts() if c.state == "void"} == {
            "server-stopped"
        }
    assert finish(there.heard).finished == "winner"
    assert_verified(there)


async def test_users_may_return_as_often_as_agreed_and_the_sum_is_accounted(
    tmp_path: Path,
) -> None:
    experiment = config(
        experiment=ExperimentSettings(
            "test", ("a", "b"), failure_probability=Fraction(1, 10**6)
        ),
        privacy=PrivacySettings(max_participations=2),
        nodes=NodeSettings(20, 8),
        rewards=RewardSettings(means=(0.45, 0.5)),
    )
    async with world(tmp_path, experiment) as there:
        await there.run()
    often = Counter(
        (node, user)
        for cohort in there.invited().values()
        for node, users in cohort.items()
        for user in users
    )
    assert max(often.values()) == 2
    with Journal.read(there.run_dir) as journal:
        last = journal.last_round()
    assert last is not None
    assert last.spent.total_epsilon == 2
    assert_verified(there)


@pytest.mark.parametrize("users", [15, 20], ids=["for no arm", "for one arm only"])
async def test_the_run_ends_when_nobody_is_left_to_ask(
    users: int, tmp_path: Path
) -> None:
    experiment = config(
        # One in a million: equal arms must not be told apart by accident.
        experiment=ExperimentSettings(
            "test", ("a", "b"), 100_000, failure_probability=Fraction(1, 10**6)
        ),
        nodes=NodeSettings(20, users),
        rewards=RewardSettings(means=(0.5, 0.5)),
    )
    async with world(tmp_path, experiment) as there:
        await there.run()
    assert finish(there.heard).finished == "users-exhausted"
    assert_verified(there)
    with Journal.read(there.run_dir) as journal:
        assert {cohort.state for cohort in journal.cohorts()} == {"summed"}
