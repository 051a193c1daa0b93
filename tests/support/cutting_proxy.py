"""A TCP proxy on loopback that cuts connections when told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CuttingProxy:
    """Forwards bytes to `target_port` until `cut`."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0
        self.refusing = False

    def cut(self) -> None:
        """Break every connection, without goodbye."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        self.connections += 1
        there_reader, there = await asyncio.open_connection(
            "127.0.0.1", self._target_port
        )
        pair = {writer, there}
        self._writers |= pair
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, there, writer))
                group.create_task(self._pump(there_reader, writer, there))
        finally:
            self._writers -= pair

    @staticmethod
    async def _pump(
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        other: asyncio.StreamWriter,
    ) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()
            other.transport.abort()


@asynccontextmanager
async def cutting_proxy(target_port: int) -> AsyncIterator[tuple[CuttingProxy, int]]:
    proxy = CuttingProxy(target_port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        yield proxy, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        proxy.cut()
        await server.wait_closed()
