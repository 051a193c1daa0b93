"""Polls over HTTP: the Connect protocol for honest visitors, limits for the others."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from tests.support.seat_server import SeatServer
from tests.wallflower.serve.conftest import SHOP, OpenWires, Wires
from wallflower.protocol.visitors import LARGEST_POLL
from wallflower.protocol.wire.visitors_pb2 import VisitorReply
from wallflower.serve import http_wire
from wallflower.serve.gate import CallerGate, VisitorLimits
from wallflower.serve.http_wire import POLL_PATH, SCRIPT_PATH, HttpWire
from wallflower.serve.polls import Polls, VisitorMetrics

PROTO = {"content-type": "application/proto"}


# None of them is `SHOP`, however alike they look.
LOOK_ALIKES = (
    "null",
    "",
    "*",
    "http://shop.example",
    "https://shop.example:8443",
    "https://shop.example.thief.example",
    "https://thief-shop.example",
    "https://shop.example/",
    "https://SHOP.example",
    "https://shop.example, https://thief.example",
    "https://shop.example\t.thief.example",
)


async def poll(
    wires: Wires, body: bytes = b"", headers: dict[str, str] | None = None
) -> httpx.Response:
    async with wires.client() as client:
        return await client.post(
            POLL_PATH, content=body, headers={**PROTO, **(headers or {})}
        )


def code_of(response: httpx.Response) -> tuple[int, str, str]:
    said = response.json()
    return response.status_code, said["code"], said["message"]


async def test_a_visitor_arrives_and_answers_with_plain_posts(
    open_wires: OpenWires,
) -> None:
    async with open_wires() as wires:
        person = wires.server.run.person()
        response = await poll(wires, person.arriving().SerializeToString())
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/proto"
        seat = VisitorReply.FromString(response.content).seat
        body = wires.server.run.answer(person, seat.request)
        response = await poll(wires, person.answering(body).SerializeToString())
        assert VisitorReply.FromString(response.content).WhichOneof("kind") == "taken"


async def test_a_refusal_of_the_handler_is_a_reply_and_not_an_error(
    open_wires: OpenWires,
) -> None:
    async with open_wires() as wires:
        response = await poll(wires, b"\xff\xff")
        assert response.status_code == 200
        refusal = VisitorReply.FromString(response.content).refused
        assert refusal.code == "malformed-message"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (
            {"content-type": "application/json"},
            (415, "unimplemented", "content-type-not-supported"),
        ),
        (
            {"content-type": "text/plain"},
            (415, "unimplemented", "content-type-not-supported"),
        ),
        (
            {"content-encoding": "gzip"},
            (415, "unimplemented", "compression-not-supported"),
        ),
        (
            {"connect-protocol-version": "2"},
            (400, "invalid_argument", "connect-version-not-supported"),
        ),
        (
            {"origin": "https://thief.example"},
            (403, "permission_denied", "origin-not-allowed"),
        ),
        *(
            ({"origin": origin}, (403, "permission_denied", "origin-not-allowed"))
            for origin in LOOK_ALIKES
        ),
    ],
)
async def test_what_is_no_poll_gets_a_connect_error_and_is_not_read(
    open_wires: OpenWires, headers: dict[str, str], expected: tuple[int, str, str]
) -> None:
    async with open_wires() as wires:
        assert code_of(await poll(wires, b"x", headers)) == expected


async def test_only_named_websites_may_call_from_their_pages(
    open_wires: OpenWires,
) -> None:
    asked = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type,connect-protocol-version",
    }
    async with open_wires() as wires, wires.client() as client:
        mine = await client.options(POLL_PATH, headers={"origin": SHOP, **asked})
        assert mine.status_code == 200
        assert mine.headers["access-control-allow-origin"] == SHOP
        for thief in ("https://thief.example", *LOOK_ALIKES):
            headers = {"origin": thief, **asked}
            theirs = await client.options(POLL_PATH, headers=headers)
            assert "access-control-allow-origin" not in theirs.headers
        reply = await client.post(POLL_PATH, headers={**PROTO, "origin": SHOP})
        assert reply.headers["access-control-allow-origin"] == SHOP


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", POLL_PATH, 405), ("POST", "/", 404), ("GET", "/healthz", 200)],
)
async def test_there_is_one_path_for_polls(
    open_wires: OpenWires, method: str, path: str, status: int
) -> None:
    async with open_wires() as wires, wires.client() as client:
        response = await client.request(method, path)
        assert response.status_code == status


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    open_wires: OpenWires,
) -> None:
    async with open_wires() as wires:
        response = await poll(wires, bytes(LARGEST_POLL + 1))
        assert code_of(response) == (429, "resource_exhausted", "too-large")
        reader, writer = await wires.connect()
        writer.write(
            f"POST {POLL_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
            "Content-Type: application/proto\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 429 ")
        writer.transport.abort()


async def test_a_body_without_a_length_ends_where_a_poll_may(
    open_wires: OpenWires,
) -> None:
    chunk = b"1000\r\n" + bytes(0x1000) + b"\r\n"
    async with open_wires() as wires:
        reader, writer = await wires.connect()
        writer.write(
            f"POST {POLL_PATH} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
            "Content-Type: application/proto\r\n\r\n".encode()
        )
        # A chunk beyond a poll, and no end: the connection has room for headers, too.
        writer.write(chunk * (LARGEST_POLL // 0x1000 + 1))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 429 ")
        with contextlib.suppress(ConnectionError):
            while True:  # until the server hangs up
                writer.write(chunk)
                await writer.drain()
        writer.transport.abort()


async def test_headers_without_end_cost_the_connection(open_wires: OpenWires) -> None:
    async with open_wires() as wires:
        for flood in (b"X-More: " + bytes(64 * 1024), b"X-A: b\r\n" * 2_000 + b"\r\n"):
            reader, writer = await wires.connect()
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\n" + flood)
            assert (await read_to_end(reader)).split()[1:2] in ([], [b"400"])
            writer.transport.abort()


@pytest.mark.parametrize(
    "beginning",
    [
        pytest.param(b"", id="silence"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: x\r\n", id="half headers"),
        pytest.param(
            f"POST {POLL_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"
            "Content-Type: application/proto\r\n\r\nhalf".encode(),
            id="half a body",
        ),
    ],
)
async def test_a_request_that_does_not_end_costs_the_connection(
    open_wires: OpenWires, beginning: bytes
) -> None:
    async with open_wires(VisitorLimits(request_s=0.05)) as wires:
        reader, writer = await wires.connect()
        writer.write(beginning)
        said = await read_to_end(reader)
        assert said == b"" or b"too-slow" in said
        writer.transport.abort()


async def test_one_network_cannot_take_all_connections(open_wires: OpenWires) -> None:
    limits = VisitorLimits(most_connections=32, request_s=3600)
    async with open_wires(limits) as wires:
        flood = [await wires.connect("127.9.9.1") for _ in range(32)]
        async with asyncio.timeout(60):
            await read_to_end(flood[-1][0])  # the last one is dropped
        assert wires.gate.connections < 32
        person = wires.server.run.person()
        response = await poll(wires, person.arriving().SerializeToString())
        assert VisitorReply.FromString(response.content).WhichOneof("kind") == "seat"
        for _, writer in flood:
            writer.transport.abort()


async def test_whoever_sends_rubbish_is_soon_not_listened_to(
    open_wires: OpenWires,
) -> None:
    limits = VisitorLimits(refusals_burst=5)
    async with open_wires(limits) as wires, wires.client() as client:
        seen = [
            (await client.post(POLL_PATH, content=b"\xff", headers=PROTO)).status_code
            for _ in range(7)
        ]
        assert seen == [200] * 5 + [429] * 2


async def test_a_proxys_word_about_the_caller_counts_and_nobody_elses(
    open_wires: OpenWires,
) -> None:
    """A flood from one address is not held against others behind the same proxy."""
    limits = VisitorLimits(refusals_burst=5)
    for proxies, others in ((("127.0.0.1",), 200), ((), 429)):
        async with open_wires(limits, proxies) as wires, wires.client() as client:

            async def call(forwarded: str, client: httpx.AsyncClient = client) -> int:
                headers = {**PROTO, "x-forwarded-for": forwarded}
                reply = await client.post(POLL_PATH, content=b"\xff", headers=headers)
                return reply.status_code

            flood = [await call("1.2.3.4, 198.51.100.7") for _ in range(6)]
            assert flood == [200] * 5 + [429]
            assert await call("1.2.3.4, 203.0.113.9") == others


async def test_polls_beyond_those_that_may_wait_are_told_to_come_again(
    open_wires: OpenWires,
) -> None:
    async with open_wires(VisitorLimits(most_waiting=1)) as wires:
        people = [wires.server.run.person() for _ in range(20)]
        replies = await asyncio.gather(
            *(poll(wires, person.arriving().SerializeToString()) for person in people)
        )
        for reply in replies:
            if reply.status_code != 200:
                assert code_of(reply) == (503, "unavailable", "busy")
                assert reply.headers["retry-after"] == "1"
        served = sum(reply.status_code == 200 for reply in replies)
        assert served >= 1


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def test_the_script_is_the_same_bytes_for_every_website(
    open_wires: OpenWires, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "wallflower.js"
    monkeypatch.setattr(http_wire, "_SCRIPT", script)
    async with open_wires() as wires, wires.client(headers={"origin": SHOP}) as client:
        missing = await client.get(SCRIPT_PATH)
        script.write_text("export const join = 1;")
        found = await client.get(SCRIPT_PATH)
        tag = found.headers["etag"]
        again = await client.get(SCRIPT_PATH, headers={"if-none-match": tag})
    assert missing.status_code == 404
    assert found.text == script.read_text()
    assert found.headers["content-type"].startswith("text/javascript")
    assert found.headers["access-control-allow-origin"] == SHOP
    assert (again.status_code, again.content) == (304, b"")


async def test_whoever_asks_for_the_script_too_often_is_not_listened_to(
    open_wires: OpenWires,
) -> None:
    """It is large, and a request for it is small."""
    limits = VisitorLimits(polls_burst=3)
    async with open_wires(limits) as wires, wires.client() as client:
        seen = [(await client.get(SCRIPT_PATH)).status_code for _ in range(5)]
        assert seen[3:] == [429, 429]
        assert 429 not in seen[:3]
        assert (await client.get("/healthz")).status_code == 200


async def test_however_many_ask_whether_it_is_ready_the_store_is_asked_once(
    seat_server: SeatServer,
) -> None:
    asked, may_answer = 0, asyncio.Event()

    async def ready() -> bool:
        nonlocal asked
        asked += 1
        await may_answer.wait()
        return True

    limits = VisitorLimits()
    gate = CallerGate(limits, (), lambda: 0.0)
    polls = Polls(seat_server.worker(), VisitorMetrics(CollectorRegistry()), 1)
    app = httpx.ASGITransport(HttpWire(polls, gate, [], ready).app())
    async with httpx.AsyncClient(transport=app, base_url="http://worker") as client:
        flood = [asyncio.create_task(client.get("/readyz")) for _ in range(20)]
        gone = asyncio.create_task(client.get("/readyz"))
        for _ in range(200):  # steps of the loop: all of them have asked
            await asyncio.sleep(0)
        gone.cancel()  # one who hangs up takes nobody's answer along
        may_answer.set()
        assert {reply.status_code for reply in await asyncio.gather(*flood)} == {200}
        assert asked == 1
        assert (await client.get("/readyz")).status_code == 200
        assert asked == 2
