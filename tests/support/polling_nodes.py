"""Polls of a gRPC server, good ones and others, made by hand."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import grpc.aio

from tests.support.grpc_fixtures import FAST, House
from tests.support.intruder import channel_to, good_token, hello_of
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.protocol.identity.tokens import (
    HANDSHAKE,
    POLL,
    RunToken,
    poll_transcript,
    token_proof,
)
from wallflower.protocol.wire import node_service_pb2
from wallflower.strategy.transport.grpc.admission import Admission
from wallflower.strategy.transport.grpc.node_queue import NodeQueue
from wallflower.strategy.transport.grpc.poll_queue import PollQueue
from wallflower.strategy.transport.grpc.settings import GrpcServerSettings
from wallflower.strategy.transport.grpc.stats import GrpcServerStats

INSTANCE = b"i" * 16
Poll = tuple[bytes, bytes]  # what its headers say, and what it brings


def make_poll(
    house: House,
    identity: NodeIdentity,
    answers: Mapping[str, bytes] | None = None,
    *,
    at_ms: int | None = None,
    token: RunToken | None = None,
    prepared: Mapping[bytes, bytes] | None = None,
    tamper: Callable[[node_service_pb2.PollHandshake], None] = lambda poll: None,
    brings: Callable[[bytes], bytes] = bytes,
    signer: NodeIdentity | None = None,
    fingerprint: bytes = b"",
    **changes: Any,
) -> Poll:
    """Return a correct poll, but for what is changed.

    `tamper` changes what was signed, `brings` what comes after the headers.
    """
    token = token or good_token(house, identity.node_id)
    changes.setdefault("instance", INSTANCE)
    brought = node_service_pb2.PollRequest()
    for request_id, body in (answers or {}).items():
        brought.answers.add(request_id=request_id, body=body)
    for request, answer in (prepared or {}).items():
        brought.prepared.add(request=request, answer=answer)
    body = brought.SerializeToString()
    poll = node_service_pb2.PollHandshake(
        hello=hello_of(house, identity, token, **changes),
        at_ms=time.time_ns() // 1_000_000 if at_ms is None else at_ms,
        server_fingerprint=fingerprint,
        digest=hashlib.sha256(body).digest(),
    )
    transcript = poll_transcript(poll)
    poll.proof.signature = (signer or identity).sign(transcript)
    poll.proof.token_proof = token_proof(token, "node", transcript)
    tamper(poll)
    return poll.SerializeToString(), brings(body)


def read(raw: bytes) -> node_service_pb2.PollReplyBody:
    return node_service_pb2.PollReplyBody.FromString(
        node_service_pb2.PollReply.FromString(raw).body
    )


async def call(
    port: int, poll: Poll
) -> node_service_pb2.PollReplyBody | tuple[str, str]:
    """Poll once over TLS; return the reply, or status and reason."""
    handshake, body = poll
    async with channel_to(port) as channel:
        begin = channel.unary_unary(POLL, None, None)
        try:
            return read(
                await begin(body, metadata=((HANDSHAKE, handshake),), timeout=60)
            )
        except grpc.aio.AioRpcError as error:
            return error.code().name, error.details() or ""


class Hall:
    """A poll queue without a network, on a clock of its own."""

    def __init__(self, house: House, settings: GrpcServerSettings = FAST) -> None:
        self.house = house
        self.now = 1000.0
        self.node_queues: dict[str, NodeQueue] = {}
        self.stats = GrpcServerStats()
        admission = Admission(
            house.tokens, house.admission()._keys, house.revoked, clock=self.time
        )
        self.poll_queue = PollQueue(
            admission, b"f" * 32, settings, self.node_queues, self.stats
        )

    def time(self) -> float:
        return time.time() + self.now - 1000.0

    def poll(
        self,
        identity: NodeIdentity,
        answers: Mapping[str, bytes] | None = None,
        **more: Any,
    ) -> node_service_pb2.PollReplyBody:
        more.setdefault("at_ms", self._next_ms())
        return self.serve(make_poll(self.house, identity, answers, **more))

    def serve(self, poll: Poll) -> node_service_pb2.PollReplyBody:
        handshake, body = node_service_pb2.PollHandshake.FromString(poll[0]), poll[1]
        transcript = self.poll_queue.check(handshake)
        return read(self.poll_queue.serve(handshake, transcript, body, self.now))

    def _next_ms(self) -> int:
        self.now += 0.001
        return round(self.time() * 1000)
