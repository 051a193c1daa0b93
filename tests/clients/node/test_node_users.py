from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from tests.clients.node.test_node import Site, cohort, play, site
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.node import CountOutcomes, Node
from wallflower.clients.node.spends import Spend
from wallflower.protocol.identity.enrolment import EnrolmentKey, NodeIdentity
from wallflower.protocol.secure_sum.session import (
    SecureSum,
    Step,
)
from wallflower.protocol.wire.cohort_pb2 import RewardRange
from wallflower.protocol.wire.node_pb2 import (
    CohortStage,
    Describe,
    NodeAnswer,
    NodeRequest,
    Offer,
    Refusal,
    Task,
)
from wallflower.strategy.run.requests import CohortTraffic


async def test_a_user_asked_again_in_a_run_is_taken_out_and_the_others_answer(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        end, _ = await play(there, cohort(["u0", "u1", "u2"]))
        assert isinstance(end, SecureSum)
        pulls = len(there.source.pulled)
        _, refused = await play(there, cohort(["u2", "u3", "u4"]))
        assert refused == {}
        shown = there.source.pulled[pulls:]
        assert {pull.users for pull in shown} == {("u3", "u4")}
        assert there.nodes["n0"].lost == {"user-repeated": 1}
        assert await there.spent("n0", "u2") == Fraction(1, 2)
        assert await there.spent("n0", "u3") == Fraction(1, 2)


@pytest.mark.parametrize(
    ("named", "reason", "names"),
    [
        (["u0", "u1", "u2", "u0"], "user-repeated", 2),
        (["u1", "u2", "stranger"], "user-unknown", 1),
    ],
)
async def test_a_user_named_twice_or_unknown_is_taken_out_alone(
    tmp_path: Path, named: list[str], reason: str, names: int
) -> None:
    async with site(tmp_path) as there:
        _, refused = await play(there, cohort(named))
        assert refused == {}
        assert {pull.users for pull in there.source.pulled} == {("u1", "u2")}
        assert there.nodes["n0"].lost == {reason: names}
        assert await there.spent("n0", "u0") == 0


async def test_a_user_without_budget_is_taken_out_and_the_others_answer(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, largest_total_epsilon=Fraction(3, 4)) as there:
        await play(there, cohort(["u0", "u1", "u2"]))
        pulls = len(there.source.pulled)
        _, refused = await play_in(there, "another", cohort(["u2", "u3", "u4"]))
        assert refused == {}
        shown = there.source.pulled[pulls:]
        assert {pull.users for pull in shown} == {("u3", "u4")}
        assert there.nodes["n0"].lost == {"budget-exceeded": 1}
        assert await there.spent("n0", "u2") == Fraction(1, 2)


async def test_a_refusal_for_want_of_budget_tells_no_amount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[NodeAnswer] = []
    handle = Node.handle

    async def remember(node: Node, body: bytes) -> bytes:
        answer = await handle(node, body)
        answers.append(NodeAnswer.FromString(answer))
        return answer

    async def see_nothing(ledger: Ledger, entry: Spend) -> dict[str, str]:
        return {}  # another process spends between the look and the spend

    async with site(tmp_path, largest_total_epsilon=Fraction(3, 4)) as there:
        await play(there, cohort())
        monkeypatch.setattr(Node, "handle", remember)
        monkeypatch.setattr(Ledger, "prepare", see_nothing)
        _, refused = await play_in(there, "another", cohort())
        assert set(refused.values()) == {"budget-exceeded"}
    refusals = [one.refusal for answer in answers for one in answer.answers]
    said = [refusal for refusal in refusals if refusal.code]
    assert said == [Refusal(code="budget-exceeded")] * 4


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


def keep(counted: dict[str, tuple[int, Mapping[str, int]]], name: str) -> CountOutcomes:
    def count(shown: int, unknown: Mapping[str, int]) -> None:
        counted[name] = shown, dict(unknown)

    return count


async def test_users_without_a_good_reward_are_charged_and_in_the_sum(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        there.source.given = {
            "n0/u0": float("inf"),
            "n1/u1": float("nan"),
            **dict.fromkeys(("n2/u0", "n2/u1", "n2/u2"), "no number"),
        }
        counted: dict[str, tuple[int, Mapping[str, int]]] = {}
        for name, made in there.nodes.items():
            made._parts = replace(made._parts, count=keep(counted, name))
        traffic = cohort()
        end, refused = await play(there, traffic)
        assert refused == {}
        assert isinstance(end, SecureSum)
        assert end.users == 12
        assert counted["n0"] == (3, {"reward-not-a-number": 1})
        assert counted["n2"] == (3, {"reward-not-a-number": 3})
        assert counted["n3"] == (3, {})
        for node, users in traffic.users.items():
            assert there.nodes[node].lost == {}
            for user in users:
                assert await there.spent(node, user) == Fraction(1, 2)
        assert traffic.reported.by_node == {}


async def test_the_same_request_gets_the_same_answer_and_shows_nobody_the_arm_again(
    tmp_path: Path,
) -> None:
    asked: dict[str, Task] = {}

    def remember(stage: str, task: Task) -> None:
        if stage == "seal":
            asked[stage] = Task.FromString(task.SerializeToString())

    async with site(tmp_path) as there:
        there.source.given = dict.fromkeys(("n3/u0", "n3/u1", "n3/u2"), "no number")
        _, refused = await play(there, cohort(), remember)  # n3 is asked last
        assert refused == {}
        (once,) = await there.ask("n3", asked["seal"])
        (twice,) = await there.ask("n3", asked["seal"])
        assert once == twice
        assert once.message
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


@pytest.mark.parametrize("stated", [("0", "100", ""), ("0", "1", "€"), ("", "", "")])
async def test_a_range_that_the_users_did_not_agree_to_is_refused_by_offer_and_stage(
    tmp_path: Path, stated: tuple[str, str, str]
) -> None:
    async with site(tmp_path) as there:
        traffic = cohort()
        low, high, unit = stated
        said = RewardRange(low=low, high=high, unit=unit)
        traffic.spec.reward_range.CopyFrom(said)
        code = "range-differs" if low else "bad-cohort"
        offer = Task(task_id="t", offer=Offer(spec=traffic.spec))
        (answer,) = await there.ask("n0", offer)
        assert (answer.refusal.code, answer.refusal.terms) == (code, True)
        _, refused = await play(there, traffic)
        assert set(refused.values()) == {code}
        assert not there.source.pulled
