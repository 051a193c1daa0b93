"""What a node says to an offer, and what it says of its users when it refuses."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from tests.clients.node.test_node import cohort, dealt, play, site
from tests.support.seated_sums import SeatedRun
from wallflower.clients.consent import ClientPolicy
from wallflower.clients.host.assemble import NodeSetup, make_node
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.rewards.source import Pull
from wallflower.protocol.accounting.account import NOTHING
from wallflower.protocol.errors import RandomnessError
from wallflower.protocol.wire.node_pb2 import (
    CohortStage,
    NodeAnswer,
    NodeRequest,
    Offer,
    Refusal,
    Task,
)
from wallflower.strategy.run.requests import Closings, CohortTraffic
from wallflower.strategy.secure_sum.contributions import SeatTerms


async def offered(tmp_path: Path, **terms: object) -> str | Refusal:
    async with site(tmp_path, **terms) as there:
        task = Task(task_id="o", offer=Offer(spec=cohort().spec))
        [answer] = await there.ask("n0", task)
        assert there.source.pulled == []
        kind = answer.WhichOneof("kind")
        assert kind is not None
        return answer.refusal if kind == "refusal" else kind


async def test_terms_that_the_policy_allows_are_accepted(tmp_path: Path) -> None:
    assert await offered(tmp_path) == "accepted"


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        ({"largest_epsilon": Fraction(1, 4)}, "epsilon-too-large"),
        ({"smallest_cohort": 13}, "cohort-too-small"),
        ({"smallest_floor_fraction": Fraction(9, 10)}, "floor-too-low"),
        ({"smallest_corrupt": Fraction(1, 2)}, "threat-too-weak"),
        ({"malicious_server": True}, "threat-too-weak"),
        ({"mechanisms": ("local-dp",)}, "mechanism-not-allowed"),
        ({"backends": ("secagg-plus",)}, "backend-not-allowed"),
    ],
)
async def test_other_terms_are_refused_as_they_would_be_later(
    terms: dict[str, object], code: str, tmp_path: Path
) -> None:
    refusal = await offered(tmp_path, **terms)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.terms) == (code, True)


async def test_a_node_is_in_no_sum_of_fewer_nodes_than_its_policy_says(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        traffic = cohort()  # of four nodes
        await dealt(there, traffic)
        there.policy = replace(there.policy, smallest_nodes=5)
        there.certify(lambda name: None)
        _, refused = await play(there, traffic)
    assert set(refused.values()) == {"cohort-too-small"}
    assert traffic.returned == refused


@pytest.mark.parametrize("backend", ["secagg-plus", "shuffle"])
async def test_a_cohort_without_a_mechanism_is_a_dealing_of_sealed_sums_alone(
    backend: str, tmp_path: Path
) -> None:
    """Whatever else has none would pass by the terms of a cohort."""
    spec = cohort().spec
    spec.mechanism, spec.backend = "", backend
    stage = CohortStage(spec=spec, users=["n0-u0"], message=b"any")
    async with site(tmp_path) as there:
        [answer] = await there.ask("n0", Task(task_id="s", stage=stage))
    assert answer.refusal.code == "backend-not-allowed"


async def test_a_node_says_that_nobody_saw_the_arm_when_nobody_did(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, smallest_cohort=13) as there:
        traffic = cohort()
        _, refused = await play(there, traffic)
    assert set(refused.values()) == {"cohort-too-small"}
    assert traffic.returned == refused


def lock(ledger: Path) -> sqlite3.Connection:
    """Hold the ledger's lock, as a stuck backup would."""
    other = sqlite3.connect(ledger, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


async def test_a_node_accepts_no_offer_while_its_ledger_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wallflower.clients.node.ledger._READY_MS", 10)
    async with site(tmp_path) as there:
        with closing(lock(there.path)):
            task = Task(task_id="o", offer=Offer(spec=cohort().spec))
            [answer] = await there.ask("n0", task)
    assert answer.refusal.code == "ledger-unavailable"
    assert not answer.refusal.terms  # it may be free in a moment


async def test_nobody_is_shown_an_arm_or_used_up_while_the_ledger_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wallflower.clients.node.ledger._READY_MS", 10)
    async with site(tmp_path) as there:
        traffic = cohort()
        with closing(lock(there.path)):
            _, refused = await play(there, traffic)
        assert there.source.pulled == []
    assert set(refused.values()) == {"ledger-unavailable"}
    assert traffic.returned == refused


async def test_users_who_are_the_reason_of_a_refusal_stay_used(tmp_path: Path) -> None:
    async with site(tmp_path) as there:
        await play(there, cohort())
        again = cohort()
        _, refused = await play(there, again)
    assert set(refused.values()) == {"user-repeated"}
    assert again.returned == {}


async def test_users_who_were_shown_the_arm_stay_used(tmp_path: Path) -> None:
    def broken(*_: object, **__: object) -> int:
        raise RandomnessError("it repeats itself")

    async with site(tmp_path) as there:
        node = there.nodes["n0"]
        node._parts = replace(node._parts, randomize=broken)
        traffic = cohort()
        _, refused = await play(there, traffic)
        assert [pull.node_id for pull in there.source.pulled].count("n0") == 1
    assert refused == {"n0": "not-possible"}
    assert traffic.returned == {}


async def test_a_cohort_answered_before_a_restart_is_not_called_unused_after_it(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        traffic = cohort()
        await play(there, traffic)
        there.restart()
        again = CohortTraffic(traffic.spec, traffic.users, Closings())
        _, refused = await play(there, again)
    assert set(refused.values()) == {"cohort-repeated"}
    assert again.returned == {}


class Unasked:
    """A source of outcomes that nobody may ask."""

    async def pull(self, pull: Pull) -> Sequence[object]:
        raise AssertionError("people were shown an arm")

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("admission", ["open", "invited", "enrolled"])
async def test_people_known_beforehand_are_in_no_cohort_of_people_who_arrive(
    tmp_path: Path, admission: str
) -> None:
    """A lying server needs five colluders to make a seat's key, however many nodes."""
    lying = admission != "open"
    run = SeatedRun(admission, lying=lying)
    policy = ClientPolicy(
        largest_epsilon=Fraction(100),
        largest_total_epsilon=Fraction(10**9),
        smallest_cohort=2,
        smallest_floor_fraction=Fraction(0),
        malicious_server=lying,
        trustees=tuple(run.trustees),
    )
    identity = run.enrolment.identity("clinic", 2)
    terms = SeatTerms(run.cohort().terms, run.trust).request_for("clinic")
    request = NodeRequest.FromString(terms)
    request.tasks[0].stage.users[:] = ["ann", "ben"]
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        setup = NodeSetup(policy, ledger, lambda _: Unasked(), lambda _: identity)
        node = make_node(setup, "clinic", ["ann", "ben"], run.enrolment.trust)
        body = await node.handle(request.SerializeToString())
        [answer] = NodeAnswer.FromString(body).answers
        assert answer.refusal.code == "bad-cohort"
        assert await ledger.read_account("clinic", "ann") == NOTHING
