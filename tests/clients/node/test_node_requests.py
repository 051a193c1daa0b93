"""Requests that come again, are slow, fail or make no sense."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from pathlib import Path

import pytest

from tests.clients.node.test_node import RUN, cohort, play, site
from wallflower.protocol.errors import (
    MalformedMessageError,
)
from wallflower.protocol.secure_sum.session import (
    SecureSum,
)
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import (
    CloseCohort,
    CohortStage,
    Describe,
    Task,
)


async def test_the_same_request_again_gets_the_same_answer_and_costs_once(
    tmp_path: Path,
) -> None:
    answers: list[bytes] = []

    async with site(tmp_path) as there:
        asked: list[tuple[str, Task]] = []

        def remember(stage: str, task: Task) -> None:
            if stage == "seal":
                copy = Task()
                copy.CopyFrom(task)
                asked.append((stage, copy))

        await play(there, cohort(), remember)
        for _ in range(2):
            (answer,) = await there.ask("n0", asked[0][1])
            answers.append(answer.message)
        assert answers[0] == answers[1] != b""
        assert await there.spent("n0", "u0") == Fraction(1, 2)


async def test_nothing_leaves_when_the_ledger_cannot_be_written(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        there.ledger._thread.call(
            lambda: there.ledger._database.execute("PRAGMA query_only = ON")
        )
        _, refused = await play(there, cohort())
        assert set(refused.values()) == {"ledger-unavailable"}


async def test_a_slow_reward_holds_up_no_other_cohort_of_the_node(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        there.source.hold = asyncio.Event()
        slow = asyncio.create_task(play(there, cohort(["u0", "u1", "u2"])))
        await there.source.asked.wait()
        (described,) = await there.ask("n0", Task(task_id="d", describe=Describe()))
        assert len(described.description.users) == 10
        hold, there.source.hold = there.source.hold, None
        end, _ = await play(there, cohort(["u3", "u4", "u5"]))
        assert isinstance(end, SecureSum)
        assert not slow.done()
        hold.set()
        end, _ = await slow
        assert isinstance(end, SecureSum)


async def test_a_closed_cohort_is_forgotten(tmp_path: Path) -> None:
    async with site(tmp_path) as there:
        traffic = cohort()
        await play(there, traffic)
        cohort_id = traffic.spec.cohort_id
        close = Task(task_id="c", close=CloseCohort(cohort_id=cohort_id))
        (answer,) = await there.ask("n0", close)
        assert answer.HasField("closed")
        stage = CohortStage(spec=traffic.spec, users=["u0"], message=b"x")
        (answer,) = await there.ask("n0", Task(task_id="s", stage=stage))
        assert answer.refusal.code == "cohort-repeated"


async def test_unknown_tasks_and_garbage_are_named(tmp_path: Path) -> None:
    async with site(tmp_path) as there:
        (answer,) = await there.ask("n0", Task(task_id="t"))
        assert answer.refusal.code == "unknown-task"
        with pytest.raises(MalformedMessageError):
            await there.nodes["n0"].handle(b"\xff\xff")
        stage = CohortStage(spec=CohortSpec(run_id=RUN), users=["u0"])
        (answer,) = await there.ask("n0", Task(task_id="t", stage=stage))
        assert answer.refusal.code == "backend-not-allowed"
