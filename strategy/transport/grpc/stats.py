"""What the gRPC server counts, and under which names Prometheus sees it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from prometheus_client import Histogram

from wallflower.strategy.measured import counter, gauge, histogram, labelled

_LATENCY_BOUNDS_S = (0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 20.0, 60.0, 300.0, 3600.0)


@dataclass(slots=True)
class GrpcServerStats:
    """Counters and gauges of one gRPC server, since it opened.

    Bytes are those of messages of let-in nodes, without TLS and HTTP/2; a stream that
    its node ended has the reason ``hung-up``.
    """

    connected: int = gauge("grpc_nodes_connected", "Nodes that are connected now")
    handshake: int = gauge(
        "grpc_streams_handshaking", "Streams that have not proved who they are yet"
    )
    watching: int = gauge("grpc_streams_watching", "Health checks that stay open")
    polling_nodes: int = gauge(
        "grpc_polling_nodes", "Nodes that came by and are expected again"
    )
    polls: int = counter("grpc_polls", "Polls that were let in")
    connections: int = counter("grpc_streams", "Streams that were let in")
    reconnects: int = counter("grpc_reconnects", "Streams of nodes that came back")
    refused: Counter[str] = labelled(
        "grpc_refused", "Streams not let in, by reason", "reason"
    )
    failed_handshakes: int = counter(
        "grpc_tls_handshakes_failed", "Connections that were no TLS 1.3, as gRPC says"
    )
    ended: Counter[str] = labelled("grpc_ended", "Streams that ended", "reason")
    requests: int = counter("grpc_requests", "Requests sent to nodes")
    repeated: int = counter("grpc_requests_repeated", "… sent again after a reconnect")
    answers: Counter[str] = labelled(
        "grpc_answers", "Answers, by failure or ok", "failure"
    )
    unasked: int = counter(
        "grpc_answers_unasked",
        "Answers nobody was waiting for: late, repeated or invented",
    )
    bytes_in: int = counter("grpc_bytes_in", "Message bytes from nodes")
    bytes_out: int = counter("grpc_bytes_out", "Message bytes to nodes")
    latency: Histogram = histogram(
        "grpc_answer_seconds", "From asking to the answer", _LATENCY_BOUNDS_S
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
