"""What a node says of its users' budgets: who cannot be asked, and no amount."""

from __future__ import annotations

import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from tests.clients.node.test_node import RUN, Site, cohort, play, site
from tests.clients.node.test_node_users import play_in
from wallflower.clients.consent import ClientPolicy
from wallflower.clients.node.spends import PRICE_WINDOW_DAYS
from wallflower.protocol.accounting.account import NOTHING, Cost, cost_of
from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.messages.describe import mark_users, unpack_left_out
from wallflower.protocol.wire.node_pb2 import (
    NodeAnswer,
    NodeRequest,
    Offer,
    Task,
    TaskAnswer,
)

USERS = [f"u{i}" for i in range(10)]
HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)


async def offer(
    there: Site,
    run: str = RUN,
    epsilon: Fraction = HALF,
    mechanism: str = "dist-dp",
    size: int = 0,
) -> TaskAnswer:
    """Offer a cohort to the first node."""
    spec = cohort(epsilon=epsilon, mechanism=mechanism).spec
    spec.run_id = run
    if size:
        again = cohort([f"u{i}" for i in range(size)], epsilon, mechanism)
        spec.CopyFrom(again.spec)
        spec.run_id = run
    task = Task(task_id="t", offer=Offer(spec=spec, arms=("a", "b")))
    request = NodeRequest(run_id=run, tasks=[task]).SerializeToString()
    answer = NodeAnswer.FromString(await there.nodes["n0"].handle(request))
    return answer.answers[0]


def left_out(answer: TaskAnswer) -> list[str]:
    assert answer.WhichOneof("kind") == "accepted"
    flags = unpack_left_out(answer.accepted.left_out, len(USERS))
    if answer.accepted.left_out:
        assert answer.accepted.users == mark_users(USERS)
    return [user for user, out in zip(USERS, flags, strict=True) if out]


async def spend(there: Site, users: Sequence[str], epsilon: Fraction = HALF) -> None:
    """Let these users take part in an earlier run."""
    _, refused = await play_in(there, "earlier", cohort(users, epsilon))
    assert refused == {}


async def test_an_offer_is_answered_with_those_who_have_no_budget_for_it(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, largest_total_epsilon=Fraction(3, 4)) as there:
        answer = await offer(there)
        assert left_out(answer) == []
        assert answer.accepted.left_out == b""
        await spend(there, ["u2", "u5", "u9"])
        assert left_out(await offer(there)) == ["u2", "u5", "u9"]
        # What is left suffices for a smaller price, which is another run's.
        assert left_out(await offer(there, "cheaper", QUARTER)) == []


async def test_who_took_part_in_a_run_is_left_out_of_its_next_offers(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, largest_total_epsilon=Fraction(9)) as there:
        await play(there, cohort(["u0", "u1", "u2"]))
        assert left_out(await offer(there)) == ["u0", "u1", "u2"]
        assert left_out(await offer(there, "another")) == []


async def test_an_offer_that_the_policy_refuses_says_nothing_of_anybody(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, largest_total_epsilon=HALF) as there:
        await spend(there, ["u2", "u5", "u9"])
        answer = await offer(there, epsilon=Fraction(3, 2))
        assert answer.refusal.code == "epsilon-too-large"
        assert not answer.HasField("accepted")
        # It did not count as the run's price either.
        assert left_out(await offer(there)) == ["u2", "u5", "u9"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_run_has_one_price_for_offers_and_stages(
    tmp_path: Path, restarts: bool
) -> None:
    async with site(tmp_path, largest_total_epsilon=Fraction(3, 4)) as there:
        await spend(there, ["u2", "u5", "u9"])
        assert left_out(await offer(there)) == ["u2", "u5", "u9"]
        if restarts:
            there.restart()
        for epsilon in (Fraction(1, 8), QUARTER, Fraction(3, 4)):
            answer = await offer(there, epsilon=epsilon)
            assert (answer.refusal.code, answer.refusal.terms) == (
                "price-changed",
                True,
            )
            _, refused = await play(there, cohort(["u2", "u3", "u4"], epsilon))
            assert set(refused.values()) == {"price-changed"}
        pulled = [pull for pull in there.source.pulled if pull.run_id == RUN]
        assert pulled == []
        assert left_out(await offer(there)) == ["u2", "u5", "u9"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_server_that_bisects_a_budget_over_many_runs_gets_few_answers(
    tmp_path: Path, restarts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = {"largest_total_epsilon": Fraction(1), "largest_prices": 3}
    async with site(tmp_path, **terms) as there:
        await spend(there, ["u2", "u5", "u9"], Fraction(37, 100))  # the first price
        low, high, answers = Fraction(0), Fraction(1), 0
        for number in range(20):
            middle = (low + high) / 2
            answer = await offer(there, f"bisecting-{number}", middle)
            if restarts:
                there.restart()
            if answer.HasField("refusal"):
                assert answer.refusal.code == "too-many-prices"
                continue
            answers += 1
            if left_out(answer):
                high = middle
            else:
                low = middle
        assert answers == 2
        assert high - low == QUARTER
        # A stage that was never offered is no way around it.
        _, refused = await play_in(
            there, "unoffered", cohort(["u2", "u3", "u4"], Fraction(5, 8))
        )
        assert set(refused.values()) == {"too-many-prices"}
        # Prices that were asked before stay answered, also in new runs.
        assert left_out(await offer(there, "honest", HALF)) == []
        # After a month other prices may be asked.
        late = time.time() + (PRICE_WINDOW_DAYS + 1) * 86_400
        monkeypatch.setattr(time, "time", lambda: late)
        assert left_out(await offer(there, "later", Fraction(5, 8))) == []


async def test_the_size_of_a_cohort_does_not_change_who_is_left_out(
    tmp_path: Path,
) -> None:
    """Larger cohorts cost less by the curve of Skellam noise; none is told apart."""
    delta = ClientPolicy().privacy_delta
    price = NOTHING.plus(Cost.at_most("renyi", HALF, 8)).total(delta)
    assert price is not None
    terms = {"largest_total_epsilon": price - Fraction(1, 10**4)}
    async with site(tmp_path, **terms) as there:
        for size in range(2, 10):
            answer = await offer(there, mechanism="dist-rdp", size=size)
            assert left_out(answer) == USERS
    largest = cohort([f"u{i}" for i in range(9)], HALF, "dist-rdp").spec
    exact = NOTHING.plus(cost_of(cohort_mechanism(largest), False)).total(delta)
    assert exact is not None
    assert exact < price - Fraction(1, 10**4)  # this cohort itself could be paid


async def test_stages_take_out_just_those_whom_the_offer_left_out(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, largest_total_epsilon=Fraction(3, 4)) as there:
        await spend(there, ["u2", "u5", "u9"])
        out = left_out(await offer(there))
        pulls = len(there.source.pulled)
        _, refused = await play(there, cohort(USERS))
        assert refused == {}
        shown = {user for pull in there.source.pulled[pulls:] for user in pull.users}
        assert shown == set(USERS) - set(out)


async def test_a_node_says_which_cohorts_of_this_run_it_answered(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, largest_total_epsilon=Fraction(9)) as there:
        first, second = cohort(["u0", "u1", "u2"]), cohort(["u3", "u4", "u5"])
        await spend(there, ["u0", "u1", "u2"])
        await play(there, first)
        await play(there, second)
        there.restart()
        (answer,) = await there.ask("n0", Task(task_id="d", describe={}))
        assert list(answer.description.answered) == [
            second.spec.cohort_id,
            first.spec.cohort_id,
        ]
