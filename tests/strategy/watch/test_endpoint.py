from __future__ import annotations

import asyncio
import socket

import pytest

from wallflower.protocol.errors import InputError, UnavailableError
from wallflower.strategy.watch.endpoint import health_endpoint, respond

METRICS = b"wallflower_grpc_nodes_connected 3.0\n"


async def ask(port: int, text: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    await writer.drain()
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_the_endpoint_answers_probes_and_scrapers() -> None:
    async with health_endpoint("127.0.0.1:0", lambda: METRICS, lambda: None) as port:
        live = await ask(port, b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert live.startswith(b"HTTP/1.1 200 OK")
        scraped = await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert scraped.endswith(METRICS)


async def test_not_ready_is_503_with_the_reason() -> None:
    async with health_endpoint(
        "127.0.0.1:0", lambda: METRICS, lambda: "journal cannot be written"
    ) as port:
        answer = await ask(port, b"GET /health/ready HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"journal cannot be written" in answer


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("POST /metrics HTTP/1.1", 405),
        ("GET /v1/control/list-runs HTTP/1.1", 404),
        ("GET", 400),
        ("", 400),
        ("GET /health/ready?now HTTP/1.1", 200),
    ],
)
def test_other_requests_are_refused(line: str, status: int) -> None:
    assert respond(line, lambda: METRICS, lambda: None)[0] == status


async def test_endless_headers_end_the_connection_and_nothing_else() -> None:
    async with health_endpoint("127.0.0.1:0", lambda: METRICS, lambda: None) as port:
        assert await ask(port, b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 50_000) == b""
        answer = await ask(port, b"GET /health/live HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")


async def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UnavailableError, match=address):
            async with health_endpoint(address, lambda: METRICS, lambda: None):
                pass


@pytest.mark.parametrize("address", ["9464x", "host:", "host:http", "host:65536"])
async def test_an_address_that_is_none_is_bad_input(address: str) -> None:
    with pytest.raises(InputError, match="HOST:PORT"):
        async with health_endpoint(address, lambda: METRICS, lambda: None):
            pass


async def test_the_port_is_free_again_afterwards() -> None:
    async with health_endpoint("127.0.0.1:0", lambda: METRICS, lambda: None) as port:
        pass
    with pytest.raises(ConnectionRefusedError):
        await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")
