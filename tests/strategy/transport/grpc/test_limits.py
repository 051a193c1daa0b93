"""Limits on rate, size and number; opening, health and shutting down."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from dataclasses import replace

import grpc
import grpc.aio
import pytest

from deploy.harness.processes import free_port
from tests.strategy.transport.grpc.test_health_service import health
from tests.support.grpc_fixtures import (
    FAST,
    QUICK,
    SERVER,
    House,
    connect_nodes,
    faster,
    open_grpc_server,
    open_office,
)
from tests.support.intruder import channel_to, hello_of, intruder_at
from tests.support.transport_contract import Echo, gather, request
from wallflower.clients.transport.grpc_client import connect_node
from wallflower.listening.limits import (
    Blame,
    FairPlaces,
    TokenBucket,
    address_of,
)
from wallflower.protocol.errors import AuthenticationError, InputError, UnavailableError
from wallflower.protocol.identity.certificates import fingerprint
from wallflower.protocol.messages.port import Answer
from wallflower.strategy.transport.grpc.server import GrpcServer
from wallflower.strategy.transport.grpc.settings import GrpcServerSettings


def test_a_bucket_allows_a_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(rate=2, burst=3, now=0.0)
    assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert not bucket.take(0.4)
    assert bucket.take(0.5)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    bucket = TokenBucket(rate=1, burst=1, now=10.0)
    assert bucket.take(10.0)
    assert not bucket.take(5.0)


def test_no_few_networks_take_all_places() -> None:
    places = FairPlaces(2_000)
    for network in range(14):
        for _ in range(2_000):
            places.take(f"10.0.{network}.0/24")
    assert places.take("192.0.2.0/24")
    alone = FairPlaces(2_000)
    assert sum(alone.take("10.0.0.0/24") for _ in range(2_000)) == 500
    for _ in range(500):
        alone.give_back("10.0.0.0/24")
    assert (alone.taken, len(alone._held)) == (0, 0)


def test_the_only_place_can_be_taken_and_is_given_back() -> None:
    places = FairPlaces(1)
    assert [places.take("a"), places.take("b")] == [True, False]
    places.give_back("a")
    assert places.take("b")


def test_blame_is_per_address_fades_and_is_bounded() -> None:
    blame = Blame(rate=1, burst=2, most_addresses=3)
    for _ in range(2):
        blame.add("a", 0.0)
    assert blame.is_blocked("a", 0.0)
    assert not blame.is_blocked("b", 0.0)
    assert not blame.is_blocked("a", 1.5)
    for number in range(100):
        blame.add(f"x{number}", 2.0)
    assert len(blame) == 3


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.1:4711", "10.0.0.1"),
        ("ipv6:%5B::1%5D:4711", "%5B::1%5D"),
        ("unix:/run/grpc_server", "unix:/run/grpc_server"),
    ],
)
def test_an_address_has_no_port(peer: str, address: str) -> None:
    assert address_of(peer) == address


@pytest.fixture
def used_up_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no allowance come back, however long a busy machine takes over a call."""
    monkeypatch.setattr(TokenBucket, "left", lambda bucket, now: bucket._left)


@pytest.mark.parametrize(
    ("field", "value"), [("window", 0), ("most_streams", -1), ("heartbeat_s", 0.0)]
)
def test_a_limit_that_lets_nothing_through_is_refused(field: str, value: float) -> None:
    with pytest.raises(InputError, match=field.replace("_", "-")):
        GrpcServerSettings(**{field: value})  # type: ignore[arg-type]


async def test_a_stream_too_many_is_refused_and_room_is_given_back() -> None:
    house = House()
    async with open_grpc_server(house, faster(FAST, most_streams=1)) as (
        grpc_server,
        port,
    ):
        async with intruder_at(port) as first:
            await first.authenticate(house, house.identity("a"))
            await first.hear()
            async with intruder_at(port) as second:
                second.say_hello(house, hello_of(house, house.identity("b")))
                assert await second.status() == (
                    "RESOURCE_EXHAUSTED",
                    "too-many-streams",
                )
        async with connect_nodes(house, port, {"b": Echo()}):
            assert not await grpc_server.wait_for(["b"], timeout_s=60)


