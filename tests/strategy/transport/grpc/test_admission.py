"""Who gets in. Each attack is made over a real TLS connection to a real gRPC server,
which
must refuse it with a named status and go on serving an honest node."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.support.grpc_fixtures import FAST as SETTINGS
from tests.support.grpc_fixtures import (
    House,
    connect_nodes,
    faster,
    open_grpc_server,
)
from tests.support.intruder import (
    Intruder,
    good_token,
    handshake_of,
    hello_of,
    intruder_at,
    proof_of,
)
from tests.support.transport_contract import Echo, gather, request
from wallflower.protocol.errors import AuthenticationError
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.protocol.identity.tokens import RunToken, RunTokens
from wallflower.protocol.wire import node_service_pb2
from wallflower.strategy.transport.grpc.admission import Admission
from wallflower.strategy.transport.grpc.server import GrpcServer

Attack = Callable[[Intruder, House], Awaitable[None]]


class AskingNobody(Admission):
    """Of a gRPC server that lets everybody speak."""

    def require_token(self, *_: object) -> None:
        pass


Office = tuple[House, GrpcServer, int]


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    """A gRPC server with one honest node, which must still be served after every
    attack.
    """
    house = House()
    async with open_grpc_server(house) as (grpc_server, port):
        async with connect_nodes(house, port, {"honest": Echo("honest")}):
            assert not await grpc_server.wait_for(["honest"], timeout_s=60)
            yield house, grpc_server, port
            [answer] = await gather(grpc_server, request("honest", "after"))
            assert answer.failure is None


async def other_enrolment_key(intruder: Intruder, house: House) -> None:
    await intruder.authenticate(house, House().identity("a"))


async def no_certificate(intruder: Intruder, house: House) -> None:
    await intruder.authenticate(house, NodeIdentity.generate("a"))


async def garbled_certificate(intruder: Intruder, house: House) -> None:
    await intruder.authenticate(house, house.identity("a"), certificate=b"\xff" * 100)


async def expired_certificate(intruder: Intruder, house: House) -> None:
    past = int(time.time()) - 1
    await intruder.authenticate(house, house.identity("a", not_after=past))


async def name_of_another_node(intruder: Intruder, house: House) -> None:
    token = good_token(house, "honest")
    await intruder.authenticate(house, house.identity("a"), token, node_id="honest")


async def key_of_another_node(intruder: Intruder, house: House) -> None:
    honest = house.identity("honest")
    assert honest.certificate is not None
    await intruder.authenticate(
        house,
        NodeIdentity.generate("honest"),
        certificate=honest.certificate.to_bytes(),
        public_key=honest.public_key,
    )


async def revoked_node(intruder: Intruder, house: House) -> None:
    house.revoked.add("a")
    await intruder.authenticate(house, house.identity("a"))


async def token_of_another_run(intruder: Intruder, house: House) -> None:
    other = RunTokens("run-0", house.secret)
    token = other.issue("a", expiry=int(time.time()) + 60)
    await intruder.authenticate(house, house.identity("a"), token)


async def token_of_another_node(intruder: Intruder, house: House) -> None:
    await intruder.authenticate(house, house.identity("a"), good_token(house, "b"))


async def token_of_another_secret(intruder: Intruder, house: House) -> None:
    other = House(secret=b"t" * 32)
    await intruder.authenticate(house, house.identity("a"), good_token(other, "a"))


async def expired_token(intruder: Intruder, house: House) -> None:
    token = house.tokens.issue("a", expiry=int(time.time()) - 1)
    await intruder.authenticate(house, house.identity("a"), token)


async def stretched_token(intruder: Intruder, house: House) -> None:
    old = house.tokens.issue("a", expiry=int(time.time()) - 1)
    longer = RunToken(old.expiry + 3600, old.key)
    await intruder.authenticate(house, house.identity("a"), longer)


async def wrong_signature(intruder: Intruder, house: House) -> None:
    def tamper(proof: object) -> None:
        proof.signature = b"\x00" * 64  # type: ignore[attr-defined]

    await intruder.authenticate(house, house.identity("a"), tamper=tamper)


async def another_run(intruder: Intruder, house: House) -> None:
    await intruder.authenticate(house, house.identity("a"), run_id="run-0")


async def another_version(intruder: Intruder, house: House) -> None:
    await intruder.authenticate(house, house.identity("a"), version=2)


async def short_nonce(intruder: Intruder, house: House) -> None:
    await intruder.authenticate(house, house.identity("a"), nonce=b"short")


async def garbled_handshake(intruder: Intruder, house: House) -> None:
    intruder.knock(b"\xff\xfe garbage")


async def empty_handshake(intruder: Intruder, house: House) -> None:
    intruder.knock(b"")


async def handshake_of_another_hello(intruder: Intruder, house: House) -> None:
    token, identity = good_token(house, "a"), house.identity("a")
    handshake = node_service_pb2.Handshake.FromString(
        handshake_of(hello_of(house, identity, token), token)
    )
    handshake.hello.node_id = "b"
    intruder.knock(handshake.SerializeToString())


async def said_hello(intruder: Intruder, house: House) -> None:
    intruder.say_hello(house, hello_of(house, house.identity("a")))
    await intruder.hear()


async def garbage(intruder: Intruder, house: House) -> None:
    await said_hello(intruder, house)
    await intruder.send(b"\xff\xfe garbage")


async def empty_message(intruder: Intruder, house: House) -> None:
    await said_hello(intruder, house)
    await intruder.send(b"")


async def no_handshake(intruder: Intruder, house: House) -> None:
    assert not intruder.call.done()


async def answer_before_proof(intruder: Intruder, house: House) -> None:
    await said_hello(intruder, house)
    await intruder.say(answer={"request_id": "after", "body": b"forged"})


async def long_proof(intruder: Intruder, house: House) -> None:
    await said_hello(intruder, house)
    await intruder.say(proof={"signature": bytes(5_000)})


async def hanging_up_at_once(intruder: Intruder, house: House) -> None:
    await said_hello(intruder, house)
    await intruder.call.done_writing()


async def long_handshake(intruder: Intruder, house: House) -> None:
    await intruder.authenticate(house, house.identity("a"), certificate=b"x" * 5_000)


async def oversized_message(intruder: Intruder, house: House) -> None:
    await said_hello(intruder, house)
    await intruder.send(b"x" * (SETTINGS.most_bytes + 1))


async def proof_after_welcome(intruder: Intruder, house: House) -> None:
    await intruder.authenticate(house, house.identity("a"))
    await intruder.hear()
    await intruder.say(proof={"signature": bytes(64)})


async def garbage_after_welcome(intruder: Intruder, house: House) -> None:
    await intruder.authenticate(house, house.identity("a"))
    await intruder.hear()
    await intruder.send(b"\xff\xfe garbage")


async def failure_without_a_name(intruder: Intruder, house: House) -> None:
    await intruder.authenticate(house, house.identity("a"))
    await intruder.hear()
    await intruder.say(answer={"request_id": "r"})


ATTACKS: list[tuple[Attack, str, str]] = [
    (other_enrolment_key, "PERMISSION_DENIED", "unknown-key"),
    (no_certificate, "PERMISSION_DENIED", "unknown-key"),
    (garbled_certificate, "UNAUTHENTICATED", "certificate-invalid"),
    (expired_certificate, "UNAUTHENTICATED", "certificate-expired"),
    (name_of_another_node, "PERMISSION_DENIED", "not-your-name"),
    (key_of_another_node, "UNAUTHENTICATED", "signature-invalid"),
    (revoked_node, "PERMISSION_DENIED", "revoked"),
    (token_of_another_run, "UNAUTHENTICATED", "token-invalid"),
    (token_of_another_node, "UNAUTHENTICATED", "token-invalid"),
    (token_of_another_secret, "UNAUTHENTICATED", "token-invalid"),
    (expired_token, "UNAUTHENTICATED", "token-expired"),
    (stretched_token, "UNAUTHENTICATED", "token-invalid"),
    (wrong_signature, "UNAUTHENTICATED", "signature-invalid"),
    (another_run, "FAILED_PRECONDITION", "wrong-run"),
    (another_version, "FAILED_PRECONDITION", "unsupported-version"),
    (short_nonce, "INVALID_ARGUMENT", "malformed-message"),
    (garbled_handshake, "INVALID_ARGUMENT", "malformed-message"),
    (empty_handshake, "UNAUTHENTICATED", "token-invalid"),
    (handshake_of_another_hello, "UNAUTHENTICATED", "token-invalid"),
    (no_handshake, "INVALID_ARGUMENT", "unexpected-message"),
    (garbage, "INVALID_ARGUMENT", "malformed-message"),
    (empty_message, "INVALID_ARGUMENT", "unexpected-message"),
    (answer_before_proof, "INVALID_ARGUMENT", "unexpected-message"),
    (long_proof, "RESOURCE_EXHAUSTED", "too-large"),
    (hanging_up_at_once, "INVALID_ARGUMENT", "unexpected-message"),
    (long_handshake, "RESOURCE_EXHAUSTED", "too-large"),
    (proof_after_welcome, "INVALID_ARGUMENT", "unexpected-message"),
    (garbage_after_welcome, "INVALID_ARGUMENT", "malformed-message"),
    (failure_without_a_name, "INVALID_ARGUMENT", "malformed-message"),
]


@pytest.mark.parametrize(
    ("attack", "status", "reason"), ATTACKS, ids=[a.__name__ for a, _, _ in ATTACKS]
)
async def test_an_attack_is_refused_by_name_and_the_server_goes_on(
    office: Office, attack: Attack, status: str, reason: str
) -> None:
    house, grpc_server, port = office
    async with intruder_at(port) as intruder:
        await attack(intruder, house)
        assert await intruder.status() == (status, reason)
    stats = grpc_server.stats
    assert stats.refused[reason] + stats.ended[reason] == 1
    assert stats.handshake == 0


async def test_a_message_above_the_limit_never_reaches_our_code(
    office: Office,
) -> None:
    house, _, port = office
    async with intruder_at(port) as intruder:
        await oversized_message(intruder, house)
        status, _ = await intruder.status()
    assert status == "RESOURCE_EXHAUSTED"


async def test_a_recorded_handshake_is_worthless_on_another_stream(
    office: Office,
) -> None:
    house, _, port = office
    identity, token = house.identity("a"), good_token(house, "a")
    hello = hello_of(house, identity, token)
    async with intruder_at(port) as first, intruder_at(port) as second:
        first.say_hello(house, hello, token)
        proof = proof_of(hello, (await first.hear()).challenge, identity, token)
        await first.say(proof=proof)
        assert (await first.hear()).WhichOneof("kind") == "welcome"
        second.say_hello(house, hello, token)
        await second.hear()
        await second.say(proof=proof)
        assert await second.status() == ("UNAUTHENTICATED", "token-invalid")


async def test_a_node_that_says_nothing_is_not_waited_for() -> None:
    house = House()
    async with open_grpc_server(house, faster(SETTINGS, handshake_s=0.5)) as (_, port):
        async with intruder_at(port) as intruder:
            await said_hello(intruder, house)
            assert await intruder.status() == ("DEADLINE_EXCEEDED", "handshake-late")


async def test_an_answer_to_another_nodes_request_goes_nowhere(office: Office) -> None:
    house, grpc_server, port = office
    held = Echo("held", held=True)
    async with (
        connect_nodes(house, port, {"held": held}),
        intruder_at(port) as intruder,
    ):
        await grpc_server.wait_for(["held"], timeout_s=60)
        await intruder.authenticate(house, house.identity("a"))
        await intruder.hear()
        stream = grpc_server.ask([request("held", "r1")], timeout_s=60)
        first = anext(stream)
        asking = asyncio.ensure_future(first)
        await held.started.wait()
        await intruder.say(answer={"request_id": "r1", "body": b"forged"})
        await intruder.say(heartbeat={"number": 7})
        assert (await intruder.hear()).heartbeat.number == 7
        assert grpc_server.stats.unasked == 1
        held.release.set()
        assert (await asking).body == b"held#1:hello"
        await stream.aclose()


async def test_a_revoked_node_loses_its_stream(office: Office) -> None:
    house, grpc_server, port = office
    async with connect_nodes(house, port, {"b": Echo("b")}) as tasks:
        await grpc_server.wait_for(["b"], timeout_s=60)
        grpc_server.revoke("b")
        with pytest.raises(AuthenticationError, match="revoked"):
            await tasks["b"]
    assert grpc_server.stats.ended["revoked"] == 1


async def test_refusals_are_logged_without_secrets(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    house, _, port = office
    token = good_token(house, "a")
    with caplog.at_level(logging.DEBUG):
        async with intruder_at(port) as intruder:
            await intruder.authenticate(house, House().identity("a"), token)
            await intruder.status()
    [record] = [r for r in caplog.records if r.message == "refused"]
    assert vars(record)["reason"] == "unknown-key"
    assert vars(record)["run_id"] == house.run_id
    everything = " ".join(str(vars(record)) for record in caplog.records)
    for secret in (token.key, house.secret):
        assert secret.hex() not in everything
        assert repr(secret)[2:-1] not in everything
    assert token.key.hex() not in repr(token)
