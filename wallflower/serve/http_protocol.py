"""How a worker speaks HTTP: uvicorn's protocol with limits, and one write a reply."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, ClassVar

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from wallflower.protocol.visitors import LARGEST_POLL
from wallflower.serve.gate import CallerGate

_LARGEST_HEADERS = 8 * 1024
_IDLE_S = 30  # between two requests of a connection


class JoinedWrites:
    """A transport that sends at once what is written in one step of the loop.

    uvicorn writes the head of a reply and its body one after the other: two calls of
    the system, and two packets.

    Parameters
    ----------
    transport : asyncio.Transport
        The connection.
    loop : asyncio.AbstractEventLoop
        Whose steps they are.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        """Be the transport in everything else."""
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send these bytes when this step of the loop is over."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Send what was written, then close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts:
            self._transport.write(b"".join(parts))


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with the limits of connections.

    uvicorn waits for a request as long as the caller likes, and for headers of any
    size. Here a connection has its network's place or is dropped, a request has
    `request_s` to arrive in full, and no request is larger than a poll can be.
    """

    gate: ClassVar[CallerGate]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._network: str | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._unfinished = 0  # bytes of a request that is not here in full

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place for the caller's network, or hang up."""
        super().connection_made(transport)
        # asyncio forgets it for sockets that it did not make itself; a reply would
        # wait 40 ms for the caller's acknowledgement.
        transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )
        peer = self.client[0] if self.client else ""
        if not self.gate.is_proxy(peer):
            network = self.gate.caller(peer, ())
            if not self.gate.take_place(network):
                transport.abort()
                return
            self._network = network
        self.transport = JoinedWrites(transport, self.loop)  # type: ignore[assignment]
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._stop_waiting()
        if self._network is not None:
            self.gate.give_back(self._network)
            self._network = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request, but no more than one may have."""
        self._unfinished += len(data)
        if self._unfinished > _LARGEST_HEADERS + LARGEST_POLL:
            self.transport.abort()
            return
        if self._deadline is None:
            self._expect_request()
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """Begin the request, unless its headers are too large."""
        size = sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size + len(self.url) > _LARGEST_HEADERS:
            raise ValueError("headers too large")  # the parser gives up, with a 400
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that the request is here in full."""
        self._unfinished = 0
        self._stop_waiting()
        super().on_message_complete()

    def _expect_request(self) -> None:
        self._deadline = self.loop.call_later(
            self.gate.limits.request_s, self.transport.abort
        )

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def server_config(app: ASGIApp, gate: CallerGate, **tls: Any) -> uvicorn.Config:
    """Return how uvicorn serves `app`."""
    return uvicorn.Config(
        app,
        http=type("GatedProtocol", (GuardedProtocol,), {"gate": gate}),
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=5,
        **tls,
    )
