"""What the desk counts; `deploy` turns it into Prometheus metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

# Seconds; the last bucket is everything above.
LATENCY_BOUNDS_S = (
    0.005,
    0.02,
    0.1,
    0.5,
    1.0,
    5.0,
    20.0,
    60.0,
    300.0,
    3600.0,
)


class Histogram:
    """Counts of values at or below each bound, as Prometheus wants them."""

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS_S) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self.counts)


@dataclass(slots=True)
class DeskStats:
    """Counters and gauges of one desk, since it opened.

    Attributes
    ----------
    connected : int
        Nodes that attend now.
    greeting : int
        Streams that have not proved who they are yet.
    watching : int
        Health checks that stay open.
    attended : int
        Streams that were let in.
    reconnects : int
        … of these, by a node that had been here before.
    refused : Counter[str]
        Streams not let in, by reason.
    ended : Counter[str]
        Streams that were let in and ended, by reason (``hung-up``: by the node).
    requests : int
        Requests sent, repetitions included.
    repeated : int
        … of these, sent again after a reconnect.
    answers : Counter[str]
        Answers taken, by failure (``ok`` for none).
    unasked : int
        Answers nobody was waiting for: late, repeated, invented.
    visits : int
        Visits that were let in.
    visitors : int
        Nodes that came by and are expected again.
    bytes_in, bytes_out : int
        Message bytes of let-in nodes, without TLS and HTTP/2.
    latency : Histogram
        Seconds between asking and the answer.
    """

    connected: int = 0
    greeting: int = 0
    watching: int = 0
    attended: int = 0
    reconnects: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    repeated: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    unasked: int = 0
    visits: int = 0
    visitors: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    latency: Histogram = field(default_factory=Histogram)
