"""A transport that somebody might add: nodes dial a Unix socket and stay.

All that a transport must do is carry a body to a node and its answer back: `Remote` is
a `NodeHandler` at the server, `connect_node` calls the real one at the node. Asking
once, joining, deadlines and abandoning are `MemoryTransport`'s. A frame is its length,
the number of the question, whether it holds (else: give up, or failed), and the body.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from wallflower.protocol.messages.port import NodeHandler, NodeId

_HEAD = struct.Struct(">IQ?")


def _frame(number: int, good: bool, body: bytes = b"") -> bytes:
    return _HEAD.pack(len(body), number, good) + body


async def _read(reader: asyncio.StreamReader) -> tuple[int, bool, bytes]:
    length, number, good = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    return number, good, await reader.readexactly(length)


class Remote:
    """A node at the other end of a connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._numbers = itertools.count(1)

    async def handle(self, body: bytes) -> bytes:
        """Carry a request there and its answer back."""
        number = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._writer.write(_frame(number, True, body))
        try:
            return await answer
        except asyncio.CancelledError:
            self._writer.write(_frame(number, False))
            raise
        finally:
            del self._waiting[number]

    async def listen(self, reader: asyncio.StreamReader) -> None:
        """Hand out answers until the node is gone."""
        try:
            while True:
                number, good, body = await _read(reader)
                answer = self._waiting.get(number)
                if answer is None or answer.done():
                    continue  # nobody waits for it any more
                if good:
                    answer.set_result(body)
                else:
                    answer.set_exception(ConnectionError("the node failed"))
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ConnectionError("the node is gone"))


class Here(dict[NodeId, NodeHandler]):
    """The nodes that are connected now, by the name they gave first."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()

    async def become(self, count: int) -> None:
        """Wait until so many are here."""
        while len(self) != count:
            self.changed.clear()
            await self.changed.wait()


@asynccontextmanager
async def listening(path: Path) -> AsyncIterator[Here]:
    """Accept nodes; whoever may write to the socket's folder may be one."""
    nodes = Here()
    open_now: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def say_hello(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now[task] = writer
        try:
            name = (await _read(reader))[2].decode()
            if name in nodes:
                return  # somebody else's name
            nodes[name] = remote = Remote(writer)
            nodes.changed.set()
            try:
                await remote.listen(reader)
            finally:
                del nodes[name]
                nodes.changed.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            del open_now[task]
            writer.close()

    server = await asyncio.start_unix_server(say_hello, path)
    try:
        yield nodes
    finally:
        server.close()
        for writer in open_now.values():
            writer.close()
        if open_now:
            await asyncio.wait(list(open_now))


async def connect_node(path: Path, name: NodeId, node: NodeHandler) -> None:
    """Answer the server's requests until it closes the connection."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(_frame(0, True, name.encode()))
    at_work: dict[int, asyncio.Task[None]] = {}

    async def answer(number: int, body: bytes) -> None:
        try:
            writer.write(_frame(number, True, await node.handle(body)))
        except Exception:
            # Its text may quote what the node was given: only the fact travels.
            writer.write(_frame(number, False))
        finally:
            del at_work[number]

    try:
        while True:
            number, asked, body = await _read(reader)
            if asked:
                at_work[number] = asyncio.create_task(answer(number, body))
            elif number in at_work:
                at_work[number].cancel()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the run is over
    finally:
        writer.close()
        for task in list(at_work.values()):
            task.cancel()
        if at_work:
            await asyncio.wait(list(at_work.values()))