async def test_the_invited_cannot_take_the_room_of_those_who_are_in() -> None:
    house = House()
    async with open_grpc_server(house, faster(FAST, most_handshakes=1)) as (
        grpc_server,
        port,
    ):
        async with connect_nodes(house, port, {"a": Echo()}):
            await grpc_server.wait_for(["a"], timeout_s=60)
            async with intruder_at(port) as idle:
                # One who has said Hello and then waits holds the only place.
                idle.say_hello(house, hello_of(house, house.identity("b")))
                await idle.hear()
                async with intruder_at(port) as second:
                    second.say_hello(house, hello_of(house, house.identity("d")))
                    assert await second.status() == (
                        "RESOURCE_EXHAUSTED",
                        "too-many-streams",
                    )
                [answer] = await gather(grpc_server, request("a"))
                assert answer.failure is None
            async with connect_nodes(house, port, {"c": Echo()}):
                assert not await grpc_server.wait_for(["c"], timeout_s=60)


@pytest.mark.usefixtures("used_up_for_good")
async def test_a_node_that_talks_too_fast_loses_its_stream() -> None:
    house = House()
    settings = faster(FAST, frames_per_s=1, frames_burst=5)
    async with open_grpc_server(house, settings) as (_, port):
        async with intruder_at(port) as chatty:
            await chatty.authenticate(house, house.identity("a"))
            await chatty.hear()
            for number in range(5):
                await chatty.say(heartbeat={"number": number})
                await chatty.hear()
            await chatty.say(heartbeat={"number": 6})
            assert await chatty.status() == ("RESOURCE_EXHAUSTED", "too-fast")


@pytest.mark.usefixtures("used_up_for_good")
async def test_a_network_that_was_refused_too_often_is_not_listened_to() -> None:
    house = House()
    settings = faster(FAST, refusals_per_s=1, refusals_burst=3)
    async with open_grpc_server(house, settings) as (grpc_server, port):
        for _ in range(3):
            async with intruder_at(port) as intruder:
                intruder.knock(b"\xff")
                assert (await intruder.status())[0] == "INVALID_ARGUMENT"
        async with intruder_at(port) as intruder:
            assert await intruder.status() == ("RESOURCE_EXHAUSTED", "too-fast")
        assert grpc_server.stats.refused == {"malformed-message": 3, "too-fast": 1}
        async with connect_nodes(house, port, {"a": Echo()}):  # its neighbours are
            assert not await grpc_server.wait_for(["a"], timeout_s=60)


@pytest.mark.usefixtures("used_up_for_good")
async def test_a_node_that_was_refused_too_often_is_not_listened_to() -> None:
    house = House()
    house.revoked.add("a")
    settings = faster(FAST, refusals_per_s=1, refusals_burst=2)
    async with open_grpc_server(house, settings) as (grpc_server, port):
        for _ in range(3):
            async with intruder_at(port) as intruder:
                await intruder.authenticate(house, house.identity("a"))
                await intruder.status()
        assert grpc_server.stats.refused == {"revoked": 2, "too-fast": 1}
        async with connect_nodes(house, port, {"b": Echo()}):
            assert not await grpc_server.wait_for(["b"], timeout_s=60)


async def test_a_request_above_the_limit_fails_by_name() -> None:
    settings = faster(FAST, most_bytes_out=100_000)
    async with open_office({"a": Echo("a")}, settings) as grpc_server:
        answers = await gather(grpc_server, request("a", "r1", b"x" * 100_001))
        assert answers == [Answer("a", "r1", failure="too-large")]
        [answer] = await gather(grpc_server, request("a", "r2", b"x" * 50_000))
        assert answer.failure is None


async def test_an_answer_above_the_limit_fails_by_name_and_keeps_the_stream() -> None:
    settings = faster(FAST, most_bytes=10_000)
    async with open_office({"a": Echo("a")}, settings) as grpc_server:
        answers = await gather(grpc_server, request("a", "r1", b"x" * 20_000))
        assert answers == [Answer("a", "r1", failure="too-large")]
        assert grpc_server.stats.reconnects == 0


@pytest.mark.usefixtures("used_up_for_good")
async def test_an_address_that_is_not_listened_to_gets_no_health_either() -> None:
    settings = faster(FAST, refusals_per_s=1, refusals_burst=1)
    async with open_grpc_server(House(), settings) as (_, port):
        async with intruder_at(port) as intruder:
            intruder.knock(b"\xff")
            assert (await intruder.status())[0] == "INVALID_ARGUMENT"
        with pytest.raises(grpc.aio.AioRpcError, match="too-fast"):
            await health(port)


async def test_with_many_nodes_each_is_told_to_beat_more_seldom() -> None:
    house = House()
    settings = faster(FAST, heartbeat_s=0.5, beats_per_s=1)
    async with (
        open_grpc_server(house, settings) as (_, port),
        AsyncExitStack() as stack,
    ):
        told = []
        for name in ("a", "b", "c"):
            node = await stack.enter_async_context(intruder_at(port))
            await node.authenticate(house, house.identity(name))
            assert (await node.hear()).WhichOneof("kind") == "welcome"
            await node.say(heartbeat={"number": 1})
            told.append((await node.hear()).heartbeat.next_ms)
        assert told == [1000, 2000, 3000]


