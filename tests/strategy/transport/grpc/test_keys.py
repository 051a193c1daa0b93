"""Whose key a name has, whom a node speaks to, and what is a token."""

from __future__ import annotations

import datetime

import pytest

from tests.strategy.transport.grpc.test_admission import AskingNobody
from tests.support.grpc_fixtures import (
    AUTHORITY,
    NOW,
    QUICK,
    House,
    open_grpc_server,
)
from tests.support.grpc_fixtures import FAST as SETTINGS
from tests.support.intruder import (
    hello_of,
    intruder_at,
)
from tests.support.transport_contract import Echo
from wallflower.clients.transport.grpc_client import connect_node
from wallflower.protocol.errors import AuthenticationError, InputError
from wallflower.protocol.identity.certificates import (
    make_authority,
    make_server_certificate,
)
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.protocol.identity.tokens import RunToken, RunTokens
from wallflower.strategy.transport.grpc.admission import FirstUseKeys
from wallflower.strategy.transport.grpc.server import GrpcServer


async def test_the_first_key_of_a_name_stays_its_key() -> None:
    house, pins = House(), dict[str, bytes]()
    first = NodeIdentity.generate("a")
    async with open_grpc_server(house, keys=FirstUseKeys(pins)) as (_, port):
        async with intruder_at(port) as claimer:
            # Claiming a name without proving the key must not pin it.
            claimer.say_hello(house, hello_of(house, NodeIdentity.generate("a")))
            await claimer.hear()
            assert pins == {}
        async with intruder_at(port) as owner, intruder_at(port) as thief:
            await owner.authenticate(house, first)
            assert (await owner.hear()).WhichOneof("kind") == "welcome"
            await thief.authenticate(house, NodeIdentity.generate("a"))
            assert await thief.status() == ("PERMISSION_DENIED", "not-your-name")
    assert pins == {"a": first.public_key}


async def test_a_grpc_server_of_another_authority_is_not_spoken_to() -> None:
    other = make_authority("other", now=NOW)
    house = House(server=make_server_certificate(other, ["127.0.0.1"], now=NOW))
    async with open_grpc_server(house) as (grpc_server, port):
        with pytest.raises(AuthenticationError, match="TLS certificate"):
            await connect_node(
                house.invitation(port, "a"), house.identity("a"), Echo(), settings=QUICK
            )
        assert grpc_server.stats.connections == 0


async def test_a_grpc_server_with_an_expired_certificate_is_not_spoken_to() -> None:
    past = NOW - datetime.timedelta(days=9)
    server = make_server_certificate(AUTHORITY, ["127.0.0.1"], now=past, days=1)
    house = House(server=server)
    async with open_grpc_server(house) as (_, port):
        with pytest.raises(AuthenticationError, match="TLS certificate"):
            await connect_node(
                house.invitation(port, "a"), house.identity("a"), Echo(), settings=QUICK
            )


async def test_a_server_that_does_not_know_the_run_is_not_believed() -> None:
    """Even with a certificate of the right authority, a gRPC server needs the run's
    secret.
    """
    impostor, house = House(secret=b"t" * 32), House()
    admission = AskingNobody(impostor.tokens, FirstUseKeys())
    grpc_server = GrpcServer(admission, impostor.server, SETTINGS)
    port = await grpc_server.open("127.0.0.1:0")
    try:
        with pytest.raises(AuthenticationError, match="the server's proof"):
            await connect_node(
                house.invitation(port, "a"), house.identity("a"), Echo(), settings=QUICK
            )
        assert grpc_server.stats.connections == 0
    finally:
        await grpc_server.close()


@pytest.mark.parametrize("text", ["", "12", "x.00", "12.zz", "12." + "00" * 31])
def test_an_unreadable_token_is_a_named_error(text: str) -> None:
    with pytest.raises(InputError, match="run token"):
        RunToken.from_text(text)


def test_a_token_survives_its_text_form() -> None:
    token = RunTokens("run-1", b"s" * 32).issue("a", expiry=1_800_000_000)
    assert RunToken.from_text(token.to_text()) == token
