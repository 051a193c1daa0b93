"""The Connect protocol's unary POST, for browsers: one path, one content type.

A reply of the handler travels with status 200, refusals too. Whatever keeps a poll from
the handler is an error of the Connect protocol: a code and a fixed text, as JSON.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from wallflower.protocol.visitors import LARGEST_POLL
from wallflower.serve.gate import CallerGate
from wallflower.serve.polls import BusyError, Polls

POLL_PATH: Final = "/wallflower.v1.VisitorService/Poll"
PROTO: Final = "application/proto"
_PROTO = PROTO.encode()
SCRIPT_PATH: Final = "/wallflower.js"
# `make web` builds it; the wheel takes it along if it is there.
_SCRIPT = Path(__file__).parents[1] / "clients" / "web" / "dist" / "wallflower.js"
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


def _reply(body: bytes) -> Response:
    return Response(body, 200, _HEADERS, PROTO)


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
        self._origins = frozenset(origin.encode("latin-1") for origin in origins)
        self._ready = ready
        self._asking: asyncio.Future[bool] | None = None

    def app(self) -> ASGIApp:
        """Return the application for `server_config`.

        Polls go past routes and middleware, which would cost as much as a signature.
        """
        others = self._others()

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] == POLL_PATH and scope["method"] == "POST":
                await self._answer(scope, receive, send)
            else:
                await others(scope, receive, send)

        return answer

    def _others(self) -> ASGIApp:
        """Return what answers preflights, health checks, and pages without a client."""
        cors = Middleware(
            CORSMiddleware,
            allow_origins=sorted(one.decode("latin-1") for one in self._origins),
            allow_methods=["POST"],
            allow_headers=["Connect-Protocol-Version", "Connect-Timeout-Ms"],
            max_age=_PREFLIGHT_S,
        )
        routes = [
            # For the 405 of other methods: a POST does not get here.
            Route(POLL_PATH, _healthz, methods=["POST"]),
            Route(SCRIPT_PATH, self._script),
            Route("/healthz", _healthz),
            Route("/readyz", self._readyz),
        ]
        return Starlette(routes=routes, middleware=[cors])

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(reversed(scope["headers"]))  # the first of a name counts
        try:
            response = _reply(await self._poll(scope, headers, receive))
        except ConnectError as error:
            response = error.response()
        origin = headers.get(b"origin", b"")
        if origin in self._origins:
            response.raw_headers.extend(
                ((b"access-control-allow-origin", origin), (b"vary", b"Origin"))
            )
        await response(scope, receive, send)

    async def _poll(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive
    ) -> bytes:
        peer = scope["client"][0] if scope["client"] else ""
        caller = self._gate.caller(peer, _read_forwarded(scope))
        if (why := self._gate.refusal(caller)) is not None:
            self._polls.count_refusal(why)
            raise ConnectError("resource_exhausted", why)
        try:
            self._check(headers)
            body = await self._read(headers, receive)
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

    def _check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise ConnectError for a request that cannot be a poll."""
        origin = headers.get(b"origin")
        if origin is not None and origin not in self._origins:
            raise ConnectError("permission_denied", "origin-not-allowed")
        if headers.get(b"content-type", b"").partition(b";")[0].strip() != _PROTO:
            raise ConnectError("unimplemented", "content-type-not-supported")
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise ConnectError("unimplemented", "compression-not-supported")
        if headers.get(b"connect-protocol-version", b"1") != b"1":
            raise ConnectError("invalid_argument", "connect-version-not-supported")

    async def _read(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        """Read the body, up to the size and the time that a poll may have."""
        stated = headers.get(b"content-length", b"0")
        if not stated.isdigit() or int(stated) > LARGEST_POLL:
            raise ConnectError("resource_exhausted", "too-large")
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(self._gate.limits.request_s):
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise ConnectError("deadline_exceeded", "too-slow")
                    body += message.get("body", b"")
                    if len(body) > LARGEST_POLL:
                        raise ConnectError("resource_exhausted", "too-large")
                    more = message.get("more_body", False)
        except TimeoutError:
            raise ConnectError("deadline_exceeded", "too-slow") from None
        return bytes(body)

    async def _readyz(self, _request: Request) -> Response:
        if await self._is_ready():
            return PlainTextResponse("ready\n")
        return PlainTextResponse("the store does not answer\n", 503)

    async def _is_ready(self) -> bool:
        """Ask the store once, however many strangers want to know at the same time."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ready())
        return await asyncio.shield(self._asking)

    async def _script(self, request: Request) -> Response:
        """Hand out the browser's client: the same bytes for everybody."""
        peer = request.client.host if request.client else ""
        caller = self._gate.caller(peer, _read_forwarded(request.scope))
        if (why := self._gate.refusal(caller)) is not None:
            self._polls.count_refusal(why)
            return ConnectError("resource_exhausted", why).response()
        if not _SCRIPT.is_file():
            return PlainTextResponse("not built here: make web\n", 404)
        body, tag = await asyncio.to_thread(_read_script, _SCRIPT.stat().st_mtime_ns)
        headers = _HEADERS | {"Cache-Control": "no-cache", "ETag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(None, 304, headers)
        return Response(body, 200, headers, "text/javascript")


def _read_forwarded(scope: Scope) -> list[str]:
    return [
        value.decode("latin-1")
        for name, value in scope["headers"]
        if name == b"x-forwarded-for"
    ]


async def _healthz(_request: Request) -> Response:
    return PlainTextResponse("live\n")


@functools.lru_cache(maxsize=1)
def _read_script(_changed: int) -> tuple[bytes, str]:
    """Return the script and its tag; it is read anew when it has changed."""
    body = _SCRIPT.read_bytes()
    return body, f'"{hashlib.sha256(body).hexdigest()}"'