async def test_an_unknown_method_is_unimplemented() -> None:
    async with open_grpc_server(House()) as (_, port), channel_to(port) as channel:
        call = channel.unary_unary("/wallflower.v1.NodeService/Nothing", None, None)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_port_in_use_is_one_clear_error() -> None:
    house = House()
    async with open_grpc_server(house) as (_, port):
        second = GrpcServer(house.admission(), SERVER)
        with pytest.raises(InputError, match="port is free"):
            await second.open(f"127.0.0.1:{port}")


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_nodes_stop_when_the_run_is_over() -> None:
    house = House()
    grpc_server = GrpcServer(house.admission(), SERVER, FAST)
    port = await grpc_server.open("127.0.0.1:0")
    async with connect_nodes(house, port, {"a": Echo(), "b": Echo()}) as tasks:
        await grpc_server.wait_for(["a", "b"], timeout_s=60)
        await grpc_server.close("cancelled")
        async with asyncio.timeout(60):
            assert [await task for task in tasks.values()] == ["cancelled"] * 2
    assert grpc_server.stats.ended["run-over"] == 2


async def test_closing_fails_what_was_asked_and_frees_the_port() -> None:
    before = asyncio.all_tasks()
    house, held = House(), Echo("held", held=True)
    grpc_server = GrpcServer(house.admission(), SERVER, FAST)
    port = await grpc_server.open("127.0.0.1:0")
    async with connect_nodes(house, port, {"held": held}):
        await grpc_server.wait_for(["held"], timeout_s=60)
        asking = asyncio.create_task(gather(grpc_server, request("held")))
        await held.started.wait()
        assert listening(port)
        await grpc_server.close("cancelled")
        assert await asking == [Answer("held", "r1", failure="server-closed")]
    assert asyncio.all_tasks() == before
    assert not listening(port)


async def test_a_cancelled_server_leaves_no_task_and_no_open_port() -> None:
    before = asyncio.all_tasks()
    house, held = House(), Echo("held", held=True)
    ports: list[int] = []

    async def serve() -> None:
        async with open_grpc_server(house, run_over="cancelled") as (grpc_server, port):
            ports.append(port)
            async with connect_nodes(house, port, {"held": held}):
                await grpc_server.wait_for(["held"], timeout_s=60)
                await gather(grpc_server, request("held"))

    serving = asyncio.create_task(serve())
    await held.started.wait()
    serving.cancel()
    await asyncio.wait([serving])
    assert serving.cancelled()
    assert asyncio.all_tasks() == before
    assert not listening(ports[0])


async def test_a_server_that_restarts_gets_its_nodes_back() -> None:
    house, echo = House(), Echo("a")
    first = GrpcServer(house.admission(), SERVER, FAST)
    port = await first.open("127.0.0.1:0")
    async with connect_nodes(house, port, {"a": echo}):
        await first.wait_for(["a"], timeout_s=60)
        one = await gather(first, request("a"))
        await first.close()
        second = GrpcServer(house.admission(), SERVER, FAST)
        await second.open(f"127.0.0.1:{port}")
        assert not await second.wait_for(["a"], timeout_s=60)
        assert await gather(second, request("a")) == one
        await second.close("finished")
    assert echo.calls == 1


async def test_a_server_that_cannot_be_reached_is_one_clear_error() -> None:
    house = House()
    port = free_port()
    impatient = replace(QUICK, patience_s=0.2)
    with pytest.raises(UnavailableError, match="not reached"):
        await connect_node(
            house.invitation(port, "a"), house.identity("a"), Echo(), settings=impatient
        )


async def test_a_node_knows_a_server_by_its_fingerprint() -> None:
    house = House()
    async with open_grpc_server(house) as (grpc_server, port):
        wrong = replace(house.invitation(port, "a"), server_fingerprint=b"\0" * 32)
        with pytest.raises(AuthenticationError, match="another TLS certificate"):
            await connect_node(wrong, house.identity("a"), Echo(), settings=QUICK)
        # Pinned: the gRPC server's own certificate is the only root the node believes.
        pinned = replace(
            house.invitation(port, "a"),
            root_certificate=house.server.certificate,
            server_fingerprint=fingerprint(house.server.certificate),
        )
        task = asyncio.create_task(
            connect_node(pinned, house.identity("a"), Echo(), settings=QUICK)
        )
        assert not await grpc_server.wait_for(["a"], timeout_s=60)
        task.cancel()
        await asyncio.wait([task])
