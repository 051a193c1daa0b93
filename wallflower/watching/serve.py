"""Serve the live page on loopback, to browsers of this machine alone.

A proxy or an SSH tunnel brings it to other machines. The page answers to loopback's
names only, so that a website whose name suddenly means 127.0.0.1 learns nothing
(DNS rebinding).
"""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wallflower.child import wait_for_parent_end
from wallflower.protocol.errors import UnavailableError
from wallflower.watching.site import Site

DEFAULT_PORT = 8642
_HOST = "127.0.0.1"
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HOST_HEADER = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::\d*)?")
_MOST_HEADER_BYTES = 16 * 1024
_SHUTDOWN_S = 3
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; "
    "style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class LoopbackGuard:
    """Passes requests of this machine's browsers on to `app` and refuses others."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"only http is served, not {scope['type']}")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        handler = find_refusal(Request(scope)) or self._app
        await handler(scope, receive, send_with_headers)


def find_refusal(request: Request) -> Response | None:
    """Return the answer to a request that must not reach the pages, or None."""
    if read_host_name(request.headers) not in _LOOPBACK_NAMES:
        return PlainTextResponse("This page has another name.\n", 421)
    if request.method not in ("GET", "HEAD"):
        return PlainTextResponse("Only GET is answered.\n", 405)
    # Other websites may link here, but not open streams or embed files.
    site = request.headers.get("sec-fetch-site", "none")
    navigates = request.headers.get("sec-fetch-mode") == "navigate"
    if site not in ("same-origin", "none") and not navigates:
        return PlainTextResponse("Not for other websites.\n", 403)
    return None


def read_host_name(headers: Headers) -> str:
    """Return the host name of a request, without its port, in lower case.

    Examples
    --------
    >>> read_host_name(Headers({"host": "LocalHost:80"}))
    'localhost'
    >>> read_host_name(Headers({"host": "[::1]:80"}))
    '[::1]'
    """
    match = _HOST_HEADER.fullmatch(headers.get("host", "").lower())
    return "" if match is None else match[1]


def open_socket(port: int | None) -> socket.socket:
    """Open the listening socket; only the default port gives way to a free one."""
    first = DEFAULT_PORT if port is None else port
    problem = ""
    for candidate in (first, 0) if port is None else (first,):
        try:
            return socket.create_server((_HOST, candidate))
        except OSError as error:
            problem, _, _ = str(error.strerror).partition(" (")
    raise UnavailableError(
        f"the page cannot listen on {_HOST}:{first} ({problem}); choose another "
        "--port, or 0 for any"
    )


async def serve(
    directories: Sequence[Path],
    port: int | None,
    announce: Callable[[str], None],
    *,
    child: bool,
) -> None:
    """Serve until SIGINT or SIGTERM; as a `child` until standard input ends.

    Parameters
    ----------
    directories : Sequence[Path]
        The runs.
    port : int | None
        None tries the default port, then any that is free.
    announce : Callable[[str], None]
        Receives the page's address, once it answers there.
    child : bool
        Whether another process started this one and ends it by going away.
    """
    site = Site(directories)
    await site.begin()
    with open_socket(port) as listener:
        server = _Server(_server_config(LoopbackGuard(site.app())), site.end)
        announce(f"http://{_HOST}:{listener.getsockname()[1]}/")
        async with asyncio.TaskGroup() as group:
            group.create_task(site.keep())
            watchdogs = [group.create_task(_end_with_parent(server))] if child else []
            await server.serve(sockets=[listener])
            for task in watchdogs:
                task.cancel()
            site.end()


class _Server(uvicorn.Server):
    """Lets the site send its last state before connections are closed."""

    def __init__(self, config: uvicorn.Config, end_site: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_site = end_site

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End in order at the first signal, at once at the second."""
        self._end_site()
        self.force_exit = self.should_exit
        self.should_exit = True


def _server_config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",
        h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )


async def _end_with_parent(server: _Server) -> None:
    """End the server when the process that started it is gone."""
    await wait_for_parent_end()
    server.handle_exit(signal.SIGTERM, None)
