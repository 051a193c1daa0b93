"""Prometheus metrics of a run: what the desk counted, and how the run goes.

Every number counts people, messages, streams or seconds. Sums, estimates and bounds are
not exported: they belong to the journal, whose readers are fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from wallflower.strategy.desk.stats import DeskStats, Histogram

PREFIX = "wallflower"


class Source(Protocol):
    """Something that turns its state into metrics when scraped."""

    def families(self) -> Iterable[Metric]:
        """Give the metric families as they stand now."""
        ...


class _Adapter(Collector):
    def __init__(self, source: Source) -> None:
        self._source = source

    def collect(self) -> Iterable[Metric]:
        return self._source.families()


class Metrics:
    """A registry of its own, so that two runs in one process never mix."""

    def __init__(self, *sources: Source) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        for source in sources:
            self.add(source)

    def add(self, source: Source) -> None:
        """Export one more source."""
        self._registry.register(_Adapter(source))

    def text(self) -> bytes:
        """Give all metrics in Prometheus' text form."""
        return generate_latest(self._registry)


class DeskMetrics:
    """The desk's counters (`DeskStats`) under Prometheus names."""

    def __init__(self, stats: DeskStats) -> None:
        self._stats = stats

    def families(self) -> Iterable[Metric]:
        """Give gauges, counters and the latency histogram."""
        stats = self._stats
        yield gauge("desk_nodes_connected", "Nodes that attend now", stats.connected)
        yield gauge(
            "desk_streams_greeting",
            "Streams that have not proved who they are yet",
            stats.greeting,
        )
        yield gauge(
            "desk_streams_watching", "Health checks that stay open", stats.watching
        )
        yield gauge(
            "desk_visitors", "Nodes that came by and are expected again", stats.visitors
        )
        yield counter("desk_visits", "Visits that were let in", stats.visits)
        yield counter("desk_streams", "Streams that were let in", stats.attended)
        yield counter(
            "desk_reconnects", "Streams of nodes that came back", stats.reconnects
        )
        yield labelled(
            "desk_refused", "Streams not let in, by reason", "reason", stats.refused
        )
        yield labelled("desk_ended", "Streams that ended", "reason", stats.ended)
        yield counter("desk_requests", "Requests sent to nodes", stats.requests)
        yield counter(
            "desk_requests_repeated", "… sent again after a reconnect", stats.repeated
        )
        yield labelled(
            "desk_answers", "Answers, by failure or ok", "failure", stats.answers
        )
        yield counter(
            "desk_answers_unasked",
            "Answers nobody was waiting for: late, repeated or invented",
            stats.unasked,
        )
        yield counter("desk_bytes_in", "Message bytes from nodes", stats.bytes_in)
        yield counter("desk_bytes_out", "Message bytes to nodes", stats.bytes_out)
        yield histogram(
            "desk_answer_seconds", "From asking to the answer", stats.latency
        )


def gauge(name: str, text: str, value: float) -> Metric:
    """Give a gauge without labels."""
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)


def counter(name: str, text: str, value: float) -> Metric:
    """Give a counter without labels."""
    return CounterMetricFamily(f"{PREFIX}_{name}", text, value=value)


def labelled(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    """Give a counter with one label, one sample for each of its values."""
    family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


def histogram(name: str, text: str, held: Histogram) -> Metric:
    """Give a histogram; Prometheus wants cumulative counts and the sum."""
    family = HistogramMetricFamily(f"{PREFIX}_{name}", text)
    buckets, below = [], 0
    for bound, count in zip([*held.bounds, None], held.counts, strict=True):
        below += count
        buckets.append(("+Inf" if bound is None else str(bound), below))
    family.add_metric([], buckets, sum_value=held.total)
    return family
