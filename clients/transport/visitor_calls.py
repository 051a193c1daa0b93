"""How a visitor's polls travel: gRPC's unary call, or a POST of Connect."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeAlias

import grpc
import grpc.aio

from wallflower.protocol.errors import InputError, UnavailableError
from wallflower.protocol.visitors import LARGEST_REPLY

METHOD: Final = "/wallflower.v1.VisitorService/Poll"
_CALL_S = 30.0
# A serialized VisitorPoll in, a serialized VisitorReply out; UnavailableError where
# the same call may succeed later.
Poll: TypeAlias = Callable[[bytes], Awaitable[bytes]]


@contextlib.asynccontextmanager
async def poll_by_grpc(
    address: str, root_certificate: bytes | None = None
) -> AsyncIterator[Poll]:
    """Poll over gRPC while inside; without a root certificate, without TLS."""
    options = [
        ("grpc.max_receive_message_length", LARGEST_REPLY),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
    ]
    if root_certificate is None:
        channel = grpc.aio.insecure_channel(address, options)
    else:
        credentials = grpc.ssl_channel_credentials(root_certificate)
        channel = grpc.aio.secure_channel(address, credentials, options)
    call = channel.unary_unary(METHOD, None, None)

    async def poll(body: bytes) -> bytes:
        try:
            reply: bytes = await call(body, timeout=_CALL_S)
        except grpc.aio.AioRpcError as error:
            raise UnavailableError(
                f"the server at {address} did not answer ({error.code().name}); "
                "the same poll may be sent again"
            ) from None
        return reply

    async with channel:
        yield poll


def poll_by_http(server: str, root_certificate: bytes | None = None) -> Poll:
    """Poll over HTTP(S) at ``https://host``; by default the system's certificates."""
    if not server.startswith(("https://", "http://")):
        raise InputError("server", f'"{server}"', "https://HOST or http://HOST")
    text = None if root_certificate is None else root_certificate.decode()
    trust = ssl.create_default_context(cadata=text)

    def post(body: bytes) -> bytes:
        request = urllib.request.Request(  # noqa: S310 (the scheme was looked at)
            server.rstrip("/") + METHOD,
            data=body,
            headers={
                "Content-Type": "application/proto",
                "Connect-Protocol-Version": "1",
            },
        )
        try:
            with urllib.request.urlopen(  # noqa: S310
                request, timeout=_CALL_S, context=trust
            ) as reply:
                received: bytes = reply.read(LARGEST_REPLY + 1)
        except (OSError, urllib.error.HTTPError) as error:
            status = error.code if isinstance(error, urllib.error.HTTPError) else ""
            raise UnavailableError(
                f"{server} did not answer ({status or type(error).__name__}); the same "
                "poll may be sent again"
            ) from None
        return received

    async def poll(body: bytes) -> bytes:
        return await asyncio.to_thread(post, body)

    return poll
