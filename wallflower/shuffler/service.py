"""The shuffler on the network, over TLS 1.3: deposits of nodes, one release a cohort.

Nothing that arrives is written anywhere. What is logged and counted says how much and
how long, never who; a log line is written before shuffling begins or after a heap is
gone, and names no node.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
from prometheus_client import CollectorRegistry, Counter, Gauge

from wallflower.listening.connections import connection_options
from wallflower.listening.descriptors import streams_allowed
from wallflower.listening.grpc_log import GrpcLines
from wallflower.listening.health import HealthService
from wallflower.listening.limits import FairPlaces, address_of, network_of
from wallflower.protocol.errors import (
    AuthenticationError,
    InputError,
    MalformedMessageError,
    ProtocolError,
    RefusalError,
)
from wallflower.protocol.identity.certificates import KeyPair
from wallflower.protocol.identity.tls import is_current
from wallflower.protocol.secure_sum.shuffle.deposits import GREETING
from wallflower.protocol.wire.shuffle_pb2 import Chunk, DepositAnswer
from wallflower.shuffler.deposits import FULL, Deposits
from wallflower.shuffler.shuffled_batch import Shuffler

SERVICE = "wallflower.v1.Shuffler"
CHUNK_BYTES = 1 << 20
_log = logging.getLogger(__name__)
_Context = grpc.aio.ServicerContext[Any, Any]
_MOST_WATCHING = 16
_CODES = {
    AuthenticationError.code: grpc.StatusCode.UNAUTHENTICATED,
    MalformedMessageError.code: grpc.StatusCode.INVALID_ARGUMENT,
    FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    "too-fast": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "busy": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "too-slow": grpc.StatusCode.DEADLINE_EXCEEDED,
    "too-large": grpc.StatusCode.INVALID_ARGUMENT,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a shuffler takes on.

    Attributes
    ----------
    most_bytes : of one cohort.
    most_cohorts : at the same time; memory is at most twice the product.
    collect_s : how long a cohort that the server carries may take to arrive.
    hold_s : how long deposits wait for their release; then they are destroyed.
    deposits_per_s : taken in on average; who comes too fast is asked to come again.
    deposit_bytes : of one deposit.
    deposit_s : how long one deposit may take to arrive.
    most_arriving : deposits that arrive at the same time, shared out by network.
    most_connections : at the same time.
    """

    most_bytes: int = 1 << 30
    most_cohorts: int = 4
    collect_s: float = 600.0
    hold_s: float = 7200.0
    deposits_per_s: float = 5000.0
    deposit_bytes: int = 1 << 21
    deposit_s: float = 30.0
    most_arriving: int = 1024
    most_connections: int = 10_000


class _Bucket:
    """So many a second on average, and as many at once."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._left = per_second
        self._at = time.monotonic()

    def take(self) -> bool:
        now = time.monotonic()
        self._left += (now - self._at) * self._per_second
        self._left, self._at = min(self._left, self._per_second), now
        if self._left < 1:
            return False
        self._left -= 1
        return True


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
    deposits : Deposits, optional
        Where nodes' own deposits go; the shuffler's. Without, none are taken.
    """

    def __init__(
        self,
        shuffler: Shuffler,
        tls: KeyPair,
        token: bytes,
        limits: Limits,
        deposits: Deposits | None = None,
    ) -> None:
        self._shuffler = shuffler
        self._deposits = deposits
        self._bucket = _Bucket(limits.deposits_per_s)
        self._tls = tls
        self._token = token
        self._limits = limits
        self._busy = 0
        self._server: grpc.aio.Server | None = None
        self._arriving = FairPlaces(limits.most_arriving)
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

        self._taken = Counter(
            "wallflower_shuffler_deposits", "Deposits taken.", registry=self.registry
        )
        held = Gauge(
            "wallflower_shuffler_held_bytes",
            "Bytes of deposits that wait for their release.",
            registry=self.registry,
        )
        if deposits is not None:
            held.set_function(lambda: deposits.held_bytes)

    async def open(self, address: str) -> int:
        """Listen on ``host:port`` (port 0: any free one); give the port."""
        limits = self._limits
        longest = max(2 * CHUNK_BYTES, limits.deposit_bytes)
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", longest),
                *connection_options(streams_allowed(limits.most_connections)),
            ]
        )
        handler = grpc.stream_stream_rpc_method_handler(
            self._release,
            request_deserializer=Chunk.FromString,
            response_serializer=Chunk.SerializeToString,
        )
        # Not unary: such a handler begins when its message is there, not before.
        taking = grpc.stream_unary_rpc_method_handler(
            self._deposit, response_serializer=DepositAnswer.SerializeToString
        )
        handlers = {"Release": handler, "Deposit": taking}
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
        """Stop; what was being collected is gone, and its nodes count as used."""
        if self._server is not None:
            self._health.close()
            await self._server.stop(grace=5.0)
            if self._printed is not None:
                self._printed.close()
            self._server = None

    async def _deposit(self, _: object, context: _Context) -> DepositAnswer:
        await self._check_tls(context)
        if self._deposits is None:
            await self._refuse(context, grpc.StatusCode.UNIMPLEMENTED, "no-deposits")
        greeting = dict(context.invocation_metadata() or ()).get(GREETING, b"")
        try:
            if not isinstance(greeting, bytes):
                raise MalformedMessageError("headers of another kind")
            self._deposits.admit(greeting)
            if not self._bucket.take():
                raise RefusalError("too-fast", "more deposits than agreed")
            body = await self._arrived(context)
            receipt, begun = self._deposits.put(greeting, body)
        except (ProtocolError, RefusalError) as error:
            code = _CODES.get(error.code, grpc.StatusCode.FAILED_PRECONDITION)
            await self._refuse(context, code, error.code)
        if begun is not None:
            asyncio.get_running_loop().call_later(
                self._limits.hold_s, self._give_up, begun
            )
        self._taken.inc()
        return DepositAnswer(receipt=receipt)

    async def _arrived(self, context: _Context) -> bytes:
        """Read the deposit of a node that was admitted."""
        network = network_of(address_of(context.peer()))
        if not self._arriving.take(network):
            raise RefusalError("busy", "too many deposits arrive at the same time")
        try:
            async with asyncio.timeout(self._limits.deposit_s):
                body = await context.read()
        except TimeoutError:
            raise RefusalError("too-slow", "the deposit did not arrive") from None
        finally:
            self._arriving.give_back(network)
        if not isinstance(body, bytes):
            raise MalformedMessageError("a deposit of nothing")
        if len(body) > self._limits.deposit_bytes:
            raise RefusalError("too-large", "longer than a deposit may be")
        return body

    def _give_up(self, cohort: bytes) -> None:
        assert self._deposits is not None
        self._deposits.give_up(cohort)

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
