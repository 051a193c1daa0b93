"""Strangers who lay siege to a gRPC server and hold as much of its memory as they can.

Each keeps a TLS connection from a network of its own (an address of 127.0.0.0/8), with
as many calls as the server allows, each with a message that never ends, in pieces that
keep alive much more than themselves. A call that is refused is begun again, and a
connection that is closed is made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import psutil

from tests.support.hostile_http2 import HostileConnection, hostile_connection

# Small enough to be many, too large to be copied; the rest of 8 KiB is ignored.
_PIECE, _BESIDE = 24, 8_100
_PAUSE_S = 0.05


class Siege:
    """What strangers do to one server; `calls` counts the calls they began."""

    def __init__(self, port: int, paths: Sequence[str], message_bytes: int) -> None:
        self.calls = 0
        self.ended: Counter[str] = Counter()
        self._port = port
        self._paths = paths
        self._message_bytes = message_bytes

    async def besiege(self, number: int) -> None:
        """Be one stranger, until cancelled."""
        source = f"127.0.{number + 1}.1"
        while True:
            with contextlib.suppress(OSError, ssl.SSLError):
                async with hostile_connection(self._port, source) as connection:
                    await self._hold(connection, number)
            await asyncio.sleep(_PAUSE_S)

    async def _hold(self, connection: HostileConnection, number: int) -> None:
        await connection.settled()
        async with asyncio.TaskGroup() as group:
            for place in range(min(connection.most_streams, 100)):
                path = self._paths[(number + place) % len(self._paths)]
                # Every other call in large pieces: as many bytes as the windows allow.
                fine = (number + place) % 2 == 0
                group.create_task(self._keep(connection, path, fine=fine))

    async def _keep(
        self, connection: HostileConnection, path: str, *, fine: bool
    ) -> None:
        while not connection.closed.is_set():
            stream = await connection.begin(path)
            self.calls += 1
            pieces = (_PIECE, _BESIDE) if fine else (16_384, 0)
            await connection.hold(stream, self._message_bytes, *pieces)
            await connection.over(stream)
            self.ended[connection.ended.pop(stream, "connection")] += 1
            await asyncio.sleep(_PAUSE_S)


@contextlib.asynccontextmanager
async def besieged(
    port: int, paths: Sequence[str], connections: int, message_bytes: int = 1 << 21
) -> AsyncIterator[Siege]:
    """Run so many strangers against a server while inside.

    Their messages are as long as the shuffler takes them: gRPC refuses longer ones.
    """
    siege = Siege(port, paths, message_bytes)
    tasks = [asyncio.create_task(siege.besiege(each)) for each in range(connections)]
    try:
        yield siege
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def most_memory(pid: int, seconds: float) -> int:
    """Return the most memory that a process has within so many seconds."""
    process, most = psutil.Process(pid), 0
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        most = max(most, process.memory_info().rss)
        await asyncio.sleep(0.1)
    return most
