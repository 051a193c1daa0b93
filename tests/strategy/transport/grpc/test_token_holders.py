"""Tokens issued to Flower's number of a node, before the node's name is known."""

from __future__ import annotations

import asyncio
import dataclasses
import time

import pytest

from tests.support.grpc_fixtures import FAST, QUICK, House
from tests.support.transport_contract import Echo, gather, request
from wallflower.clients.transport.grpc_client import Invitation, connect_node
from wallflower.protocol.errors import AuthenticationError
from wallflower.protocol.identity.tokens import RunToken, RunTokens
from wallflower.strategy.transport.grpc.admission import (
    Admission,
    EnrolledKeys,
    TokenHolders,
)
from wallflower.strategy.transport.grpc.server import GrpcServer


def token(house: House, holder: str) -> RunToken:
    return house.tokens.issue_to(holder, expiry=int(time.time()) + 3600)


class Office:
    """A server that accepts tokens of Flower's numbers, and nodes that connect."""

    def __init__(self, holders: TokenHolders | None) -> None:
        self.house = House()
        keys = EnrolledKeys(self.house.enrolment.public_key)
        admission = Admission(self.house.tokens, keys, holders=holders)
        self.grpc_server = GrpcServer(admission, self.house.server, FAST)
        self.port = 0
        self.nodes: list[asyncio.Task[str]] = []

    async def __aenter__(self) -> Office:
        self.port = await self.grpc_server.open("127.0.0.1:0")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.grpc_server.close("finished")
        await asyncio.gather(*self.nodes, return_exceptions=True)

    def connect_node(self, name: str, ticket: RunToken) -> asyncio.Task[str]:
        invitation = Invitation(
            f"127.0.0.1:{self.port}",
            self.house.authority.certificate,
            self.house.run_id,
            ticket,
        )
        identity = self.house.identity(name)
        task = asyncio.create_task(
            connect_node(invitation, identity, Echo(name), settings=QUICK)
        )
        self.nodes.append(task)
        return task


async def test_a_holders_token_serves_the_name_its_node_proves() -> None:
    async with Office(TokenHolders("flower/")) as office:
        office.connect_node("clinic-7", token(office.house, "flower/123"))
        assert not await office.grpc_server.wait_for(["clinic-7"], timeout_s=30)
        [answer] = await gather(office.grpc_server, request("clinic-7"))
    assert answer.failure is None


async def test_a_holder_gets_one_name_only() -> None:
    async with Office(TokenHolders("flower/")) as office:
        ticket = token(office.house, "flower/123")
        office.connect_node("clinic-7", ticket)
        await office.grpc_server.wait_for(["clinic-7"], timeout_s=30)
        with pytest.raises(AuthenticationError, match="not-your-name"):
            await office.connect_node("clinic-8", ticket)


async def test_a_name_belongs_to_one_holder_only() -> None:
    async with Office(TokenHolders("flower/")) as office:
        office.connect_node("clinic-7", token(office.house, "flower/123"))
        await office.grpc_server.wait_for(["clinic-7"], timeout_s=30)
        with pytest.raises(AuthenticationError, match="not-your-name"):
            await office.connect_node("clinic-7", token(office.house, "flower/124"))


@pytest.mark.parametrize("holder", ["flower/124", "clinic-8", ""])
async def test_a_token_with_another_holder_written_on_it_is_refused(
    holder: str,
) -> None:
    async with Office(TokenHolders("flower/")) as office:
        forged = dataclasses.replace(token(office.house, "flower/123"), holder=holder)
        with pytest.raises(AuthenticationError):
            await office.connect_node("clinic-7", forged)


async def test_a_server_that_names_its_nodes_itself_takes_no_holders() -> None:
    async with Office(None) as office:
        with pytest.raises(AuthenticationError, match="token-invalid"):
            await office.connect_node("clinic-7", token(office.house, "flower/123"))


def test_a_token_keeps_its_holder_as_text() -> None:
    issued = RunTokens("run-1", b"s" * 32).issue_to("flower/123", expiry=7)
    assert RunToken.from_text(issued.to_text()) == issued
