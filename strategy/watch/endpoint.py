"""A small HTTP endpoint for probes and scrapers: /health/live, /health/ready, /metrics.

It runs in the orchestrator's own event loop: an endpoint that answers while the loop is
stuck would tell a lie. Only GET, only these three paths, nothing is read beyond the
request line and headers, and every connection is closed after one answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable

from wallflower.protocol.errors import InputError, UnavailableError

_READ_TIMEOUT_S = 5.0
_MOST_HEADER_BYTES = 8192
_PLAIN = "application/json"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_STATUS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}

Ready = Callable[[], str | None]


def respond(
    request_line: str, metrics: Callable[[], bytes], ready: Ready
) -> tuple[int, str, bytes]:
    """Return status, content type and body for a request line."""
    words = request_line.split()
    if len(words) != 3:
        return 400, _PLAIN, _say("this is not HTTP")
    method, path, _ = words
    if method != "GET":
        return 405, _PLAIN, _say("only GET is answered")
    match path.partition("?")[0]:
        case "/health/live":
            return 200, _PLAIN, _say("live")
        case "/health/ready":
            problem = ready()
            if problem is None:
                return 200, _PLAIN, _say("ready")
            return 503, _PLAIN, _say(problem)
        case "/metrics":
            return 200, _METRICS, metrics()
        case _:
            return 404, _PLAIN, _say("try /health/live, /health/ready or /metrics")


def _say(status: str) -> bytes:
    return json.dumps({"status": status}).encode() + b"\n"


@contextlib.asynccontextmanager
async def health_endpoint(
    address: str, metrics: Callable[[], bytes], ready: Ready
) -> AsyncIterator[int]:
    """Serve on ``host:port`` (port 0: any free one) while inside; gives the port.

    Parameters
    ----------
    address : str
        Where to listen. The endpoint has no authentication: keep it on loopback or on
        the monitoring network.
    metrics : Callable[[], bytes]
        Gives the text of /metrics.
    ready : Callable[[], str | None]
        Gives None when new work can be taken, else the reason why not.
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise InputError("metrics", f'"{address}"', "HOST:PORT")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(_READ_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            line = head.split(b"\r\n", 1)[0].decode("ascii", errors="replace")
            status, kind, body = respond(line, metrics, ready)
            writer.write(
                f"HTTP/1.1 {status} {_STATUS[status]}\r\nContent-Type: {kind}\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def serve_guarded(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.close()  # hung up early, or sent endless headers

    try:
        server = await asyncio.start_server(
            serve_guarded, host or "127.0.0.1", int(port), limit=_MOST_HEADER_BYTES
        )
    except OSError as error:
        raise UnavailableError(
            f"the metrics endpoint cannot listen on {address} ({error}); choose "
            "another port"
        ) from None
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_READ_TIMEOUT_S + 1):
                await server.wait_closed()
