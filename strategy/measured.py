"""Fields of a dataclass that say under which name Prometheus sees them.

Every number counts people, messages, streams or seconds. Sums, estimates and bounds are
not exported: they belong to the journal, whose readers are fewer.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

_METRIC = "metric"


def gauge(name: str, text: str, default: float = 0) -> Any:
    """Declare what goes up and down."""
    return _field(
        lambda value: GaugeMetricFamily(_full(name), text, value=value),
        default=default,
    )


def counter(name: str, text: str) -> Any:
    """Declare what only goes up."""
    return _field(
        lambda value: CounterMetricFamily(_full(name), text, value=value), default=0
    )


def labelled(name: str, text: str, label: str) -> Any:
    """Declare a `Counter` whose keys are the values of one label."""

    def family(counts: Mapping[str, int]) -> Metric:
        found = CounterMetricFamily(_full(name), text, labels=[label])
        for value, count in counts.items():
            found.add_metric([value], count)
        return found

    return _field(family, default_factory=Counter)


def named(name: str, text: str, label: str) -> Any:
    """Declare a text that is told as the label of a constant 1."""

    def family(value: str) -> Metric:
        found = GaugeMetricFamily(_full(name), text, labels=[label])
        found.add_metric([value], 1)
        return found

    return _field(family)


def histogram(name: str, text: str, bounds: Sequence[float]) -> Any:
    """Declare a `Histogram`; everything above the last bound has a bucket too."""

    def family(held: Histogram) -> Metric:
        (found,) = held.collect()
        found.samples = [s for s in found.samples if not s.name.endswith("_created")]
        return found

    def made() -> Histogram:
        return Histogram(_full(name), text, buckets=bounds, registry=None)

    return _field(family, default_factory=made)


def families(counts: Any) -> Iterator[Metric]:
    """Return the metric families of a dataclass as they stand now."""
    for one in dataclasses.fields(counts):
        if _METRIC in one.metadata:
            yield one.metadata[_METRIC](getattr(counts, one.name))


def _full(name: str) -> str:
    return f"wallflower_{name}"


def _field(family: Callable[[Any], Metric], **default: Any) -> Any:
    return dataclasses.field(metadata={_METRIC: family}, **default)
