from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.support.grpc_fixtures import (
    FAST,
    SERVER,
    House,
    faster,
    open_grpc_server,
)
from tests.support.transport_contract import Echo, gather, request
from wallflower.clients.transport.polling import PollingClient, PollingSettings
from wallflower.protocol.errors import AuthenticationError, UnavailableError
from wallflower.protocol.identity.certificates import fingerprint

QUICK = PollingSettings(first_wait_s=0.01, longest_wait_s=0.05, patience_s=60)


async def test_one_invocation_asks_answers_and_leaves() -> None:
    house, echo = House(), Echo("a")
    async with open_grpc_server(house, run_over=None) as (grpc_server, port):
        identity = house.identity("a")
        client = PollingClient(
            house.invitation(port, "a"), identity, echo, settings=QUICK
        )
        assert await client.once() is None
        asking = asyncio.create_task(
            gather(grpc_server, request("a", "r1", b"x"), request("a", "r2", b"y"))
        )
        await asyncio.sleep(0)
        assert await client.once() is None
        assert {answer.request_id for answer in await asking} == {"r1", "r2"}
        assert grpc_server.stats.connected == 0
        assert grpc_server.stats.polls == 3  # come by; ask; answer both


async def test_the_same_request_has_the_same_answer_after_the_server_restarted() -> (
    None
):
    house, echo = House(), Echo("a")
    identity = house.identity("a")
    async with open_grpc_server(house, run_over=None) as (grpc_server, port):
        client = PollingClient(
            house.invitation(port, "a"), identity, echo, settings=QUICK
        )
        await client.once()
        asking = asyncio.create_task(gather(grpc_server, request("a", "r1")))
        await asyncio.sleep(0)
        await client.once()
        [first] = await asking
    async with open_grpc_server(house, run_over=None) as (grpc_server, port):
        client._invitation = house.invitation(port, "a")
        await client.once()
        asking = asyncio.create_task(gather(grpc_server, request("a", "r1")))
        await asyncio.sleep(0)
        await client.once()
        assert await asking == [first]


async def test_a_request_that_comes_during_a_long_one_does_not_wait_for_it() -> None:
    class Long:
        def __init__(self) -> None:
            self.begun, self.release = asyncio.Event(), asyncio.Event()

        async def handle(self, body: bytes) -> bytes:
            if body == b"long":
                self.begun.set()
                await self.release.wait()
            return body

    house, long = House(), Long()
    brief = replace(QUICK, stay_s=0.01)
    grpc_settings = faster(FAST, poll_s=1.0, polls_burst=1000)
    async with open_grpc_server(house, grpc_settings, run_over=None) as (
        grpc_server,
        port,
    ):
        client = PollingClient(
            house.invitation(port, "a"), house.identity("a"), long, settings=brief
        )
        staying = asyncio.create_task(client.keep())
        assert not await grpc_server.wait_for(["a"], timeout_s=60)
        first = asyncio.create_task(gather(grpc_server, request("a", "r1", b"long")))
        await long.begun.wait()
        [second] = await gather(grpc_server, request("a", "r2", b"short"))
        assert (second.body, second.failure) == (b"short", None)
        assert not first.done()
        long.release.set()
        [answer] = await first
        assert answer.body == b"long"
        staying.cancel()
        await asyncio.wait([staying])


async def test_a_polling_node_hears_that_the_run_is_over() -> None:
    house = House()
    async with open_grpc_server(house, faster(FAST, poll_s=0.02)) as (
        grpc_server,
        port,
    ):
        client = PollingClient(
            house.invitation(port, "a"), house.identity("a"), Echo(), settings=QUICK
        )
        staying = asyncio.create_task(client.keep())
        assert not await grpc_server.wait_for(["a"], timeout_s=60)
        await grpc_server.close("finished")
        assert await staying == "finished"


async def test_a_server_that_does_not_know_the_run_is_not_believed() -> None:
    house, impostor = House(), House(secret=b"t" * 32)
    impostor.enrolment = house.enrolment
    async with open_grpc_server(impostor, run_over=None) as (grpc_server, port):
        # It lets everybody in, and knows all but the run's secret.
        grpc_server._admission._prove = lambda *_: None  # type: ignore[method-assign]
        client = PollingClient(
            house.invitation(port, "a"), house.identity("a"), Echo(), settings=QUICK
        )
        with pytest.raises(AuthenticationError, match="token"):
            await client.once()


async def test_a_polling_node_may_insist_on_one_certificate() -> None:
    house = House()
    async with open_grpc_server(house, run_over=None) as (_, port):
        own = house.invitation(port, "a")
        pinned: Any = type(own)(
            own.address,
            own.root_certificate,
            own.run_id,
            own.token,
            fingerprint(SERVER.certificate),
        )
        client = PollingClient(pinned, house.identity("a"), Echo(), settings=QUICK)
        assert await client.once() is None
        other: Any = type(own)(
            own.address,
            own.root_certificate,
            own.run_id,
            house.invitation(port, "b").token,
            b"x" * 32,
        )
        with pytest.raises(AuthenticationError, match="wrong-server"):
            await PollingClient(
                other, house.identity("b"), Echo(), settings=QUICK
            ).once()


async def test_a_server_that_is_away_is_tried_for_a_while() -> None:
    house = House()
    async with open_grpc_server(house, run_over=None) as (_, port):
        invitation = house.invitation(port, "a")
    hasty = PollingSettings(first_wait_s=0.01, longest_wait_s=0.01, patience_s=0.02)
    with pytest.raises(UnavailableError, match="not reached"):
        await PollingClient(
            invitation, house.identity("a"), Echo(), settings=hasty
        ).once()
