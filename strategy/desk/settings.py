"""The desk's limits: how much, how fast, how many, how long."""

from __future__ import annotations

from dataclasses import dataclass, fields

from wallflower.protocol.errors import InputError
from wallflower.protocol.numbers import whole


@dataclass(frozen=True, slots=True)
class DeskSettings:
    """Limits of a desk; the defaults suit 10,000 nodes on a small server.

    Attributes
    ----------
    most_bytes : int
        Largest message from a node.
    most_bytes_out : int
        Largest request; a committee member's list of what to add up is one message.
    most_streams : int
        Open streams in all; the next one gets RESOURCE_EXHAUSTED.
    most_greeting : int
        Streams that have not proved who they are yet, of the above.
    most_watching : int
        Health checks that stay open (gRPC's `Watch`); no identity is asked of them,
        so they have no part in the streams above.
    window : int
        Requests out to one node at once; the rest wait at the desk.
    frames_per_s, frames_burst : int
        Messages one node may send, in the long run and at once.
    refusals_per_s, refusals_burst : int
        Failed greetings one network address may make before it is not listened to.
    heartbeat_s : float
        How often a node says it is there, at most; three missing beats end its stream.
    beats_per_s : int
        Heartbeats of all nodes together; with many nodes each is told to beat more
        seldom, so that waiting costs the same whatever their number.
    greeting_s : float
        How long the greeting may take.
    return_s : float
        How long a node that lost its stream may take to come back before what it was
        asked fails with ``node-gone``.
    closing_s : float
        How long a graceful shutdown waits for nodes to hang up.
    """

    most_bytes: int = 4 * 2**20
    most_bytes_out: int = 65 * 2**20
    most_streams: int = 20_000
    most_greeting: int = 2_000
    most_watching: int = 64
    window: int = 32
    frames_per_s: int = 500
    frames_burst: int = 2_000
    refusals_per_s: int = 20
    refusals_burst: int = 200
    heartbeat_s: float = 10.0
    beats_per_s: int = 10
    greeting_s: float = 15.0
    return_s: float = 30.0
    closing_s: float = 5.0

    def __post_init__(self) -> None:
        """Refuse limits that would let nothing through."""
        for field in fields(self):
            name, value = field.name.replace("_", "-"), getattr(self, field.name)
            if field.type == "int":
                whole(name, value, at_least=1)
            elif not 0 < value <= 86_400:
                raise InputError(name, value, "more than 0 seconds, at most a day")
