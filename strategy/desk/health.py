"""The standard gRPC health service on the desk's port, for whoever asks.

Nobody shows an identity here, so what strangers may hold open is bounded: a fixed
number of `Watch` streams, counted apart from the nodes', and none from an address that
is not listened to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from wallflower.protocol.identity.tokens import STATUS
from wallflower.strategy.desk.stats import DeskStats

_Context = grpc.aio.ServicerContext[
    health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
]
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class DeskHealth:
    """Says whether the desk serves.

    Parameters
    ----------
    services : tuple[str, ...]
        The names that are known here.
    refusal : Callable[[_Context], str | None]
        Gives the reason for which a caller is not listened to.
    most_watching : int
        `Watch` streams open at a time.
    stats : DeskStats
        Counts who watches and who was refused.
    """

    def __init__(
        self,
        services: tuple[str, ...],
        refusal: Callable[[_Context], str | None],
        most_watching: int,
        stats: DeskStats,
    ) -> None:
        self._services = services
        self._refusal = refusal
        self._most = most_watching
        self._stats = stats
        self._closing = asyncio.Event()

    def close(self) -> None:
        """Say NOT_SERVING from now on, and tell those who watch."""
        self._closing.set()

    def _status(self, service: str) -> health_pb2.HealthCheckResponse:
        serving = _NOT_SERVING if self._closing.is_set() else _SERVING
        known = service in self._services
        return health_pb2.HealthCheckResponse(status=serving if known else _UNKNOWN)

    async def Check(  # noqa: N802 (gRPC's name)
        self, request: health_pb2.HealthCheckRequest, context: _Context
    ) -> health_pb2.HealthCheckResponse:
        """Answer once."""
        await self._admit(context, self._refusal(context))
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return self._status(request.service)

    async def Watch(  # noqa: N802 (gRPC's name)
        self, request: health_pb2.HealthCheckRequest, context: _Context
    ) -> None:
        """Answer now and when it changes, which it does once: at the end."""
        full = self._stats.watching >= self._most
        await self._admit(
            context, self._refusal(context) or ("too-many-streams" if full else None)
        )
        self._stats.watching += 1
        try:
            first = self._status(request.service)
            await context.write(first)
            await self._closing.wait()
            last = self._status(request.service)
            if last != first:
                await context.write(last)
        finally:
            self._stats.watching -= 1

    async def _admit(self, context: _Context, reason: str | None) -> None:
        if reason is not None:
            self._stats.refused[reason] += 1
            await context.abort(grpc.StatusCode[STATUS[reason]], reason)
