"""Requests to the live page that are begun and not finished."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

BEGINNING = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
_MORE = b"X-More: " + b"x" * 65_000


async def half_request(
    port: int, source: str = "127.0.0.1", header_bytes: int = 0
) -> asyncio.StreamWriter:
    """Begin a request, with a header of so many bytes that goes on and on."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    writer.write(BEGINNING)
    with contextlib.suppress(OSError, TimeoutError):
        for _ in range(0, header_bytes, len(_MORE)):
            writer.write(_MORE)
            async with asyncio.timeout(5):
                await writer.drain()
    return writer


@contextlib.asynccontextmanager
async def half_requests(
    port: int, count: int, header_bytes: int = 0
) -> AsyncIterator[None]:
    """Hold so many of them open while inside."""
    begun = await asyncio.gather(
        *(half_request(port, header_bytes=header_bytes) for _ in range(count))
    )
    try:
        yield
    finally:
        for writer in begun:
            writer.transport.abort()


async def besiege_page(port: int, connections: int) -> None:
    """Hold so many endless headers, each of a network of its own, until cancelled."""

    async def besiege(number: int) -> None:
        while True:
            with contextlib.suppress(OSError):
                writer = await half_request(port, f"127.0.{number + 1}.1", 24 * 2**20)
                writer.transport.abort()
            await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as group:
        for number in range(connections):
            group.create_task(besiege(number))
