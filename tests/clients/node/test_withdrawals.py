"""A person who withdraws is asked no more; what has not left yet does not leave."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.clients.node.test_node import Site, cohort, play, site
from tests.wallflower.test_run_commands import invoke
from wallflower.clients.host.home import NodeHome
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.node import Node
from wallflower.clients.node.spends import Withdrawal
from wallflower.clients.rewards.source import Doubles
from wallflower.protocol.messages.describe import unpack_left_out
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.protocol.rewards.outcome_window import OutcomeWindow
from wallflower.protocol.secure_sum.session import SecureSum
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import Offer, Task


async def test_who_withdrew_is_not_shown_an_arm_and_the_others_answer(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        await there.ledger.withdraw(Withdrawal("n0", "u1"))
        _, refused = await play(there, cohort(["u0", "u1", "u2"]))
        assert refused == {}
        shown = {pull.node_id: pull.users for pull in there.source.pulled}
        assert shown["n0"] == ("u0", "u2")
        assert shown["n1"] == ("u0", "u1", "u2")  # another person of that name


async def test_to_the_server_a_withdrawal_looks_like_a_spent_budget(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        await there.ledger.withdraw(Withdrawal("n0", "u1"))
        offer = Offer(spec=cohort().spec)
        [answer] = await there.ask("n0", Task(task_id="1", offer=offer))
        left_out = unpack_left_out(answer.accepted.left_out, 10)
        assert np.flatnonzero(left_out).tolist() == [1]  # which, and not why
        await play(there, cohort(["u0", "u1", "u2"]))
        assert there.nodes["n0"].lost == {"budget-exceeded": 1}


def watch_values(node: Node) -> list[list[float]]:
    """Note what is about to be noised and summed."""
    seen: list[list[float]] = []
    real = node._parts.randomize

    def randomize(
        spec: CohortSpec,
        mechanism: CohortMechanism,
        users: Sequence[str],
        rewards: Doubles,
    ) -> int:
        seen.append(np.asarray(rewards).tolist())
        return real(spec, mechanism, users, rewards)

    node._parts = replace(node._parts, randomize=randomize)
    return seen


async def withdraw_while_shown(there: Site, values: list[list[float]]) -> None:
    """Let the people of a cohort see their arm; then one of them withdraws."""
    there.source.hold = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        playing = group.create_task(play(there, cohort(["u0", "u1", "u2"])))
        await there.source.asked.wait()
        assert values == []
        await there.ledger.withdraw(Withdrawal("n0", "u1"))
        there.source.hold.set()
    end, refused = playing.result()
    assert isinstance(end, SecureSum)
    # The count is what it would be anyway: somebody may withdraw for how it went.
    assert (end.users, refused) == (12, {})


async def test_an_outcome_of_who_withdrew_meanwhile_does_not_leave(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        values = watch_values(there.nodes["n0"])
        await withdraw_while_shown(there, values)
        assert values == [[1.0, 0.0, 1.0]]  # as where no outcome is known
        assert there.nodes["n0"].lost == {}


async def test_in_its_place_counts_what_was_stated_for_unknown_outcomes(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        there.window = OutcomeWindow(None, 0.25)
        there.certify(lambda name: None)
        values = watch_values(there.nodes["n0"])
        await withdraw_while_shown(there, values)
        assert values == [[1.0, 0.25, 1.0]]


async def test_a_withdrawal_survives_a_restart_and_is_seen_by_other_processes(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        with Ledger(there.path) as other:
            await other.withdraw(Withdrawal("n0", "u1"))
            await other.withdraw(Withdrawal("n0", "u1"))  # twice is once
        assert await there.ledger.withdrawn("n0") == {"u1"}
        there.restart()
        assert await there.ledger.withdrawn("n0") == {"u1"}
        assert await there.ledger.withdrawn("n1") == frozenset()


HOME = '[node]\nname = "n"\nusers = ["ann", "bob"]\n[rewards]\nmeans = [0.1, 0.9]\n'
TABLE = (
    '[node]\nname = "n"\narms = ["a"]\n[rewards]\nsource = "table"\ntable = "t.csv"\n'
)


@pytest.mark.parametrize("text", [HOME, TABLE])
async def test_the_command_writes_it_into_the_ledger_of_the_home(
    text: str, tmp_path: Path
) -> None:
    (tmp_path / "node.toml").write_text(text)
    (tmp_path / "t.csv").write_text("user,a\nann,1\nbob,0\n")
    code, said = await asyncio.to_thread(invoke, "withdraw", tmp_path, "bob")
    assert (code, "bob is asked no more" in said) == (0, True), said
    with NodeHome(tmp_path).ledger() as ledger:
        assert await ledger.withdrawn("n") == {"bob"}


def test_the_command_refuses_whom_the_node_does_not_know(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(HOME)
    code, said = invoke("withdraw", tmp_path, "eve")
    assert (code, "one of the 2 users of n" in said) == (2, True)
    assert "ann" not in said
