"""The gRPC server's limits: how much, how fast, how many, how long."""

from __future__ import annotations

from dataclasses import dataclass, fields

from wallflower.listening.descriptors import RESERVED
from wallflower.listening.limits import connection_options
from wallflower.protocol.errors import InputError
from wallflower.protocol.numbers import whole


@dataclass(frozen=True, slots=True)
class GrpcServerSettings:
    """Limits of a gRPC server; the defaults suit 10,000 nodes on a small server.

    Attributes
    ----------
    most_bytes : int
        Largest message from a node.
    most_bytes_out : int
        Largest request; a committee member's list of what to add up is one message.
    most_streams : int
        Open streams in all; the next one gets RESOURCE_EXHAUSTED.
    most_handshakes : int
        Streams that showed a run token and have not proved who they are yet, of the
        above; shared out by network (/24, /64, see `FairPlaces`).
    most_watching : int
        Health checks that stay open (gRPC's `Watch`); no identity is asked of them,
        so they have no part in the streams above; shared out by network too.
    window : int
        Requests out to one node at once; the rest wait at the gRPC server.
    frames_per_s, frames_burst : int
        Messages one node may send, in the long run and at once.
    refusals_per_s, refusals_burst : int
        Failed handshakes one network may make before its strangers are not listened to.
    heartbeat_s : float
        How often a node says it is there, at most; three missing beats end its stream.
    beats_per_s : int
        Heartbeats of all nodes together; with many nodes each is told to beat more
        seldom, so that waiting costs the same whatever their number.
    most_polling_nodes : int
        Nodes known to come by; the next one is refused.
    poll_s : float
        How long polling nodes are told to stay away, at least.
    polls_per_s : int
        Polls of all nodes together; many are told to come more seldom.
    polls_burst : int
        Polls one node may make at once; in the long run four in `poll_s`.
    farewell_s : float
        How long a run that is over waits for its polling nodes to hear of it.
    handshake_s : float
        How long the handshake may take.
    return_s : float
        How long a node that lost its stream may take to come back before what it was
        asked fails with ``node-gone``.
    """

    most_bytes: int = 4 * 2**20
    most_bytes_out: int = 65 * 2**20
    most_streams: int = 20_000
    most_handshakes: int = 2_000
    most_watching: int = 16
    window: int = 32
    frames_per_s: int = 500
    frames_burst: int = 2_000
    refusals_per_s: int = 20
    refusals_burst: int = 200
    heartbeat_s: float = 10.0
    beats_per_s: int = 10
    most_polling_nodes: int = 200_000
    poll_s: float = 10.0
    polls_per_s: int = 100
    polls_burst: int = 20
    farewell_s: float = 30.0
    handshake_s: float = 15.0
    return_s: float = 60.0

    def __post_init__(self) -> None:
        """Refuse limits that would let nothing through."""
        for field in fields(self):
            name, value = field.name.replace("_", "-"), getattr(self, field.name)
            if field.type == "int":
                whole(name, value, at_least=1)
            elif not 0 < value <= 86_400:
                raise InputError(name, value, "more than 0 seconds, at most a day")

    def channel_options(self, streams: int) -> list[tuple[str, int]]:
        """Return gRPC's options of a gRPC server with room for so many streams."""
        return [
            ("grpc.max_receive_message_length", self.most_bytes),
            ("grpc.max_send_message_length", self.most_bytes_out),
            # A peer that died without a word is found whatever the pace of heartbeats.
            ("grpc.keepalive_time_ms", 120_000),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 60_000),  # a node's
            # Who has a connection and no stream costs a descriptor all the same.
            *connection_options(streams + RESERVED // 2),
        ]
