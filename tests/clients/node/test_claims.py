from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
from pathlib import Path

import pytest

from tests.clients.node.test_node import RUN, cohort, site
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.node import Node
from wallflower.clients.node.spends import OneTimeAnswer
from wallflower.protocol.errors import RefusalError
from wallflower.protocol.identity.canonical import digest
from wallflower.protocol.secure_sum.session import Contribution, StageAnswer
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import (
    CohortStage,
    NodeAnswer,
    NodeRequest,
    Task,
    TaskAnswer,
)


def tally(
    request: bytes = b"set", answer: bytes = b"sum", node: str = "n"
) -> OneTimeAnswer:
    return OneTimeAnswer(node, "run", "cohort", "open", digest(request, answer))


async def refused(ledger: Ledger, claim: OneTimeAnswer) -> str:
    with pytest.raises(RefusalError) as caught:
        await ledger.record_answer(claim)
    return caught.value.code


async def test_the_same_answer_to_the_same_request_may_leave_again(
    tmp_path: Path,
) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.record_answer(tally())
        await ledger.record_answer(tally())
    with sqlite3.connect(tmp_path / "ledger") as database:
        assert database.execute("SELECT count(*) FROM answer").fetchone() == (1,)


@pytest.mark.parametrize(
    "other",
    [
        tally(request=b"set without the victim", answer=b"another sum"),
        tally(answer=b"another sum"),
        # An equal sum of another set would tell that the two are equal.
        tally(request=b"set without the victim"),
    ],
)
async def test_a_second_different_answer_never_leaves_also_after_a_restart(
    other: OneTimeAnswer, tmp_path: Path
) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.record_answer(tally())
        assert await refused(ledger, other) == "cohort-already-answered"
    with Ledger(tmp_path / "ledger") as ledger:
        assert await refused(ledger, other) == "cohort-already-answered"


@dataclasses.dataclass(frozen=True)
class EqualSums:
    """A client session in which every set of people has the same sum."""

    spec: CohortSpec
    needs_value: bool = False

    def inspect(self, body: bytes) -> EqualSums:
        return self

    def check_users(self, users: int) -> None:
        return

    def answer(self, value: Contribution | None = None) -> StageAnswer:
        return StageAnswer(b"sum", "open")

    def snapshot(self) -> bytes:
        return b""

    def close(self) -> None:
        return


async def test_a_node_gives_no_equal_answer_to_a_different_request(
    tmp_path: Path,
) -> None:
    """An equal sum of a set without the victim would give the victim's value away."""
    spec = cohort().spec

    async def send(message: bytes) -> TaskAnswer:
        stage = CohortStage(spec=spec, message=message)
        request = NodeRequest(run_id=RUN, tasks=[Task(task_id="t", stage=stage)])
        body = await node.handle(request.SerializeToString())
        (answer,) = NodeAnswer.FromString(body).answers
        return answer

    async with site(tmp_path) as there:
        parts = dataclasses.replace(there.nodes["n0"]._parts, open_session=EqualSums)
        node = Node("n0", ["u0", "u1", "u2"], parts)
        assert (await send(b"set")).message == b"sum"
        assert (await send(b"set")).message == b"sum"
        other = await send(b"set without the victim")
        assert (other.message, other.refusal.code) == (b"", "cohort-already-answered")


async def test_of_two_answers_in_two_processes_one_leaves(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as one, Ledger(tmp_path / "ledger") as two:
        outcomes = await asyncio.gather(
            one.record_answer(tally(answer=b"one")),
            two.record_answer(tally(answer=b"two")),
            return_exceptions=True,
        )
    assert sorted(isinstance(o, RefusalError) for o in outcomes) == [False, True]


async def test_claims_are_each_nodes_own(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.record_answer(tally())
        await ledger.record_answer(tally(answer=b"mine", node="m"))
        assert await refused(ledger, tally(answer=b"mine")) == "cohort-already-answered"


async def test_a_claimed_cohort_counts_as_answered(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.record_answer(tally())
        assert await ledger.has_answered("n", "run", "cohort")
        assert not await ledger.has_answered("m", "run", "cohort")


async def test_a_claim_can_be_neither_changed_nor_removed(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.record_answer(tally())
    with sqlite3.connect(tmp_path / "ledger") as database:
        for statement in ("DELETE FROM answer", "UPDATE answer SET digest = x''"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                database.execute(statement)


async def test_the_connection_to_a_run_is_remembered_for_that_node_and_run(
    tmp_path: Path,
) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.record_answer(OneTimeAnswer.connection("n", "run"))
    with Ledger(tmp_path / "ledger") as ledger:
        assert await ledger.has_connected("n", "run")
        assert not await ledger.has_connected("n", "another")
        assert not await ledger.has_connected("m", "run")


async def test_nothing_a_server_names_a_cohort_looks_like_a_connection(
    tmp_path: Path,
) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.record_answer(OneTimeAnswer("n", "run", "", "open", b"digest"))
        assert not await ledger.has_connected("n", "run")
