"""The network under gRPC: `grpc.aio` servers and channels without sockets.

Every node has one link to the server. A stream's messages arrive in order, late by the
link's latency; a link that is cut holds them until it is mended, as TCP does. A stream
can be reset for both ends or for one only, and then the other end learns of it from
missing heartbeats alone. Desk and attendance are the real ones and see the parts of
`grpc.aio` that they use.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any
from unittest import mock

import grpc
import grpc.aio

from tests.support.world.processes import PROCESS, Process

_LATENCY_S = (0.001, 0.04)
_End = tuple[grpc.StatusCode, str]
_EOF = grpc.aio.EOF  # type: ignore[attr-defined]
_OK: _End = (grpc.StatusCode.OK, "")
_RESET: _End = (grpc.StatusCode.UNAVAILABLE, "connection reset")
_REFUSED: _End = (grpc.StatusCode.UNAVAILABLE, "connection refused")


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
        """Put this network in the place of gRPC's."""
        with (
            mock.patch.object(grpc.aio, "server", self._server),
            mock.patch.object(grpc.aio, "secure_channel", self._channel),
        ):
            yield

    def link(self, name: str) -> Link:
        """Give a node's link."""
        return self._links.setdefault(name, Link(self))

    def reset(self, name: str, *, node_hears: bool = True, server: bool = True) -> None:
        """Break the streams of a node; each end hears of it, or not."""
        for stream in self._of(name):
            if node_hears:
                stream.end_call(_RESET)
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
                self.link(stream.client.name).carry(stream.end_call, _RESET)

    def listen(self, address: str, server: Server) -> None:
        """Let a server be found."""
        self._servers[address] = server

    def close(self, server: Server) -> None:
        """Let a server not be found any more, and end its streams."""
        for address in [a for a, s in self._servers.items() if s is server]:
            del self._servers[address]
        for stream in [s for s in self.streams if s.server is server.process]:
            stream.end_handler()
            self.link(stream.client.name).carry(stream.end_call, _RESET)

    def server_at(self, address: str) -> Server | None:
        """Find who listens."""
        return self._servers.get(address)

    def at(self, when: float, callback: Callable[..., object], *args: Any) -> None:
        """Let something happen that is no process's doing."""
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
        self._held: list[tuple[Callable[..., object], Any]] = []
        self._latest = 0.0

    def carry(self, arrive: Callable[..., object], *args: Any) -> None:
        """Let something arrive, later."""
        if self._cuts:
            self._held.append((arrive, args))
            return
        now = asyncio.get_running_loop().time()
        self._latest = max(self._latest, now + self._network.latency())
        self._network.at(self._latest, arrive, *args)

    def cut(self) -> None:
        """Hold everything from now on."""
        self._cuts += 1

    def mend(self) -> None:
        """Let go what was held, once every cut is mended."""
        self._cuts -= 1
        if self._cuts == 0:
            held, self._held = self._held, []
            for arrive, args in held:
                self.carry(arrive, *args)


class Stream:
    """One call from a node to the server: two queues and how it ends."""

    def __init__(self, network: Network, client: Process, address: str) -> None:
        self.network = network
        self.client = client
        self.server: Process | None = None
        self.to_server = _Queue()
        self.to_client = _Queue()
        self._link = network.link(client.name)
        self._handler: asyncio.Task[None] | None = None
        self._cancelled = False
        network.streams.append(self)
        self._link.carry(self._connect, address)

    def up(self, message: bytes) -> None:
        """Send to the server."""
        self._link.carry(self.to_server.put, message)

    def down(self, message: bytes) -> None:
        """Send to the node."""
        self._link.carry(self.to_client.put, message)

    def hang_up(self) -> None:
        """End it from the node's side."""
        self.to_client.end((grpc.StatusCode.CANCELLED, "cancelled by the node"))
        self._link.carry(self.end_handler)

    def end_call(self, end: _End) -> None:
        """Let the node see the end."""
        self.to_client.end(end)
        self._forget()

    def end_handler(self) -> None:
        """Let the server see that the node is gone: gRPC cancels its handler."""
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
            self._link.carry(self.end_call, _REFUSED)
        elif not self._cancelled:
            self.server = server.process
            self._handler = server.accept(self)

    async def serve(self, handler: Callable[..., Any]) -> None:
        """Run the server's handler; its end is the call's end."""
        context = ServerContext(self)
        end = _OK
        try:
            await handler(None, context)
        except grpc.aio.AbortError:
            end = context.aborted
        except asyncio.CancelledError:
            end = (grpc.StatusCode.CANCELLED, "cancelled")
        self._link.carry(self.end_call, end)


