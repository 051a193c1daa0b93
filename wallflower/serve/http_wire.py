"""The Connect protocol's unary POST, for browsers: one path, one content type.

A reply of the handler travels with status 200, refusals too. Whatever keeps a poll from
the handler is an error of the Connect protocol: a code and a fixed text, as JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from wallflower.protocol.visitors import LARGEST_POLL
from wallflower.serve.gate import CallerGate
from wallflower.serve.polls import BusyError, Polls

POLL_PATH: Final = "/wallflower.v1.VisitorService/Poll"
PROTO: Final = "application/proto"
SCRIPT_PATH: Final = "/wallflower.js"
# `make web` builds it; the wheel takes it along if it is there.
_SCRIPT = Path(__file__).parents[1] / "clients" / "web" / "dist" / "wallflower.js"
_LARGEST_HEADERS = 8 * 1024
_PREFLIGHT_S = 7200
_STATUS = {
    "invalid_argument": 400,
    "deadline_exceeded": 408,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "unimplemented": 415,
    "internal": 500,
    "unavailable": 503,
}
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "cross-origin",
}
_log = logging.getLogger(__name__)


class ConnectError(Exception):
    """A poll that does not reach the handler: a code of the Connect protocol."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(f"{code}: {text}")

    def response(self) -> Response:
        """Return the error as the Connect protocol writes it."""
        body = json.dumps({"code": self.code, "message": self.text})
        headers = dict(_HEADERS)
        if self.code in ("resource_exhausted", "unavailable"):
            headers["Retry-After"] = "1"
        return Response(body, _STATUS[self.code], headers, "application/json")


class HttpWire:
    """Carries polls over HTTP.

    Parameters
    ----------
    polls : Polls
        Answers polls.
    gate : CallerGate
        Decides whom to listen to.
    origins : Sequence[str]
        The websites whose pages may call; others are refused. A caller that is no page
        names no origin.
    ready : Callable[[], Awaitable[bool]]
        Whether the store answers.
    """

    def __init__(
        self,
        polls: Polls,
        gate: CallerGate,
        origins: Sequence[str],
        ready: Callable[[], Awaitable[bool]],
    ) -> None:
        self._polls = polls
        self._gate = gate
        self._origins = frozenset(origins)
        self._ready = ready

    def app(self) -> ASGIApp:
        """Return the application for `server_config`."""
        cors = Middleware(
            CORSMiddleware,
            allow_origins=sorted(self._origins),
            allow_methods=["POST"],
            allow_headers=["Connect-Protocol-Version", "Connect-Timeout-Ms"],
            max_age=_PREFLIGHT_S,
        )
        routes = [
            Route(POLL_PATH, self._answer, methods=["POST"]),
            Route(SCRIPT_PATH, _script),
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
        ]
        return Starlette(routes=routes, middleware=[cors])

    async def _answer(self, request: Request) -> Response:
        try:
            reply = await self._poll(request)
        except ConnectError as error:
            return error.response()
        return Response(reply, 200, _HEADERS, PROTO)

    async def _poll(self, request: Request) -> bytes:
        headers = request.headers
        peer = request.client.host if request.client else ""
        caller = self._gate.caller(peer, headers.getlist("x-forwarded-for"))
        if (why := self._gate.refusal(caller)) is not None:
            self._polls.count_refusal(why)
            raise ConnectError("resource_exhausted", why)
        try:
            self._check(request)
            body = await self._read(request)
        except ConnectError as error:
            self._gate.hold_against(caller)
            self._polls.count_refusal(error.text)
            raise
        try:
            result = await self._polls.answer(body)
        except BusyError:
            raise ConnectError("unavailable", "busy") from None
        except Exception:
            _log.exception("poll-failed", extra={"event": "poll-failed"})
            raise ConnectError("internal", "internal error") from None
        self._gate.note(caller, result)
        return result.reply

    def _check(self, request: Request) -> None:
        """Raise ConnectError for a request that cannot be a poll."""
        headers = request.headers
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins:
            raise ConnectError("permission_denied", "origin-not-allowed")
        if headers.get("content-type", "").partition(";")[0].strip() != PROTO:
            raise ConnectError("unimplemented", "content-type-not-supported")
        if headers.get("content-encoding", "identity") != "identity":
            raise ConnectError("unimplemented", "compression-not-supported")
        if headers.get("connect-protocol-version", "1") != "1":
            raise ConnectError("invalid_argument", "connect-version-not-supported")

    async def _read(self, request: Request) -> bytes:
        """Read the body, up to the size and the time that a poll may have."""
        stated = request.headers.get("content-length", "0")
        if not stated.isdecimal() or int(stated) > LARGEST_POLL:
            raise ConnectError("resource_exhausted", "too-large")
        body = bytearray()
        try:
            async with asyncio.timeout(self._gate.limits.request_s):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > LARGEST_POLL:
                        raise ConnectError("resource_exhausted", "too-large")
        except (TimeoutError, ClientDisconnect):
            raise ConnectError("deadline_exceeded", "too-slow") from None
        return bytes(body)

    async def _healthz(self, _request: Request) -> Response:
        return PlainTextResponse("live\n")

    async def _readyz(self, _request: Request) -> Response:
        if await self._ready():
            return PlainTextResponse("ready\n")
        return PlainTextResponse("the store does not answer\n", 503)


async def _script(request: Request) -> Response:
    """Hand out the browser's client: the same bytes for everybody."""
    if not _SCRIPT.is_file():
        return PlainTextResponse("not built here: make web\n", 404)
    body = await asyncio.to_thread(_SCRIPT.read_bytes)
    tag = f'"{hashlib.sha256(body).hexdigest()}"'
    headers = _HEADERS | {"Cache-Control": "no-cache", "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(None, 304, headers)
    return Response(body, 200, headers, "text/javascript")


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
        timeout_keep_alive=int(gate.limits.idle_s),
        timeout_graceful_shutdown=5,
        **tls,
    )
