"""What the desk counts, and under which names Prometheus sees it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from prometheus_client import Histogram

from wallflower.strategy.record.measured import counter, gauge, histogram, labelled

_LATENCY_BOUNDS_S = (0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 20.0, 60.0, 300.0, 3600.0)


@dataclass(slots=True)
class DeskStats:
    """Counters and gauges of one desk, since it opened.

    Bytes are those of messages of let-in nodes, without TLS and HTTP/2; a stream that
    its node ended has the reason ``hung-up``.
    """

    connected: int = gauge("desk_nodes_connected", "Nodes that attend now")
    greeting: int = gauge(
        "desk_streams_greeting", "Streams that have not proved who they are yet"
    )
    watching: int = gauge("desk_streams_watching", "Health checks that stay open")
    visitors: int = gauge("desk_visitors", "Nodes that came by and are expected again")
    visits: int = counter("desk_visits", "Visits that were let in")
    attended: int = counter("desk_streams", "Streams that were let in")
    reconnects: int = counter("desk_reconnects", "Streams of nodes that came back")
    refused: Counter[str] = labelled(
        "desk_refused", "Streams not let in, by reason", "reason"
    )
    failed_handshakes: int = counter(
        "desk_tls_handshakes_failed", "Connections that were no TLS 1.3, as gRPC says"
    )
    ended: Counter[str] = labelled("desk_ended", "Streams that ended", "reason")
    requests: int = counter("desk_requests", "Requests sent to nodes")
    repeated: int = counter("desk_requests_repeated", "… sent again after a reconnect")
    answers: Counter[str] = labelled(
        "desk_answers", "Answers, by failure or ok", "failure"
    )
    unasked: int = counter(
        "desk_answers_unasked",
        "Answers nobody was waiting for: late, repeated or invented",
    )
    bytes_in: int = counter("desk_bytes_in", "Message bytes from nodes")
    bytes_out: int = counter("desk_bytes_out", "Message bytes to nodes")
    latency: Histogram = histogram(
        "desk_answer_seconds", "From asking to the answer", _LATENCY_BOUNDS_S
    )

    def count_refusal(self, reason: str) -> None:
        """Count one more call that was not let in."""
        self.refused[reason] += 1

    def count_failed_handshake(self) -> None:
        """Count one more connection that did not get as far as a call."""
        self.failed_handshakes += 1

    def count_watching(self, streams: int) -> None:
        """Note how many health checks stay open."""
        self.watching = streams
