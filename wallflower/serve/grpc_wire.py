"""gRPC's unary call, for apps: the same bytes as over HTTP."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
import grpc.aio

from wallflower.listening.health import HealthService
from wallflower.listening.limits import address_of, connection_options
from wallflower.protocol.errors import InputError
from wallflower.protocol.identity.certificates import KeyPair
from wallflower.protocol.visitors import LARGEST_POLL
from wallflower.serve.gate import CallerGate
from wallflower.serve.polls import BusyError, Polls

SERVICE = "wallflower.v1.VisitorService"
_MOST_WATCHING = 16
_DRAIN_S = 5.0
_log = logging.getLogger(__name__)
_Context = grpc.aio.ServicerContext[Any, Any]


class GrpcWire:
    """Carries polls over gRPC; several workers listen on one port.

    Parameters
    ----------
    polls : Polls
        Answers polls.
    gate : CallerGate
        Decides whom to listen to.
    tls : KeyPair | None
        The certificate that visitors see; None behind a proxy.
    """

    def __init__(self, polls: Polls, gate: CallerGate, tls: KeyPair | None) -> None:
        self._polls = polls
        self._gate = gate
        self._tls = tls
        self._server: grpc.aio.Server | None = None
        self._health = HealthService(
            ("", SERVICE),
            self._stranger,
            _MOST_WATCHING,
            count_refusal=polls.count_refusal,
            count_watching=lambda _count: None,
        )

    async def open(self, address: str) -> int:
        """Listen on ``host:port``; return the port."""
        options = dict(connection_options(self._gate.limits.most_connections))
        options["grpc.so_reuseport"] = 1
        options["grpc.max_receive_message_length"] = LARGEST_POLL
        self._server = grpc.aio.server(options=list(options.items()))
        # Not unary: such a handler begins when its message is there, not before.
        methods = {"Poll": grpc.stream_unary_rpc_method_handler(self._poll)}
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, methods),
                self._health.handler(),
            )
        )
        try:
            port = self._add_port(address)
        except RuntimeError:
            port = 0
        if port == 0:
            raise InputError("grpc", address, "a local address whose port is free")
        await self._server.start()
        return port

    def _add_port(self, address: str) -> int:
        assert self._server is not None
        if self._tls is None:
            return self._server.add_insecure_port(address)
        pair = (self._tls.private_key, self._tls.certificate)
        return self._server.add_secure_port(
            address, grpc.ssl_server_credentials([pair])
        )

    async def close(self) -> None:
        """Answer what was begun, and take no more."""
        if self._server is not None:
            self._health.close()
            await self._server.stop(grace=_DRAIN_S)

    def _caller(self, context: _Context) -> str:
        metadata = context.invocation_metadata() or ()
        forwarded = [
            value
            for key, value in metadata
            if key == "x-forwarded-for" and isinstance(value, str)
        ]
        peer = address_of(context.peer()).replace("%5B", "").replace("%5D", "")
        return self._gate.caller(peer, forwarded)

    def _stranger(self, context: _Context) -> str | None:
        return self._gate.refusal(self._caller(context))

    async def _poll(self, _: object, context: _Context) -> bytes:
        caller = self._caller(context)
        if (why := self._gate.refusal(caller)) is not None:
            self._polls.count_refusal(why)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
        try:
            async with asyncio.timeout(self._gate.limits.request_s):
                body = await context.read()
        except TimeoutError:
            body = None
        if not isinstance(body, bytes):
            self._gate.hold_against(caller)
            self._polls.count_refusal("too-slow")
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "too-slow")
        assert isinstance(body, bytes)
        try:
            result = await self._polls.answer(body)
        except BusyError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        except Exception:
            _log.exception("poll-failed", extra={"event": "poll-failed"})
            await context.abort(grpc.StatusCode.INTERNAL, "internal error")
        self._gate.note(caller, result)
        return result.reply
