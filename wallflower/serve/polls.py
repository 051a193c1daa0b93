"""What both wires of a worker share: the handler, and what is counted."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from wallflower.strategy.transport.visitors.handler import PollResult, VisitorHandler

_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class BusyError(Exception):
    """As many polls wait as may; the caller should come again."""


class VisitorMetrics:
    """What a worker counts: polls and seconds, nothing of what a poll holds."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.polls = Counter(
            "wallflower_visitor_polls",
            "Polls that the handler answered, by what became of them.",
            ["event", "reason"],
            registry=registry,
        )
        self.refused = Counter(
            "wallflower_visitor_refused_calls",
            "Calls that did not reach the handler, by reason.",
            ["reason"],
            registry=registry,
        )
        self.seconds = Histogram(
            "wallflower_visitor_poll_seconds",
            "From having read a poll to its reply.",
            buckets=_BOUNDS_S,
            registry=registry,
        )
        self.waiting = Gauge(
            "wallflower_visitor_waiting_polls",
            "Polls that were read and are not answered.",
            registry=registry,
            multiprocess_mode="livesum",
        )


class Polls:
    """Answers polls, so many at a time.

    Parameters
    ----------
    handler : VisitorHandler
        Answers a poll.
    metrics : VisitorMetrics
        Counts what became of it.
    most_waiting : int
        Polls that may be under way at a time.
    """

    def __init__(
        self, handler: VisitorHandler, metrics: VisitorMetrics, most_waiting: int
    ) -> None:
        self._handler = handler
        self._metrics = metrics
        self._most_waiting = most_waiting
        self._waiting = 0

    async def answer(self, body: bytes) -> PollResult:
        """Answer a poll; raise BusyError where too many wait."""
        if self._waiting >= self._most_waiting:
            self.count_refusal("busy")
            raise BusyError
        self._waiting += 1
        self._metrics.waiting.set(self._waiting)
        begun = time.perf_counter()
        try:
            result = await self._handler.handle(body)
        finally:
            self._waiting -= 1
            self._metrics.waiting.set(self._waiting)
        self._metrics.seconds.observe(time.perf_counter() - begun)
        self._metrics.polls.labels(result.event, result.reason).inc()
        return result

    def count_refusal(self, reason: str) -> None:
        """Count a call that did not reach the handler."""
        self._metrics.refused.labels(reason).inc()
