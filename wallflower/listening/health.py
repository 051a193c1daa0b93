"""The standard gRPC health service, for whoever asks.

Nobody shows an identity here, so nothing is read: all services of a server have the
same health, and which of them a caller names makes no difference. What strangers may
hold open is bounded: a fixed number of `Watch` streams, of which no few networks can
take all, and none from a network that is not listened to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from wallflower.listening.limits import FairPlaces, address_of, network_of
from wallflower.protocol.identity.tokens import STATUS

_Context = grpc.aio.ServicerContext[Any, Any]
_SERVICE = "grpc.health.v1.Health"
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class HealthService:
    """Says whether a server serves.

    Parameters
    ----------
    services : tuple[str, ...]
        What is served here.
    refusal : Callable[[_Context], str | None]
        Gives the reason for which a caller is not listened to.
    most_watching : int
        `Watch` streams open at a time.
    count_refusal : Callable[[str], None]
        Hears the reason of every refusal.
    count_watching : Callable[[int], None]
        Hears how many watch, whenever that changes.
    """

    def __init__(
        self,
        services: tuple[str, ...],
        refusal: Callable[[_Context], str | None],
        most_watching: int,
        count_refusal: Callable[[str], None],
        count_watching: Callable[[int], None],
    ) -> None:
        self._services = services
        self._refusal = refusal
        self._places = FairPlaces(most_watching)
        self._count_refusal = count_refusal
        self._count_watching = count_watching
        self._closing = asyncio.Event()

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """Return what a gRPC server needs to serve this; every call begins at once."""
        methods = {
            "Check": grpc.stream_unary_rpc_method_handler(self._check),
            "Watch": grpc.stream_stream_rpc_method_handler(self._watch),
        }
        if hasattr(health_pb2, "HealthListResponse"):  # newer versions of the service
            methods["List"] = grpc.stream_unary_rpc_method_handler(self._list)
        return grpc.method_handlers_generic_handler(_SERVICE, methods)

    def close(self) -> None:
        """Say NOT_SERVING from now on, and tell those who watch."""
        self._closing.set()

    def _status(self) -> bytes:
        status = _NOT_SERVING if self._closing.is_set() else _SERVING
        answer: bytes = health_pb2.HealthCheckResponse(
            status=status
        ).SerializeToString()
        return answer

    async def _check(self, _: object, context: _Context) -> bytes:
        """Answer once."""
        await self._refuse_for(context, self._refusal(context))
        return self._status()

    async def _list(self, _: object, context: _Context) -> bytes:
        """Answer once for every name."""
        await self._refuse_for(context, self._refusal(context))
        status = health_pb2.HealthCheckResponse.FromString(self._status())
        statuses = dict.fromkeys(self._services, status)
        listed: bytes = health_pb2.HealthListResponse(
            statuses=statuses
        ).SerializeToString()
        return listed

    async def _watch(self, _: object, context: _Context) -> None:
        """Answer now and when it changes, which it does once: at the end."""
        await self._refuse_for(context, self._refusal(context))
        network = network_of(address_of(context.peer()))
        if not self._places.take(network):
            await self._refuse_for(context, "too-many-streams")
        self._count_watching(self._places.taken)
        try:
            first = self._status()
            await context.write(first)
            await self._closing.wait()
            if self._status() != first:
                await context.write(self._status())
        finally:
            self._places.give_back(network)
            self._count_watching(self._places.taken)

    async def _refuse_for(self, context: _Context, reason: str | None) -> None:
        if reason is not None:
            self._count_refusal(reason)
            await context.abort(grpc.StatusCode[STATUS[reason]], reason)
