"""A node's side of the gRPC server without a stream: come by, answer, leave.

One call asks what is wanted and one brings the answer, hours later if the outcome takes
hours; between them nothing is open. What is lost on the way is brought again, and the
same request always has the same answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from dataclasses import dataclass

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from wallflower.clients.transport.grpc_client import (
    Invitation,
    certificate_refused,
    check_waits,
    not_reached,
    open_channel,
)
from wallflower.clients.transport.grpc_stream import (
    CERTIFICATE_REFUSED,
    new_hello,
    reason_of,
)
from wallflower.protocol.errors import (
    AuthenticationError,
    MalformedMessageError,
)
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.protocol.identity.tokens import (
    FINAL,
    HANDSHAKE,
    INSTANCE_BYTES,
    POLL,
    check_token_proof,
    poll_transcript,
    reply_transcript,
    token_proof,
)
from wallflower.protocol.messages.answers import (
    MemoryAnswers,
    Progress,
    StoredAnswer,
    answered,
)
from wallflower.protocol.messages.describe import describe_body
from wallflower.protocol.messages.port import NodeHandler
from wallflower.protocol.wire import node_service_pb2

_log = logging.getLogger(__name__)
_jitter = secrets.SystemRandom()
_FRAME_BYTES = 4096  # room for ids around the answers
_CALL_S = 30.0  # for one poll


@dataclass(frozen=True, slots=True)
class PollingSettings:
    """How a node behaves that polls a gRPC server.

    Attributes
    ----------
    patience_s : float
        How long to try without once reaching the gRPC server before giving up.
    first_wait_s, longest_wait_s : float
        Bounds of the wait after a poll that failed; it doubles, in part at random.
    longest_pause_s : float
        Longest wait between polls, whatever the gRPC server says.
    stay_s : float
        Work that takes longer is waited for without a connection.
    most_bytes : int
        Largest message accepted from the gRPC server.
    """

    patience_s: float = 86_400.0
    first_wait_s: float = 1.0
    longest_wait_s: float = 300.0
    longest_pause_s: float = 3_600.0
    stay_s: float = 2.0
    most_bytes: int = 65 * 2**20

    def __post_init__(self) -> None:
        check_waits(self)


class PollingClient:
    """One node's polls to one run's gRPC server.

    Parameters
    ----------
    invitation : Invitation
        Where and what.
    identity : NodeIdentity
        Who we are, with the enrolment certificate if there is one.
    handler : NodeHandler
        Answers requests. One whose sessions are on disk gives the same answer again
        in another process; then let `instance` be the same there too.
    instance : bytes, optional
        Sixteen bytes that name where answers are remembered; default: random.
    settings : PollingSettings, optional
        Waiting and limits.
    """

    def __init__(
        self,
        invitation: Invitation,
        identity: NodeIdentity,
        handler: NodeHandler,
        *,
        instance: bytes | None = None,
        settings: PollingSettings | None = None,
    ) -> None:
        self._invitation = invitation
        self._identity = identity
        self._handler = handler
        self._instance = instance or secrets.token_bytes(INSTANCE_BYTES)
        self._settings = settings or PollingSettings()
        self._answers = MemoryAnswers()
        self._work: dict[asyncio.Task[StoredAnswer], str] = {}
        self._done: dict[str, StoredAnswer] = {}
        self._prepared: node_service_pb2.PreparedAnswer | None = None
        self._channel: grpc.aio.Channel | None = None
        self._last_ms = 0
        self._most_bytes = 256 * 2**10

    async def once(self) -> str | None:
        """Ask, answer everything, leave; give why the run is over if it is.

        Raises AuthenticationError where the gRPC server refuses us for good,
        UnavailableError where it is not reached for `patience_s`.
        """
        return await self._until_over(stay=False)

    async def keep(self) -> str:
        """Come by until the run is over; give its reason. Raises as `once`."""
        over = await self._until_over(stay=True)
        assert over is not None
        return over

    async def _until_over(self, *, stay: bool) -> str | None:
        away_s = 0.0  # polls while something is worked on become ever rarer
        try:
            while True:
                asked = await self._reach()
                if asked.run_over:
                    return asked.run_over
                for request in asked.requests:
                    self._begin(request)
                if self._done:
                    continue
                pause_s = min(asked.next_ms / 1000, self._settings.longest_pause_s)
                pause_s *= 0.75 + _jitter.random() / 2
                if self._work:
                    longest_s = self._settings.longest_pause_s
                    away_s = min(max(2 * away_s, pause_s), longest_s)
                    if await self._wait_for_work(away_s):
                        away_s = 0.0
                elif not stay:
                    return None
                else:
                    await self._leave()
                    await asyncio.sleep(pause_s)
        finally:
            for task in self._work:
                task.cancel()
            await self._leave()

    def _begin(self, request: node_service_pb2.PendingRequest) -> None:
        """Work on a request, or give again what was answered."""
        request_id = request.request_id
        known = self._answers.begin(request_id, request.body)
        if isinstance(known, StoredAnswer):
            self._done[request_id] = known
        elif known is Progress.NEW:
            task = asyncio.create_task(self._answer(request))
            self._work[task] = request_id

    async def _answer(self, request: node_service_pb2.PendingRequest) -> StoredAnswer:
        who = {"node_id": self._identity.node_id, "run_id": self._invitation.run_id}
        answer = await answered(self._handler, request.body, **who)
        if len(answer.body) + _FRAME_BYTES > self._most_bytes:
            answer = StoredAnswer(failure="too-large")
        return answer

    async def _wait_for_work(self, longest_s: float) -> bool:
        """Wait for the first of the answers; return whether there is one.

        A long wait is one without connection. After `longest_s` it is time to come by:
        the requests of other arms may be there, which must not wait for the end of a
        window.
        """
        wait, first = self._settings.stay_s, asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait(self._work, timeout=wait, return_when=first)
        if not done:
            await self._leave()
            done, _ = await asyncio.wait(
                self._work, timeout=longest_s, return_when=first
            )
        for task in done:
            request_id = self._work.pop(task)
            self._done[request_id] = self._answers.finish(request_id, task.result())
        return bool(done)

    async def _reach(self) -> node_service_pb2.PollReplyBody:
        """Poll until it works; raises once that is hopeless."""
        settings, loop = self._settings, asyncio.get_running_loop()
        began, wait_s = loop.time(), settings.first_wait_s
        while True:
            reason = "malformed-server-message"
            try:
                return await self._poll()
            except grpc.aio.AioRpcError as error:
                reason = reason_of(error.code(), error.details() or "")
            except MalformedMessageError:
                pass
            await self._leave()
            self._event("poll-failed", logging.INFO, reason)
            if reason == CERTIFICATE_REFUSED:
                raise certificate_refused(self._invitation)
            if reason in FINAL:
                raise AuthenticationError(
                    f"the gRPC server at {self._invitation.address} refuses node "
                    f"{self._identity.node_id}: {reason}"
                )
            if loop.time() - began + wait_s > settings.patience_s:
                raise not_reached(self._invitation, settings.patience_s, reason)
            await asyncio.sleep(wait_s * (0.5 + _jitter.random() / 2))
            wait_s = min(2 * wait_s, settings.longest_wait_s)

    async def _poll(self) -> node_service_pb2.PollReplyBody:
        """Make one call: bring what is done, hear what is asked."""
        invitation, settings = self._invitation, self._settings
        brought = await self._collect_answers()
        self._last_ms = max(self._last_ms + 1, time.time_ns() // 1_000_000)
        body = brought.SerializeToString()
        handshake = node_service_pb2.PollHandshake(
            hello=new_hello(
                invitation.run_id, invitation.token, self._identity, self._instance
            ),
            at_ms=self._last_ms,
            server_fingerprint=invitation.server_fingerprint or b"",
            digest=hashlib.sha256(body).digest(),
        )
        signed = poll_transcript(handshake)
        handshake.proof.signature = self._identity.sign(signed)
        handshake.proof.token_proof = token_proof(invitation.token, "node", signed)
        if self._channel is None:
            self._channel = open_channel(invitation, settings.most_bytes)
        call = self._channel.unary_unary(POLL, None, None)
        headers = ((HANDSHAKE, handshake.SerializeToString()),)
        raw = await call(body, metadata=headers, timeout=_CALL_S)
        try:
            reply = node_service_pb2.PollReply.FromString(raw)
            asked = node_service_pb2.PollReplyBody.FromString(reply.body)
        except DecodeError:
            raise MalformedMessageError("the gRPC server sent garbage") from None
        check_token_proof(
            invitation.token,
            "server",
            reply_transcript(signed, reply.body),
            reply.server_proof,
        )
        for answer in brought.answers:
            del self._done[answer.request_id]
        for request_id in asked.not_taken:
            self._event("answer-not-taken", logging.WARNING, request_id)
        self._most_bytes = asked.most_bytes or self._most_bytes
        return asked

    async def _collect_answers(self) -> node_service_pb2.PollRequest:
        """Collect what is done, as much as one poll may bring."""
        brought = node_service_pb2.PollRequest()
        room = self._most_bytes - _FRAME_BYTES
        if self._prepared is None:
            body = describe_body(self._invitation.run_id)
            described = await self._handler.handle(body)
            self._prepared = node_service_pb2.PreparedAnswer(
                request=body, answer=described
            )
        # Every time: the gRPC server may have been restarted and know nobody any more.
        brought.prepared.append(self._prepared)
        room -= self._prepared.ByteSize()
        for request_id, answer in self._done.items():
            room -= len(answer.body) + len(request_id) + 64
            if brought.answers and room < 0:
                break
            entry = brought.answers.add(request_id=request_id)
            if answer.failure is None:
                entry.body = answer.body
            else:
                entry.failure = answer.failure
        return brought

    async def _leave(self) -> None:
        """Hang up, if a connection is open."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(None)

    def _event(self, event: str, level: int, reason: str) -> None:
        extra = {
            "event": event,
            "run_id": self._invitation.run_id,
            "node_id": self._identity.node_id,
            "reason": reason,
        }
        _log.log(level, event, extra=extra)
