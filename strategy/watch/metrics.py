"""Prometheus metrics of a run: what the gRPC server counted, and how the run goes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from wallflower.strategy.measured import families


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
