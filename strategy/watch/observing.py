"""Logs and metrics of a run, as the process's environment asks for them.

``WALLFLOWER_LOGS=json`` writes structured lines to standard error;
``WALLFLOWER_METRICS=host:port`` serves /metrics and the health probes while the run is
under way. Without either nothing is opened and nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from wallflower.protocol.files.logs import installed_from
from wallflower.strategy.measured import families
from wallflower.strategy.store import events
from wallflower.strategy.transport.grpc.stats import GrpcServerStats
from wallflower.strategy.watch.endpoint import health_endpoint
from wallflower.strategy.watch.telemetry import RunLog, RunMetrics, fan_out


class Metrics(Collector):
    """What dataclasses with measured fields hold, whenever it is asked for.

    A registry of its own, so that two runs in one process never mix.
    """

    def __init__(self, *counts: Any) -> None:
        self._counts = counts
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return the metric families as they stand now."""
        for counts in self._counts:
            yield from families(counts)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text form."""
        return generate_latest(self._registry)


METRICS = "WALLFLOWER_METRICS"


@asynccontextmanager
async def observe_run(
    run_id: str,
    stats: GrpcServerStats | None = None,
    environment: Mapping[str, str] = os.environ,
) -> AsyncIterator[events.Listen]:
    """Return the listener that feeds logs and metrics; both end with the context.

    Parameters
    ----------
    run_id : str
        The run.
    stats : GrpcServerStats, optional
        The gRPC server's counters, where there is a gRPC server.
    environment : Mapping[str, str]
        Where the two variables are sought.
    """
    listeners: list[events.Listen] = []
    async with AsyncExitStack() as stack:
        if stack.enter_context(installed_from(environment)):
            listeners.append(RunLog(run_id))
        if environment.get(METRICS):
            run = RunMetrics(run_id)
            metrics = Metrics(run) if stats is None else Metrics(run, stats)
            listeners.append(run)

            def ready() -> str | None:
                waiting = stats is not None and not stats.connected
                return "no node is connected yet" if waiting else None

            await stack.enter_async_context(
                health_endpoint(environment[METRICS], metrics.text, ready)
            )
        yield fan_out(*listeners)
