"""What strangers can do to the live page: requests that never end, endless headers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvicorn

from tests.support.half_requests import BEGINNING, half_requests
from tests.support.siege import most_memory
from tests.wallflower.test_watch_command import address_in, finished, started
from tests.wallflower.watching.test_serve import pair
from wallflower.watching import connections
from wallflower.watching.connections import ConnectionLimiter, OpenConnection

__all__ = ["finished"]  # a fixture

HALF = 220
MOST_BYTES = 20 * 2**20


@pytest.fixture
def page(finished: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    with started("watch", finished, "--port", "0") as process:
        assert process.stdout is not None
        port = urlsplit(address_in(process.stdout.readline())).port
        assert port is not None
        yield process, port


async def status(port: int, tls: ssl.SSLContext | None = None) -> bytes:
    """Ask for the page; give the first line of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(BEGINNING + b"Connection: close\r\n\r\n")
    line = await reader.readline()
    writer.transport.abort()
    return line


async def test_half_requests_shut_nobody_out(
    page: tuple[subprocess.Popen[str], int],
) -> None:
    _, port = page
    async with half_requests(port, HALF):
        for _ in range(5):
            assert b" 307 " in await status(port)


async def test_endless_headers_are_not_kept(
    page: tuple[subprocess.Popen[str], int],
) -> None:
    process, port = page
    assert b" 307 " in await status(port)
    before = await most_memory(process.pid, 0.5)
    async with half_requests(port, 20, header_bytes=24 * 2**20):
        held = await most_memory(process.pid, 1.0) - before
        assert held < MOST_BYTES, f"{held / 2**20:.0f} MiB"
        assert b" 307 " in await status(port)


async def test_half_handshakes_shut_nobody_out(finished: Path, tmp_path: Path) -> None:
    certificate, key = pair(tmp_path, "127.0.0.1", "localhost")
    files = ("--certificate", certificate, "--private-key", key)
    token = ("--token-file", tmp_path / "token")
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    with started("watch", finished, "--port", "0", *files, *token) as process:
        assert process.stdout is not None
        port = urlsplit(address_in(process.stdout.readline())).port
        assert port is not None
        async with half_requests(port, HALF):
            assert b" 401 " in await status(port, anybody)


@pytest.mark.parametrize(
    "said",
    [
        BEGINNING,
        BEGINNING + b"\r\nGET / HTTP/1.1\r\n",
        BEGINNING + b"Content-Length: 9\r\n\r\n12345",
    ],
    ids=["half a request", "one and a half", "half a body"],
)
async def test_who_does_not_ask_in_time_is_hung_up_on(
    said: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Bytes that trickle in buy no time."""
    monkeypatch.setattr(connections, "_ASKING_S", 0.2)
    doorway, port, serving = await serve_anything()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    trickle = asyncio.create_task(drip(writer))
    async with asyncio.timeout(60):
        await reader.read()
    trickle.cancel()
    await asyncio.wait([trickle])
    writer.transport.abort()
    serving.cancel()
    await asyncio.wait([serving])
    assert len(doorway) == 0


async def drip(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x")
        await asyncio.sleep(0.02)


async def serve_anything() -> tuple[ConnectionLimiter, int, asyncio.Task[None]]:
    """Serve an application that answers everything at once, with our connections."""

    async def app(scope: object, receive: object, send: object) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": []}
        await send(start)  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b""})  # type: ignore[operator]

    doorway = ConnectionLimiter()
    opened = connections.Listener(socket.create_server(("127.0.0.1", 0)), doorway)
    config = uvicorn.Config(
        app,
        http=connections.protocol_for(doorway),
        log_config=None,
        lifespan="off",
        ws="none",
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[opened])

    async def until_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for each in server.servers:
                each.close()
            opened.close()

    port = int(opened.getsockname()[1])
    return doorway, port, asyncio.create_task(until_cancelled())


class Room:
    """A doorway with guests whose other ends are kept."""

    def __init__(self, most: int) -> None:
        self.doorway = ConnectionLimiter(most)
        self.others: list[socket.socket] = []

    def knock(self, address: str) -> tuple[OpenConnection, bool]:
        here, there = socket.socketpair()
        self.others.append(there)
        peer = (address, len(self.others))
        guest = OpenConnection(self.doorway, here.detach(), peer)
        return guest, self.doorway.let_in(guest)

    def close(self, *guests: OpenConnection) -> None:
        for end in (*guests, *self.others):
            end.close()


def gone(guest: OpenConnection) -> bool:
    try:
        return guest.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


def test_who_waits_longest_makes_room_and_who_is_answered_stays() -> None:
    room = Room(4)
    guests = [room.knock(f"10.0.{number}.1")[0] for number in range(4)]
    room.doorway.set_waiting(guests[0].peer, waits=False)
    late, let_in = room.knock("10.0.9.1")
    assert let_in
    assert [gone(guest) for guest in guests] == [False, True, False, False]
    assert len(room.doorway) == 4
    for guest in (*guests[2:], late):
        room.doorway.set_waiting(guest.peer, waits=False)
    refused, let_in = room.knock("10.0.9.2")
    assert not let_in
    room.close(*guests, late, refused)
    assert len(room.doorway) == 0


def test_one_network_makes_room_for_itself() -> None:
    room = Room(8)
    other, _ = room.knock("10.0.1.1")
    near = [room.knock(f"10.0.2.{number}")[0] for number in range(1, 9)]
    assert not gone(other)
    assert [gone(guest) for guest in near] == [True] * 4 + [False] * 4
    room.close(other, *near)
