"""Nodes that only poll: two short calls a cohort, and nothing gained by any other."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable

import pytest

from tests.support.grpc_fixtures import (
    FAST,
    House,
    connect_nodes,
    faster,
    open_grpc_server,
)
from tests.support.intruder import good_token
from tests.support.polling_nodes import Hall, Poll, call, make_poll
from tests.support.transport_contract import Echo, gather, request
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.protocol.identity.tokens import STATUS
from wallflower.protocol.messages.describe import describe_body
from wallflower.protocol.messages.port import Answer
from wallflower.protocol.wire import node_service_pb2
from wallflower.strategy.transport.grpc.admission import MOST_SKEW_S, RefusedError
from wallflower.strategy.transport.grpc.poll_queue import MOST_POLL_BYTES
from wallflower.strategy.transport.pending_requests import Inbox


@pytest.fixture
def hall() -> Hall:
    return Hall(House())


def ask(hall: Hall, node_id: str, request_id: str = "r1", body: bytes = b"?") -> Inbox:
    inbox = Inbox([request(node_id, request_id, body)])
    hall.node_queues[node_id].ask(request(node_id, request_id, body), inbox, hall.now)
    return inbox


async def heard(inbox: Inbox) -> Answer | None:
    return await inbox.next_before(0.0)


def refused(hall: Hall, raw: Poll) -> str:
    with pytest.raises(RefusedError) as error:
        hall.serve(raw)
    return error.value.reason


# ---- the two calls -----------------------------------------------------------------


async def test_one_poll_takes_the_question_and_another_brings_the_answer(
    hall: Hall,
) -> None:
    node = hall.house.identity("a")
    assert not hall.poll(node).requests
    inbox = ask(hall, "a", "r1", b"question")
    [asked] = hall.poll(node).requests
    assert (asked.request_id, asked.body) == ("r1", b"question")
    hall.now += 3000  # the outcome takes its time
    reply = hall.poll(node, {"r1": b"answer"})
    assert await heard(inbox) == Answer("a", "r1", b"answer")
    assert not reply.not_taken
    assert not reply.requests


async def test_what_a_polling_node_took_along_is_not_given_up_while_its_asker_waits(
    hall: Hall,
) -> None:
    node = hall.house.identity("a")
    hall.poll(node)
    taken = ask(hall, "a", "r1")
    hall.poll(node)
    left = ask(hall, "a", "r2")
    hall.now += 24 * 3600
    assert hall.node_queues["a"].is_away(hall.now, 30.0)
    hall.node_queues["a"].give_up(hall.now)
    assert await heard(left) == Answer("a", "r2", failure="node-gone")
    assert taken.awaited
    assert await heard(taken) is None


def test_a_polling_node_is_there_until_it_missed_three_polls(hall: Hall) -> None:
    hall.poll(hall.house.identity("a"))
    assert hall.poll_queue.expected(hall.now + 2.9 * FAST.poll_s) == {"a"}
    assert hall.poll_queue.expected(hall.now + 3.1 * FAST.poll_s) == frozenset()


def test_many_polling_nodes_are_told_to_come_more_seldom() -> None:
    hall = Hall(House(), faster(FAST, polls_per_s=1, poll_s=1.0))
    waits = [hall.poll(hall.house.identity(f"n{i}")).next_ms for i in range(5)]
    assert waits[0] == 1000
    assert waits[-1] == 4000


async def test_a_prepared_answer_is_given_without_a_poll(hall: Hall) -> None:
    body = describe_body(hall.house.run_id)
    hall.poll(hall.house.identity("a"), prepared={body: b"me"})
    assert await heard(ask(hall, "a", "r1", body)) == Answer("a", "r1", b"me")
    other = ask(hall, "a", "r2", b"another question")
    assert other.awaited


async def test_a_node_that_lost_its_store_is_not_asked_the_same_again(
    hall: Hall,
) -> None:
    node = hall.house.identity("a")
    hall.poll(node)
    inbox = ask(hall, "a")
    hall.poll(node)
    assert len(hall.poll(node).requests) == 1  # the same store: given again
    assert not hall.poll(node, instance=b"j" * 16).requests
    assert await heard(inbox) == Answer("a", "r1", failure="node-restarted")


# ---- answers that must not count ---------------------------------------------------


async def test_a_second_different_answer_changes_nothing(hall: Hall) -> None:
    node = hall.house.identity("a")
    hall.poll(node)
    inbox = ask(hall, "a")
    hall.poll(node)
    assert not hall.poll(node, {"r1": b"first"}).not_taken
    assert list(hall.poll(node, {"r1": b"second"}).not_taken) == ["r1"]
    assert await heard(inbox) == Answer("a", "r1", b"first")
    assert await heard(inbox) is None
    assert hall.stats.unasked == 1


async def test_an_answer_of_somebody_who_was_not_asked_changes_nothing(
    hall: Hall,
) -> None:
    hall.poll(hall.house.identity("a"))
    inbox = ask(hall, "a")
    stranger = hall.poll(hall.house.identity("b"), {"r1": b"mine"})
    assert list(stranger.not_taken) == ["r1"]
    assert inbox.awaited


async def test_an_answer_to_another_cohort_changes_nothing(hall: Hall) -> None:
    node = hall.house.identity("a")
    hall.poll(node)
    inbox = ask(hall, "a", "cohort-1/seal")
    hall.poll(node)
    reply = hall.poll(node, {"cohort-2/seal": b"elsewhere"})
    assert list(reply.not_taken) == ["cohort-2/seal"]
    assert [one.request_id for one in reply.requests] == ["cohort-1/seal"]
    assert inbox.awaited


async def test_an_answer_after_the_close_is_not_taken(hall: Hall) -> None:
    node = hall.house.identity("a")
    hall.poll(node)
    inbox = ask(hall, "a")
    hall.poll(node)
    inbox.close()
    hall.node_queues["a"].stop_waiting("r1", inbox)
    reply = hall.poll(node, {"r1": b"too late"})
    assert list(reply.not_taken) == ["r1"]
    assert not reply.requests


async def test_a_poll_shown_again_is_refused_and_changes_nothing(hall: Hall) -> None:
    node = hall.house.identity("a")
    hall.poll(node)
    inbox = ask(hall, "a")
    raw = make_poll(
        hall.house, node, {"r1": b"once"}, at_ms=round(hall.time() * 1000) + 5
    )
    hall.serve(raw)
    again = ask(hall, "a")
    assert refused(hall, raw) == "poll-repeated"
    assert await heard(inbox) == Answer("a", "r1", b"once")
    assert again.awaited


# ---- polls that do not get in -----------------------------------------------------


def other_answer(_: bytes) -> bytes:
    brought = node_service_pb2.PollRequest()
    brought.answers.add(request_id="r1", body=b"somebody else's")
    return brought.SerializeToString()


def changed_digest(poll: node_service_pb2.PollHandshake) -> None:
    poll.digest = hashlib.sha256(other_answer(b"")).digest()


def no_signature(poll: node_service_pb2.PollHandshake) -> None:
    poll.proof.signature = bytes(64)


def no_proof(poll: node_service_pb2.PollHandshake) -> None:
    poll.proof.token_proof = bytes(32)


def later(poll: node_service_pb2.PollHandshake) -> None:
    poll.at_ms += 1


Attack = Callable[[House], Poll]
ATTACKS: dict[str, tuple[str, Attack]] = {
    "another key signs": (
        "signature-invalid",
        lambda house: make_poll(
            house, house.identity("a"), signer=NodeIdentity.generate("a")
        ),
    ),
    "nobody vouches for the key": (
        "unknown-key",
        lambda house: make_poll(house, House().identity("a")),
    ),
    "no certificate": (
        "unknown-key",
        lambda house: make_poll(house, NodeIdentity.generate("a")),
    ),
    "another's name": (
        "not-your-name",
        lambda house: make_poll(
            house, house.identity("a"), token=good_token(house, "b"), node_id="b"
        ),
    ),
    "another's token": (
        "token-invalid",
        lambda house: make_poll(
            house, house.identity("a"), token=good_token(house, "b")
        ),
    ),
    "no signature": (
        "signature-invalid",
        lambda house: make_poll(house, house.identity("a"), tamper=no_signature),
    ),
    "no token": (
        "token-invalid",
        lambda house: make_poll(house, house.identity("a"), tamper=no_proof),
    ),
    "an answer changed on the way": (
        "malformed-message",
        lambda house: make_poll(house, house.identity("a"), brings=other_answer),
    ),
    "an answer and its digest changed on the way": (
        "token-invalid",
        lambda house: make_poll(
            house, house.identity("a"), tamper=changed_digest, brings=other_answer
        ),
    ),
    "a time changed on the way": (
        "token-invalid",
        lambda house: make_poll(house, house.identity("a"), tamper=later),
    ),
    "an old poll": (
        "clock-differs",
        lambda house: make_poll(
            house,
            house.identity("a"),
            at_ms=round((time.time() - MOST_SKEW_S - 60) * 1000),
        ),
    ),
    "an old poll without a token": (
        "token-invalid",
        lambda house: make_poll(house, house.identity("a"), at_ms=1, tamper=no_proof),
    ),
    "for another gRPC server": (
        "wrong-server",
        lambda house: make_poll(house, house.identity("a"), fingerprint=b"o" * 32),
    ),
    "for another run": (
        "wrong-run",
        lambda house: make_poll(house, house.identity("a"), run_id="run-2"),
    ),
    "an expired certificate": (
        "certificate-expired",
        lambda house: make_poll(
            house, house.identity("a", not_after=int(time.time()) - 1)
        ),
    ),
    "another version": (
        "unsupported-version",
        lambda house: make_poll(house, house.identity("a"), version=2),
    ),
    "a short nonce": (
        "malformed-message",
        lambda house: make_poll(house, house.identity("a"), nonce=b"short"),
    ),
    "garbage": ("malformed-message", lambda house: (b"\xff" * 50, b"")),
    "too large": (
        "too-large",
        lambda house: make_poll(
            house, house.identity("a"), {"r1": bytes(MOST_POLL_BYTES)}
        ),
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_over_tls_a_poll_is_refused_by_name_and_others_are_served(
    name: str,
) -> None:
    reason, attack = ATTACKS[name]
    house = House()
    async with open_grpc_server(house, run_over=None) as (grpc_server, port):
        honest = house.identity("honest")
        await call(port, make_poll(house, honest))
        asking = asyncio.create_task(gather(grpc_server, request("honest", "r1")))
        assert await call(port, attack(house)) == (STATUS[reason], reason)
        assert grpc_server.stats.refused[reason] == 1
        asked = await call(port, make_poll(house, honest))
        assert isinstance(asked, node_service_pb2.PollReplyBody)
        assert len(asked.requests) == 1
        await call(port, make_poll(house, honest, {"r1": b"fine"}))
        assert await asking == [Answer("honest", "r1", b"fine")]
        assert await grpc_server.nodes() == ["honest"]


def test_a_revoked_node_is_refused_at_its_next_poll(hall: Hall) -> None:
    node = hall.house.identity("a")
    hall.poll(node)
    hall.house.revoked.add("a")
    assert refused(hall, make_poll(hall.house, node)) == "revoked"


def test_a_node_that_comes_too_often_is_refused_and_only_that_one() -> None:
    hall = Hall(House(), faster(FAST, polls_burst=3))
    node = hall.house.identity("a")
    for _ in range(3):
        hall.poll(node)
    with pytest.raises(RefusedError, match="too-fast"):
        hall.poll(node)
    hall.poll(hall.house.identity("b"))
    hall.now += FAST.poll_s
    hall.poll(node)


def test_a_server_with_all_the_polling_nodes_it_can_know_refuses_the_next() -> None:
    hall = Hall(House(), faster(FAST, most_polling_nodes=2))
    hall.poll(hall.house.identity("a"))
    hall.poll(hall.house.identity("b"))
    with pytest.raises(RefusedError, match="too-many-streams"):
        hall.poll(hall.house.identity("c"))
    hall.poll(hall.house.identity("a"))


async def test_a_node_that_has_a_stream_open_does_not_also_poll() -> None:
    house = House()
    async with open_grpc_server(house, run_over=None) as (grpc_server, port):
        async with connect_nodes(house, port, {"a": Echo("a")}):
            assert not await grpc_server.wait_for(["a"], timeout_s=60)
            raw = make_poll(house, house.identity("a"))
            assert await call(port, raw) == ("ALREADY_EXISTS", "already-connected")


# ---- a polling node ---------------------------------------------------------------
