"""The shuffler on the network: one call a cohort, over TLS 1.3, from one operator.

Nothing that arrives is written anywhere. What is logged and counted says how much and
how long, never who; a log line is written before shuffling begins or after a heap is
gone, and names no node.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from prometheus_client import CollectorRegistry, Counter, Gauge

from wallflower.protocol.errors import InputError
from wallflower.protocol.identity.certificates import KeyPair
from wallflower.protocol.identity.tls import is_current
from wallflower.protocol.wire.shuffle_pb2 import Chunk
from wallflower.shuffler.heap import Shuffler

SERVICE = "wallflower.v1.Shuffler"
CHUNK_BYTES = 1 << 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a shuffler takes on.

    Attributes
    ----------
    most_bytes : of one cohort.
    most_cohorts : at the same time; memory is at most twice the product.
    collect_s : how long a cohort may take to arrive.
    """

    most_bytes: int = 1 << 30
    most_cohorts: int = 4
    collect_s: float = 600.0


class Service:
    """Serves a `Shuffler`.

    Parameters
    ----------
    shuffler : Shuffler
        Gives heaps.
    tls : KeyPair
        The shuffler's certificate.
    token : bytes
        What the operator must show.
    limits : Limits
        How much is taken on.
    """

    def __init__(
        self, shuffler: Shuffler, tls: KeyPair, token: bytes, limits: Limits
    ) -> None:
        self._shuffler = shuffler
        self._tls = tls
        self._token = token
        self._limits = limits
        self._busy = 0
        self._server: grpc.aio.Server | None = None
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self.registry = CollectorRegistry()
        self._cohorts = Counter(
            "wallflower_shuffler_cohorts", "Cohorts answered.", registry=self.registry
        )
        self._refused = Counter(
            "wallflower_shuffler_refused_calls",
            "Calls not let in.",
            ["why"],
            registry=self.registry,
        )
        self._open = Gauge(
            "wallflower_shuffler_open_cohorts",
            "Cohorts being collected or shuffled.",
            registry=self.registry,
        )

    async def open(self, address: str) -> int:
        """Listen on ``host:port`` (port 0: any free one); give the port."""
        self._server = grpc.aio.server(
            options=[("grpc.max_receive_message_length", 2 * CHUNK_BYTES)]
        )
        handler = grpc.stream_stream_rpc_method_handler(
            self._release,
            request_deserializer=Chunk.FromString,
            response_serializer=Chunk.SerializeToString,
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Release": handler}),)
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        credentials = grpc.ssl_server_credentials(
            [(self._tls.private_key, self._tls.certificate)]
        )
        try:
            port = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            port = 0
        if port == 0:
            raise InputError("listen", address, "a local address whose port is free")
        await self._server.start()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        _log.info("listening", extra={"event": "shuffler-open", "port": port})
        return port

    async def close(self) -> None:
        """Stop; what was being collected is gone, and its nodes count as used."""
        if self._server is not None:
            await self._health.enter_graceful_shutdown()
            await self._server.stop(grace=5.0)
            self._server = None

    async def _release(
        self,
        chunks: AsyncIterator[Chunk],
        context: grpc.aio.ServicerContext[Chunk, Chunk],
    ) -> AsyncIterator[Chunk]:
        await self._admit(context)
        self._busy += 1
        self._open.set(self._busy)
        try:
            body = await self._collect(chunks, context)
            answer = await asyncio.to_thread(self._shuffler.release, body)
        finally:
            self._busy -= 1
            self._open.set(self._busy)
        self._cohorts.inc()
        for start in range(0, len(answer), CHUNK_BYTES):
            yield Chunk(part=answer[start : start + CHUNK_BYTES])

    async def _admit(self, context: grpc.aio.ServicerContext[Chunk, Chunk]) -> None:
        shown = dict(context.invocation_metadata() or ()).get("authorization", "")
        if isinstance(shown, str):
            shown = shown.encode()
        if not is_current(context.auth_context()):
            await self._refuse(context, grpc.StatusCode.UNAVAILABLE, "tls-too-old")
        if not hmac.compare_digest(shown, b"Bearer " + self._token):
            await self._refuse(context, grpc.StatusCode.UNAUTHENTICATED, "token")
        if self._busy >= self._limits.most_cohorts:
            await self._refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "busy")

    async def _collect(
        self,
        chunks: AsyncIterator[Chunk],
        context: grpc.aio.ServicerContext[Chunk, Chunk],
    ) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.collect_s):
                async for chunk in chunks:
                    body += chunk.part
                    if len(body) > self._limits.most_bytes:
                        await self._refuse(
                            context, grpc.StatusCode.RESOURCE_EXHAUSTED, "too-large"
                        )
        except TimeoutError:
            await self._refuse(context, grpc.StatusCode.DEADLINE_EXCEEDED, "too-slow")
        return bytes(body)

    async def _refuse(
        self,
        context: grpc.aio.ServicerContext[Chunk, Chunk],
        code: grpc.StatusCode,
        why: str,
    ) -> None:
        self._refused.labels(why).inc()
        await context.abort(code, why)
