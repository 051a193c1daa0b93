from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from tests.clients.node.test_node import Site, cohort, play, site
from wallflower.protocol.identity.enrolment import EnrolmentKey, NodeIdentity
from wallflower.protocol.secure_sum.session import (
    SecureSum,
    Step,
)
from wallflower.protocol.wire.node_pb2 import (
    CohortStage,
    Describe,
    NodeAnswer,
    NodeRequest,
    Task,
)
from wallflower.strategy.run.requests import CohortTraffic


async def test_the_same_user_twice_in_a_run_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path) as there:
        end, _ = await play(there, cohort(["u0", "u1", "u2"]))
        assert isinstance(end, SecureSum)
        pulls = len(there.source.pulled)
        _, refused = await play(there, cohort(["u2", "u3", "u4"]))
        assert refused == dict.fromkeys(there.nodes, "user-repeated")
        assert len(there.source.pulled) == pulls
        assert await there.spent("n0", "u3") == 0


async def test_a_user_named_twice_or_unknown_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path) as there:
        _, refused = await play(there, cohort(["u0", "u1", "u0"]))
        assert set(refused.values()) == {"user-repeated"}
        _, refused = await play(there, cohort(["u0", "u1", "stranger"]))
        assert set(refused.values()) == {"user-unknown"}


async def test_the_budget_of_a_lifetime_binds_across_runs(tmp_path: Path) -> None:
    async with site(tmp_path, largest_total_epsilon=Fraction(3, 4)) as there:
        await play(there, cohort())
        second = cohort()
        second.spec.run_id = "another"
        request = [CohortStage(spec=second.spec, users=second.users["n0"], message=b"")]
        body = NodeRequest(
            run_id="another", tasks=[Task(task_id="t", stage=request[0])]
        ).SerializeToString()
        answer = NodeAnswer.FromString(await there.nodes["n0"].handle(body))
        # A garbled message never gets as far as the ledger …
        assert answer.answers[0].refusal.code == "malformed-message"
        # … and a good one is stopped there.
        _, refused = await play_in(there, "another", cohort())
        assert set(refused.values()) == {"budget-exceeded"}


@pytest.mark.parametrize("mechanism", ["dist-rdp", "dist-cdp"])
async def test_the_budget_of_a_lifetime_binds_across_kinds_of_guarantee(
    tmp_path: Path, mechanism: str
) -> None:
    async with site(tmp_path) as there:
        await play(there, cohort(epsilon=Fraction(1)))
        more = cohort(epsilon=Fraction(1, 10), mechanism=mechanism)
        _, refused = await play_in(there, "another", more)
        assert set(refused.values()) == {"budget-exceeded"}


async def play_in(
    there: Site, run_id: str, traffic: CohortTraffic
) -> tuple[Step, dict[str, str]]:
    traffic.spec.run_id = run_id
    return await play(there, traffic)


async def test_users_without_a_good_reward_drop_out_uncharged_and_are_counted(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        there.source.given = {
            "n0/u0": 1.5,
            "n1/u1": float("nan"),
            **dict.fromkeys(("n2/u0", "n2/u1", "n2/u2"), "no number"),
        }
        _, refused = await play(there, cohort())
        assert refused == {"n2": "no-rewards"}
        assert there.nodes["n0"].lost["reward-out-of-range"] == 1
        assert there.nodes["n1"].lost["reward-not-a-number"] == 1
        assert await there.spent("n0", "u0") == 0
        assert await there.spent("n0", "u1") == Fraction(1, 2)


async def test_users_who_had_no_reward_are_not_shown_the_arm_again(
    tmp_path: Path,
) -> None:
    asked: dict[str, Task] = {}

    def remember(stage: str, task: Task) -> None:
        if stage == "seal":
            asked[stage] = Task.FromString(task.SerializeToString())

    async with site(tmp_path) as there:
        there.source.given = dict.fromkeys(("n3/u0", "n3/u1", "n3/u2"), "no number")
        _, refused = await play(there, cohort(), remember)  # n3 is asked last
        assert refused == {"n3": "no-rewards"}
        (answer,) = await there.ask("n3", asked["seal"])
        assert answer.refusal.code == "cohort-repeated"
        assert not answer.refusal.untouched
        assert sum(pull.node_id == "n3" for pull in there.source.pulled) == 1


def certified(capacity: int) -> Callable[[str], NodeIdentity]:
    key = EnrolmentKey.generate()

    def identity(name: str) -> NodeIdentity:
        bare = NodeIdentity.generate(name)
        return bare.enrolled(
            key.issue(name, bare.public_key, not_after=2**40, capacity=capacity)
        )

    return identity


async def test_a_node_names_no_more_users_than_its_certificate_allows(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        there.certify(certified(capacity=7))
        (described,) = await there.ask("n0", Task(task_id="d", describe=Describe()))
        assert len(described.description.users) == 7


async def test_a_node_invited_beyond_its_certificate_refuses_before_any_reward(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        there.certify(certified(capacity=2))
        _, refused = await play(there, cohort(("u0", "u1", "u2")))
        assert set(refused.values()) == {"beyond-capacity"}
        assert there.source.pulled == []
