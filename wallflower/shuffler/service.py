"""The shuffler on the network, over TLS 1.3: the operator asks, one release a cohort.

Nothing that arrives is written to disk. Logs and metrics say how much and how long,
and name no node. Only the operator's server connects; nodes never do.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import grpc
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from wallflower.child import wait_for_parent_end
from wallflower.listening.descriptors import streams_allowed
from wallflower.listening.grpc_log import GrpcLines
from wallflower.listening.health import HealthService
from wallflower.listening.limits import connection_options
from wallflower.protocol.errors import InputError
from wallflower.protocol.files.keyfiles import REVOKED, read_public
from wallflower.protocol.files.watched import RevokedSerials
from wallflower.protocol.identity.certificates import KeyPair
from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.identity.tls import is_current
from wallflower.protocol.wire.shuffle_pb2 import Chunk
from wallflower.shuffler.home import open_home
from wallflower.shuffler.shuffled_batch import Shuffler

SERVICE = "wallflower.v1.Shuffler"
CHUNK_BYTES = 1 << 20
_log = logging.getLogger(__name__)
_Context = grpc.aio.ServicerContext[Any, Any]
_MOST_WATCHING = 16


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a shuffler takes on.

    Attributes
    ----------
    most_bytes : of one cohort.
    most_cohorts : at the same time; memory is at most twice the product.
    collect_s : how long a cohort may take to arrive.
    most_connections : at the same time.
    """

    most_bytes: int = 1 << 30
    most_cohorts: int = 4
    collect_s: float = 600.0
    most_connections: int = 100


class Service:
    """Serves a `Shuffler`.

    Parameters
    ----------
    shuffler : Shuffler
        Releases cohorts.
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
        self._printed: GrpcLines | None = None
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
        self._failed_handshakes = Counter(
            "wallflower_shuffler_tls_handshakes_failed",
            "Connections that were no TLS 1.3, as gRPC says.",
            registry=self.registry,
        )
        self._health = HealthService(
            ("", SERVICE),
            _old_tls,
            _MOST_WATCHING,
            count_refusal=lambda why: self._refused.labels(why).inc(),
            count_watching=Gauge(
                "wallflower_shuffler_watching",
                "Health checks that stay open.",
                registry=self.registry,
            ).set,
        )
        self._open = Gauge(
            "wallflower_shuffler_open_cohorts",
            "Cohorts being collected or shuffled.",
            registry=self.registry,
        )

    async def open(self, address: str) -> int:
        """Listen on ``host:port`` (port 0: any free port); return the port."""
        limits = self._limits
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", 2 * CHUNK_BYTES),
                *connection_options(streams_allowed(limits.most_connections)),
            ]
        )
        handler = grpc.stream_stream_rpc_method_handler(
            self._release,
            request_deserializer=Chunk.FromString,
            response_serializer=Chunk.SerializeToString,
        )
        handlers = {"Release": handler}
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, handlers),
                self._health.handler(),
            )
        )
        credentials = grpc.ssl_server_credentials(
            [(self._tls.private_key, self._tls.certificate)]
        )
        try:
            port = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            port = 0
        if port == 0:
            raise InputError("listen", address, "a local address whose port is free")
        self._printed = GrpcLines(self._failed_handshakes.inc)
        await self._server.start()
        _log.info("listening", extra={"event": "shuffler-open", "port": port})
        return port

    async def close(self) -> None:
        """Stop; a cohort being collected is lost, and its users count as used."""
        if self._server is not None:
            self._health.close()
            await self._server.stop(grace=5.0)
            if self._printed is not None:
                self._printed.close()
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
        await self._check_tls(context)
        if not hmac.compare_digest(shown, b"Bearer " + self._token):
            await self._refuse(context, grpc.StatusCode.UNAUTHENTICATED, "token")
        if self._busy >= self._limits.most_cohorts:
            await self._refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "busy")

    async def _check_tls(self, context: _Context) -> None:
        if (reason := _old_tls(context)) is not None:
            await self._refuse(context, grpc.StatusCode.UNAVAILABLE, reason)

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
        self, context: _Context, code: grpc.StatusCode, why: str
    ) -> NoReturn:
        self._refused.labels(why).inc()
        await context.abort(code, why)
        raise AssertionError("abort raises")


def _old_tls(context: _Context) -> str | None:
    return None if is_current(context.auth_context()) else "tls-too-old"


# --- A shuffler as a process.


_LARGEST_PORT = 65_535


async def serve(
    folder: Path,
    listen: str,
    hosts: Sequence[str],
    enrolment: Path | None,
    metrics: str,
    *,
    child: bool = False,
) -> None:
    """Run a shuffler until a signal; print its address and fingerprint when ready.

    A `child` also ends with the process that started it.
    """
    _, colon, number_text = listen.rpartition(":")
    if not colon or not number_text.isdecimal() or int(number_text) > _LARGEST_PORT:
        raise InputError("listen", f'"{listen}"', "HOST:PORT; port 0: any free one")
    home = open_home(folder, hosts)
    trust = None
    if enrolment is not None:
        revoked = RevokedSerials(enrolment.with_name(REVOKED))
        trust = Trust(read_public(enrolment), time.time, revoked)
    shuffler = Shuffler(home.key, home.released, trust)
    service = Service(shuffler, home.tls, home.token, Limits())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    port = await service.open(listen)
    if metrics:
        host, _, number_text = metrics.rpartition(":")
        start_http_server(int(number_text), host, service.registry)
    host = listen.rpartition(":")[0]
    ready = {"shuffler": f"{host}:{port}", "fingerprint": home.fingerprint}
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    try:
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(_end_with_parent(stop))] if child else []
            await stop.wait()
            for task in beside:
                task.cancel()
    finally:
        await service.close()


async def _end_with_parent(stop: asyncio.Event) -> None:
    await wait_for_parent_end()
    stop.set()
