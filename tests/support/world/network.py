"""The network under gRPC: `grpc.aio` servers and channels without sockets.

Every node has one link to the server. A stream's messages arrive in order, late by the
link's latency; a link that is cut holds them until it is mended, as TCP does. A stream
can be reset for both ends or for one only, and then the other end learns of it from
missing heartbeats alone. gRPC server and client are the real ones and see the parts
of `grpc.aio` that they use.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any
from unittest import mock

import grpc
import grpc.aio

from tests.support.world.endpoints import (
    OK,
    RESET,
    Channel,
    End,
    Server,
    ServerContext,
)
from tests.support.world.processes import PROCESS, Process

_LATENCY_S = (0.001, 0.04)
_APART_S = 1e-6
_CONNECT = "/wallflower.v1.NodeService/Connect"
_REFUSED: End = (grpc.StatusCode.UNAVAILABLE, "connection refused")


class Network:
    """All links of a world.

    Parameters
    ----------
    source : random.Random
        Draws latencies.
    """

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._where = copy_context()  # belongs to no process
        self._links: dict[str, Link] = {}
        self._servers: dict[str, Server] = {}
        self.streams: list[Stream] = []

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Write this network in the place of gRPC's."""
        with (
            mock.patch.object(grpc.aio, "server", self._server),
            mock.patch.object(grpc.aio, "secure_channel", self._channel),
        ):
            yield

    def link(self, name: str) -> Link:
        """Return a node's link."""
        return self._links.setdefault(name, Link(self))

    def reset(self, name: str, *, node_hears: bool = True, server: bool = True) -> None:
        """Break the streams of a node; each end hears of it, or not."""
        for stream in self._of(name):
            if node_hears:
                stream.end_call(RESET)
            if server:
                stream.end_handler()

    def process_died(self, process: Process, *, power: bool) -> None:
        """Close a dead process's sockets; with its power gone nobody is told."""
        for address in [a for a, s in self._servers.items() if s.process is process]:
            del self._servers[address]
        for stream in list(self.streams):
            if stream.client is process and not power:
                self.link(process.name).carry(stream.end_handler)
            elif stream.server is process:
                self.link(stream.client.name).carry(stream.end_call, RESET)

    def listen(self, address: str, server: Server) -> None:
        """Register a server."""
        self._servers[address] = server

    def close(self, server: Server) -> None:
        """Remove a server, and end its streams."""
        for address in [a for a, s in self._servers.items() if s is server]:
            del self._servers[address]
        for stream in [s for s in self.streams if s.server is server.process]:
            stream.end_handler()
            self.link(stream.client.name).carry(stream.end_call, RESET)

    def server_at(self, address: str) -> Server | None:
        """Find who listens."""
        return self._servers.get(address)

    def call(
        self, address: str, method: str, metadata: Sequence[tuple[str, str]]
    ) -> Stream:
        """Begin a call of the running process."""
        process = PROCESS.get()
        assert process is not None
        return Stream(self, process, address, method, metadata)

    def at(self, when: float, callback: Callable[..., object], *args: Any) -> None:
        """Schedule an event that no process causes."""
        asyncio.get_running_loop().call_at(when, callback, *args, context=self._where)

    def latency(self) -> float:
        """Draw how long a message takes."""
        return self._source.uniform(*_LATENCY_S)

    def _of(self, name: str) -> list[Stream]:
        return [stream for stream in self.streams if stream.client.name == name]

    def _server(self, **_: object) -> Server:
        return Server(self)

    def _channel(self, address: str, *_: object) -> Channel:
        return Channel(self, address)


