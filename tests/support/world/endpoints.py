"""Both ends of a call: the parts of `grpc.aio` that servers, nodes and shuffler use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextvars import copy_context
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from tests.support.world.processes import PROCESS

if TYPE_CHECKING:
    from tests.support.world.network import Network, Stream

End = tuple[grpc.StatusCode, str]
OK: End = (grpc.StatusCode.OK, "")
RESET: End = (grpc.StatusCode.UNAVAILABLE, "connection reset")
_EOF = grpc.aio.EOF  # type: ignore[attr-defined]
_RETRY_S = 0.25  # between two looks for somebody who listens


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
        called = SimpleNamespace(method=stream.method, invocation_metadata=())
        (found,) = [h for each in self._handlers if (h := each.service(called))]
        loop = asyncio.get_running_loop()
        where = self._where.copy()
        return loop.create_task(stream.serve(found), context=where)


class ServerContext:
    """Stands in for `grpc.aio.ServicerContext`."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.aborted: End = OK

    def peer(self) -> str:
        return f"ipv4:10.0.0.{sum(map(ord, self._stream.client.name)) % 250}:40000"

    def auth_context(self) -> dict[str, tuple[bytes]]:
        return {"ssl_tls_version": (b"TLSv1.3",)}

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        return self._stream.metadata

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

    async def channel_ready(self) -> None:
        """Wait until somebody listens there and the caller's line is whole."""
        process = PROCESS.get()
        assert process is not None
        link = self._network.link(process.name)
        await asyncio.sleep(self._network.latency())
        while (  # noqa: ASYNC110 (as gRPC looks again)
            link.is_cut or self._network.server_at(self._address) is None
        ):
            await asyncio.sleep(_RETRY_S)

    def stream_stream(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
    ) -> Callable[..., Call]:
        def call(
            requests: AsyncIterator[Any] | None,
            metadata: Sequence[tuple[str, str]] = (),
        ) -> Call:
            opened = self._open(method, metadata)
            opened.requests = requests
            opened.write_as = request_serializer or bytes
            opened.read_as = response_deserializer or bytes
            return opened

        return call

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def call(request: Any, **options: Any) -> Any:
            opened = self._open(method, options.get("metadata") or ())
            await opened.write((request_serializer or bytes)(request))
            try:
                async with asyncio.timeout(options.get("timeout")):
                    answer = await opened.read()
            except TimeoutError:
                raise _error((grpc.StatusCode.DEADLINE_EXCEEDED, "late")) from None
            finally:
                opened.cancel()
            assert isinstance(answer, bytes)
            return (response_deserializer or bytes)(answer)

        return call

    def _open(self, method: str, metadata: Sequence[tuple[str, str]] = ()) -> Call:
        stream = self._network.call(self._address, method, metadata)
        self._calls.append(Call(stream))
        return self._calls[-1]


class Call:
    """Stands in for `grpc.aio.StreamStreamCall`."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.requests: AsyncIterator[Any] | None = None
        self.write_as: Callable[[Any], bytes] = bytes
        self.read_as: Callable[[bytes], Any] = bytes

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Send all requests, then give the answers."""
        assert self.requests is not None
        try:
            async for request in self.requests:
                await self.write(self.write_as(request))
            self._stream.last()
            while isinstance(answer := await self.read(), bytes):
                yield self.read_as(answer)
        finally:
            self.cancel()

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
        end = self._end()
        if end[0] is grpc.StatusCode.OK:
            return _EOF
        raise _error(end)

    async def code(self) -> grpc.StatusCode:
        return self._end()[0]

    async def details(self) -> str:
        return self._end()[1]

    def _end(self) -> End:
        end = self._stream.to_client.over
        return RESET if end is None else end


def _error(end: End) -> grpc.aio.AioRpcError:
    metadata = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(end[0], metadata, metadata, end[1], "")