class _Queue:
    """What arrived at one end of a stream."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self.over: _End | None = None

    def put(self, message: bytes) -> None:
        if self.over is None:
            self._messages.append(message)
            self._wake()

    def end(self, end: _End) -> None:
        if self.over is None:
            self.over = end
            self._wake()

    async def take(self) -> bytes | None:
        """Give the next message, or None at the end."""
        while not self._messages:
            if self.over is not None:
                return None
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._messages.popleft()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Server:
    """Stands in for `grpc.aio.Server`."""

    def __init__(self, network: Network) -> None:
        process = PROCESS.get()
        assert process is not None
        self.process = process
        self._network = network
        self._where = copy_context()
        self._handlers: list[Any] = []
        self._address = ""

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        self._handlers.extend(handlers)

    def add_registered_method_handlers(self, *_: object) -> None:
        """Found among the generic ones, too."""

    def add_secure_port(self, address: str, _: object) -> int:
        self._address = address
        return int(address.rpartition(":")[2])

    async def start(self) -> None:
        self._network.listen(self._address, self)

    async def stop(self, grace: float | None) -> None:
        self._network.close(self)

    def accept(self, stream: Stream) -> asyncio.Task[None]:
        """Begin to serve a stream, in the process that listens."""
        called = SimpleNamespace(
            method="/wallflower.v1.Desk/Attend", invocation_metadata=()
        )
        (found,) = [h for each in self._handlers if (h := each.service(called))]
        loop = asyncio.get_running_loop()
        where = self._where.copy()
        return loop.create_task(stream.serve(found.stream_stream), context=where)


class ServerContext:
    """Stands in for `grpc.aio.ServicerContext`."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.aborted: _End = _OK

    def peer(self) -> str:
        return f"ipv4:10.0.0.{sum(map(ord, self._stream.client.name)) % 250}:40000"

    def auth_context(self) -> dict[str, tuple[bytes]]:
        return {"ssl_tls_version": (b"TLSv1.3",)}

    async def read(self) -> object:
        message = await self._stream.to_server.take()
        return _EOF if message is None else message

    async def write(self, message: bytes) -> None:
        self._stream.down(message)

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        self.aborted = code, details
        raise grpc.aio.AbortError


class Channel:
    """Stands in for `grpc.aio.Channel`."""

    def __init__(self, network: Network, address: str) -> None:
        self._network = network
        self._address = address
        self._calls: list[Call] = []

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *_: object) -> None:
        for call in self._calls:
            call.cancel()

    def stream_stream(self, *_: object) -> Callable[..., Call]:
        def call(_: object) -> Call:
            process = PROCESS.get()
            assert process is not None
            self._calls.append(Call(Stream(self._network, process, self._address)))
            return self._calls[-1]

        return call


class Call:
    """Stands in for `grpc.aio.StreamStreamCall`."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def done(self) -> bool:
        return self._stream.to_client.over is not None

    def cancel(self) -> bool:
        if self.done():
            return False
        self._stream.hang_up()
        return True

    async def write(self, message: bytes) -> None:
        if self.done():
            raise asyncio.InvalidStateError("the call is over")
        self._stream.up(message)

    async def read(self) -> object:
        message = await self._stream.to_client.take()
        if message is not None:
            return message
        code, details = self._end()
        if code is grpc.StatusCode.OK:
            return _EOF
        metadata = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(code, metadata, metadata, details, "")

    async def code(self) -> grpc.StatusCode:
        return self._end()[0]

    async def details(self) -> str:
        return self._end()[1]

    def _end(self) -> _End:
        end = self._stream.to_client.over
        return _RESET if end is None else end