class Link:
    """The line between one node and the server, both ways in order."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._cuts = 0
        self._held: list[tuple[Callable[..., object], Any, bool]] = []
        self._latest = 0.0

    @property
    def is_cut(self) -> bool:
        """Whether nothing gets through at the moment."""
        return self._cuts > 0

    def carry(
        self, arrive: Callable[..., object], *args: Any, apart: bool = False
    ) -> None:
        """Deliver something later; `apart`: at a moment of its own."""
        if self._cuts:
            self._held.append((arrive, args, apart))
            return
        now = asyncio.get_running_loop().time()
        earliest = self._latest + _APART_S if apart else self._latest
        self._latest = max(earliest, now + self._network.latency())
        self._network.at(self._latest, arrive, *args)

    def cut(self) -> None:
        """Hold everything from now on."""
        self._cuts += 1

    def mend(self) -> None:
        """Release what was held, once every cut is mended."""
        self._cuts -= 1
        if self._cuts == 0:
            held, self._held = self._held, []
            for arrive, args, apart in held:
                self.carry(arrive, *args, apart=apart)


class Stream:
    """One call from a node to the server: two queues and how it ends."""

    def __init__(
        self,
        network: Network,
        client: Process,
        address: str,
        method: str,
        metadata: Sequence[tuple[str, str]],
    ) -> None:
        self.network = network
        self.client = client
        self.method = method
        self.metadata = metadata
        self.server: Process | None = None
        self.to_server = _Queue()
        self.to_client = _Queue()
        self._link = network.link(client.name)
        self._handler: asyncio.Task[None] | None = None
        self._cancelled = False
        # Of two things at the same moment the loop may take either first, which a
        # gRPC server's stream bears; a call of one message must not end before it came.
        self._carry = functools.partial(self._link.carry, apart=method != _CONNECT)
        network.streams.append(self)
        self._carry(self._connect, address)

    def up(self, message: bytes) -> None:
        """Send to the server."""
        self._carry(self.to_server.put, message)

    def last(self) -> None:
        """Report to the server that no more is sent."""
        self._carry(self.to_server.end, OK)

    def down(self, message: bytes) -> None:
        """Send to the node."""
        self._carry(self.to_client.put, message)

    def hang_up(self) -> None:
        """End it from the node's side."""
        self.to_client.end((grpc.StatusCode.CANCELLED, "cancelled by the node"))
        self._carry(self.end_handler)

    def end_call(self, end: End) -> None:
        """End the stream at the node."""
        self.to_client.end(end)
        self._forget()

    def end_handler(self) -> None:
        """Report to the server that the node is gone: gRPC cancels its handler."""
        self._cancelled = True
        if self._handler is not None:
            self._handler.cancel()
        self._forget()

    def _forget(self) -> None:
        done = self._handler is None or self._handler.done()
        if done and self.to_client.over is not None and self in self.network.streams:
            self.network.streams.remove(self)

    def _connect(self, address: str) -> None:
        server = self.network.server_at(address)
        if server is None:
            self._carry(self.end_call, _REFUSED)
        elif not self._cancelled:
            self.server = server.process
            self._handler = server.accept(self)

    async def serve(self, method: Any) -> None:
        """Run the server's handler; its end is the call's end."""
        context = ServerContext(self)
        end = OK
        try:
            await self._handle(method, context)
        except grpc.aio.AbortError:
            end = context.aborted
        except asyncio.CancelledError:
            end = (grpc.StatusCode.CANCELLED, "cancelled")
        self._carry(self.end_call, end)

    async def _handle(self, method: Any, context: ServerContext) -> None:
        write = method.response_serializer or bytes
        if method.unary_unary is not None:
            request = await self.to_server.take()
            self.down(write(await method.unary_unary(request, context)))
        elif method.stream_unary is not None:
            self.down(write(await method.stream_unary(None, context)))
        elif inspect.isasyncgenfunction(method.stream_stream):
            requests = self._requests(method.request_deserializer)
            async for answer in method.stream_stream(requests, context):
                self.down(write(answer))
        else:
            await method.stream_stream(None, context)

    async def _requests(self, read: Callable[[bytes], Any]) -> AsyncIterator[Any]:
        while (message := await self.to_server.take()) is not None:
            yield read(message)


class _Queue:
    """What arrived at one end of a stream."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self.over: End | None = None

    def put(self, message: bytes) -> None:
        if self.over is None:
            self._messages.append(message)
            self._wake()

    def end(self, end: End) -> None:
        if self.over is None:
            self.over = end
            self._wake()

    async def take(self) -> bytes | None:
        """Return the next message, or None at the end."""
        while not self._messages:
            if self.over is not None:
                return None
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._messages.popleft()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
