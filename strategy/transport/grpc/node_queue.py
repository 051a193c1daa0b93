"""One node at the gRPC server: what it was asked, and what is on its way.

Outlives the node's streams: after a reconnect everything unanswered goes out again
under the same request ids. A node that only polling is given what is asked of it when
it comes, and brings the answers another time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from wallflower.listening.limits import TokenBucket
from wallflower.protocol.messages.answers import REUSED
from wallflower.protocol.messages.port import Answer, NodeId, Request
from wallflower.protocol.wire import node_service_pb2
from wallflower.strategy.transport.grpc.stats import GrpcServerStats
from wallflower.strategy.transport.pending_requests import Inbox

MOST_GIVEN = 32  # requests to a polling node at once; it takes the rest next time


@dataclass(slots=True)
class _Pending:
    """An unanswered request and everyone who waits for it."""

    request: Request
    asked_at: float
    inboxes: list[Inbox] = field(default_factory=list)
    out: bool = False  # sent on the present stream
    given_to: bytes | None = None  # the store of answers that has seen it


@dataclass(slots=True)
class PollState:
    """What the gRPC server keeps of a node that comes now and then."""

    bucket: TokenBucket
    at_ms: int  # of the last poll, by the node's clock
    next_s: float  # when it was told to come again
    prepared: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def patience_s(self) -> float:
        """How long it may stay away: as with heartbeats, three times what was said."""
        return 3 * self.next_s


class NodeQueue:
    """The gRPC server's memory of one node; `polling` if it does not stay."""

    def __init__(self, node_id: NodeId, stats: GrpcServerStats, now: float) -> None:
        self.node_id = node_id
        self.here = False
        self.instance: bytes | None = None
        self.left_at = now
        self.polling: PollState | None = None
        self._stats = stats
        self._pending: dict[str, _Pending] = {}
        self._waiting: deque[str] = deque()
        self._abandoned: deque[str] = deque()
        self._out = 0

    @property
    def idle(self) -> bool:
        """True when nothing is asked of the node."""
        return not self._pending

    def is_away(self, now: float, return_s: float) -> bool:
        """Return whether the node has stayed away for longer than it may."""
        patience_s = return_s if self.polling is None else self.polling.patience_s
        return not self.here and now - self.left_at > patience_s

    def ask(self, request: Request, inbox: Inbox, now: float) -> None:
        """Queue a request, or wait with others for the same one."""
        if self.polling is not None and request.body in self.polling.prepared:
            body = self.polling.prepared[request.body]
            inbox.deliver(Answer(self.node_id, request.request_id, body))
            return
        pending = self._pending.get(request.request_id)
        if pending is None:
            pending = _Pending(request, now)
            self._pending[request.request_id] = pending
            self._waiting.append(request.request_id)
        elif pending.request.body != request.body:
            inbox.refuse(request, REUSED)
            return
        pending.inboxes.append(inbox)

    def answer(
        self, request_id: str, body: bytes, failure: str | None, now: float
    ) -> bool:
        """Hand an answer to those who wait; False when nobody does."""
        pending = self._pending.pop(request_id, None)
        if pending is None:
            self._stats.unasked += 1
            return False
        self._out -= pending.out
        self._stats.answers[failure or "ok"] += 1
        self._stats.latency.observe(now - pending.asked_at)
        for inbox in pending.inboxes:
            inbox.deliver(Answer(self.node_id, request_id, body, failure))
        return True

    def stop_waiting(self, request_id: str, inbox: Inbox) -> None:
        """Stop waiting for a request; the node is told when nobody waits any more."""
        pending = self._pending.get(request_id)
        if pending is None or inbox not in pending.inboxes:
            return
        pending.inboxes.remove(inbox)
        if not pending.inboxes:
            del self._pending[request_id]
            if pending.out:
                self._out -= 1
                self._abandoned.append(request_id)

    def arrive(self, instance: bytes, now: float) -> None:
        """Begin a new stream: everything unanswered is to be sent (again).

        A node that came back with another store of answers cannot know what it
        answered before; what its former self was given fails instead of being worked
        on twice.
        """
        self._meet(instance, now)
        self.here, self.polling = True, None
        self._out = 0
        self._waiting = deque(self._pending)
        self._abandoned.clear()

    def _meet(self, instance: bytes, now: float) -> None:
        for request_id, pending in list(self._pending.items()):
            pending.out = False
            if pending.given_to not in (None, instance):
                self.answer(request_id, b"", "node-restarted", now)
        self.instance = instance

    def note_poll(self, instance: bytes, polling: PollState, now: float) -> None:
        """Take note that the node came by."""
        self._meet(instance, now)
        self.polling, self.left_at = polling, now

    def list_unanswered(self, most_bytes: int) -> Iterator[Request]:
        """Return what a polling node is asked; it works until somebody gives up."""
        for pending in list(self._pending.values())[:MOST_GIVEN]:
            most_bytes -= len(pending.request.body) + len(pending.request.request_id)
            if most_bytes < 0:
                return
            self._stats.requests += 1
            self._stats.repeated += pending.given_to is not None
            pending.given_to = self.instance
            yield pending.request

    def depart(self, now: float) -> None:
        """Note that the stream is gone."""
        self.here = False
        self.left_at = now

    def fail_all(self, failure: str, now: float) -> None:
        """Return up on everything that was asked."""
        for request_id in list(self._pending):
            self.answer(request_id, b"", failure, now)

    def give_up(self, now: float) -> None:
        """Return up on a node that stays away.

        Not on what a polling node has with it: an outcome may take as long as its asker
        waits, and meanwhile nothing brings it here.
        """
        for request_id, pending in list(self._pending.items()):
            if self.polling is None or pending.given_to is None:
                self.answer(request_id, b"", "node-gone", now)

    def next_frame(self, window: int) -> bytes | None:
        """Return the next message to send, or None when there is nothing to do."""
        if self._abandoned:
            gone = node_service_pb2.Abandon(request_id=self._abandoned.popleft())
            return node_service_pb2.FromServer(abandon=gone).SerializeToString()
        while self._waiting and self._out < window:
            pending = self._pending.get(self._waiting.popleft())
            if pending is None or pending.out:
                continue
            self._stats.requests += 1
            self._stats.repeated += pending.given_to is not None
            pending.out, pending.given_to = True, self.instance
            self._out += 1
            asked = node_service_pb2.PendingRequest(
                request_id=pending.request.request_id, body=pending.request.body
            )
            return node_service_pb2.FromServer(request=asked).SerializeToString()
        return None
