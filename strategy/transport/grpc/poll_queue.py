"""Nodes that do not stay: each comes by with one short call, and may vanish in between.

A poll brings what the node answered and takes along what is asked of it. The answer
comes with a later poll, hours afterwards if an outcome takes hours. A poll proves as
much as the handshake of a stream, at once, and nothing is waited for.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import MutableMapping

from google.protobuf.message import DecodeError

from wallflower.listening.limits import TokenBucket
from wallflower.protocol.identity.canonical import LONGEST_NAME
from wallflower.protocol.messages.port import NodeId
from wallflower.protocol.wire import node_service_pb2
from wallflower.strategy.transport.grpc.admission import Admission, RefusedError
from wallflower.strategy.transport.grpc.node_queue import NodeQueue, PollState
from wallflower.strategy.transport.grpc.settings import GrpcServerSettings
from wallflower.strategy.transport.grpc.stats import GrpcServerStats

_MOST_PREPARED = 4
# Of one polling node, read after it proved who it is.
MOST_POLL_BYTES = 256 * 2**10


class PollQueue:
    """The polling nodes of a gRPC server.

    Parameters
    ----------
    admission : Admission
        Who gets in.
    fingerprint : bytes
        Of the gRPC server's TLS certificate.
    settings, stats : GrpcServerSettings, GrpcServerStats
        The gRPC server's.
    node_queues : MutableMapping[NodeId, NodeQueue]
        Every node that the gRPC server knows; those that poll for the first time are
        added.
    """

    def __init__(
        self,
        admission: Admission,
        fingerprint: bytes,
        settings: GrpcServerSettings,
        node_queues: MutableMapping[NodeId, NodeQueue],
        stats: GrpcServerStats,
    ) -> None:
        self.run_over: str | None = None
        self._admission = admission
        self._fingerprint = fingerprint
        self._settings = settings
        self._node_queues = node_queues
        self._stats = stats
        # By when each must be back; a poll puts its node at the end.
        self._until: OrderedDict[NodeId, float] = OrderedDict()

    def expected(self, now: float) -> frozenset[NodeId]:
        """Name the polling nodes that came by not long ago and will be back."""
        return frozenset(self._until) if self.count(now) else frozenset()

    def count(self, now: float) -> int:
        """Return how many are expected; who stays away for too long no longer is."""
        while self._until and next(iter(self._until.values())) < now:
            self._until.popitem(last=False)
        self._stats.polling_nodes = len(self._until)
        return len(self._until)

    def check(self, handshake: node_service_pb2.PollHandshake) -> bytes:
        """Check who comes, before the poll is read; give what was proved."""
        return self._admission.check_poll(handshake, self._fingerprint)

    def serve(
        self,
        handshake: node_service_pb2.PollHandshake,
        transcribed: bytes,
        raw: bytes,
        now: float,
    ) -> bytes:
        """Take a poll that was checked and give the reply; raises `RefusedError`."""
        if len(raw) > MOST_POLL_BYTES:
            raise RefusedError("too-large")
        if hashlib.sha256(raw).digest() != handshake.digest:
            raise RefusedError("malformed-message")
        try:
            brought = node_service_pb2.PollRequest.FromString(raw)
        except DecodeError:
            raise RefusedError("malformed-message") from None
        node_queue = self._let_in(handshake, now)
        self._stats.polls += 1
        self._stats.bytes_in += len(raw)
        if self.run_over is not None:
            self._until.pop(node_queue.node_id, None)
            asked = node_service_pb2.PollReplyBody(run_over=self.run_over)
        else:
            asked = self._exchange(node_queue, brought, now)
        body = asked.SerializeToString()
        self._stats.bytes_out += len(body)
        proof = self._admission.reply_proof(handshake.hello, transcribed, body)
        return node_service_pb2.PollReply(
            body=body, server_proof=proof
        ).SerializeToString()

    def _let_in(
        self, handshake: node_service_pb2.PollHandshake, now: float
    ) -> NodeQueue:
        """Find the node of a poll that was proved, and see that it is a new one."""
        hello, settings = handshake.hello, self._settings
        node_queue = self._node_queues.get(hello.node_id)
        if node_queue is None:
            if len(self._node_queues) >= settings.most_polling_nodes:
                raise RefusedError("too-many-streams")
            node_queue = NodeQueue(hello.node_id, self._stats, now)
            self._node_queues[hello.node_id] = node_queue
        if node_queue.here:
            raise RefusedError("already-connected")
        polling = node_queue.polling
        if polling is None:
            rate = 4 / settings.poll_s
            bucket = TokenBucket(rate, settings.polls_burst, now)
            polling = PollState(bucket, 0, settings.poll_s)
        if handshake.at_ms <= polling.at_ms:
            raise RefusedError("poll-repeated")
        if not polling.bucket.take(now):
            raise RefusedError("too-fast")
        polling.at_ms = handshake.at_ms
        node_queue.note_poll(hello.instance, polling, now)
        return node_queue

    def _exchange(
        self, node_queue: NodeQueue, brought: node_service_pb2.PollRequest, now: float
    ) -> node_service_pb2.PollReplyBody:
        polling = node_queue.polling
        assert polling is not None
        if any(not _is_sound(answer) for answer in brought.answers):
            raise RefusedError("malformed-message")
        asked = node_service_pb2.PollReplyBody(
            most_bytes=MOST_POLL_BYTES,
            trust_label=self._admission.label,
        )
        for answer in brought.answers:
            failure = answer.failure if answer.WhichOneof("kind") == "failure" else None
            if not node_queue.answer(answer.request_id, answer.body, failure, now):
                asked.not_taken.append(answer.request_id[:LONGEST_NAME])
        if brought.prepared:
            polling.prepared = {
                one.request: one.answer for one in brought.prepared[:_MOST_PREPARED]
            }
        for request in node_queue.list_unanswered(self._settings.most_bytes_out // 2):
            asked.requests.add(request_id=request.request_id, body=request.body)
        polling.next_s = self._pace()
        asked.next_ms = round(polling.next_s * 1000)
        self._until[node_queue.node_id] = now + polling.patience_s
        self._until.move_to_end(node_queue.node_id)
        self._stats.polling_nodes = len(self._until)
        return asked

    def _pace(self) -> float:
        """Return when to come again: all together no more often than we like."""
        settings = self._settings
        return max(settings.poll_s, len(self._until) / settings.polls_per_s)


def _is_sound(answer: node_service_pb2.PendingAnswer) -> bool:
    if answer.WhichOneof("kind") == "body":
        return True
    return 0 < len(answer.failure) <= LONGEST_NAME
