"""One stream of one node: handshake, then frames both ways until one side ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import grpc.aio
from google.protobuf.message import DecodeError

from wallflower.listening.limits import TokenBucket
from wallflower.protocol.identity.canonical import LONGEST_NAME
from wallflower.protocol.identity.tokens import LONGEST_HANDSHAKE
from wallflower.protocol.wire import node_service_pb2
from wallflower.strategy.transport.grpc.admission import Admission, RefusedError
from wallflower.strategy.transport.grpc.node_queue import NodeQueue
from wallflower.strategy.transport.grpc.settings import GrpcServerSettings
from wallflower.strategy.transport.grpc.stats import GrpcServerStats

HUNG_UP = "hung-up"  # the node ended the stream
LOST = "connection-lost"  # the network did


class Wire(Protocol):
    """The part of gRPC's context that a stream uses; messages are raw bytes.

    Raw, because a message that does not parse must end with our status, not gRPC's.
    """

    async def read(self) -> bytes | object:
        """Return the next message, or ``grpc.aio.EOF``."""
        ...

    async def write(self, message: bytes) -> None:
        """Send a message; waits while the peer reads slowly."""
        ...


async def shake_hands(
    wire: Wire,
    hello: node_service_pb2.Hello,
    admission: Admission,
    fingerprint: bytes,
    settings: GrpcServerSettings,
    beat_s: float,
) -> None:
    """Let a node that showed a run token prove who it is; raises `RefusedError`."""
    try:
        async with asyncio.timeout(settings.handshake_s):
            challenge = admission.challenge(hello, fingerprint)
            await wire.write(
                node_service_pb2.FromServer(challenge=challenge).SerializeToString()
            )
            admission.admit(hello, challenge, await _read_proof(wire))
            welcome = node_service_pb2.Welcome(
                heartbeat_ms=round(beat_s * 1000),
                window=settings.window,
                most_bytes=settings.most_bytes,
                trust_label=admission.label,
            )
            await wire.write(
                node_service_pb2.FromServer(welcome=welcome).SerializeToString()
            )
    except TimeoutError:
        raise RefusedError("handshake-late") from None


async def _read_proof(wire: Wire) -> node_service_pb2.Proof:
    raw = await wire.read()
    if not isinstance(raw, bytes):
        raise RefusedError("unexpected-message")
    if len(raw) > LONGEST_HANDSHAKE:
        raise RefusedError("too-large")
    frame = _parse(raw)
    if frame.WhichOneof("kind") != "proof":
        raise RefusedError("unexpected-message")
    return frame.proof


def _parse(raw: bytes) -> node_service_pb2.FromNode:
    try:
        return node_service_pb2.FromNode.FromString(raw)
    except DecodeError:
        raise RefusedError("malformed-message") from None


class NodeStream:
    """The stream of a node that was let in.

    Parameters
    ----------
    wire : Wire
        The open gRPC stream.
    hello : Hello
        What the node was let in with.
    node_queue : NodeQueue
        The node.
    settings, stats : GrpcServerSettings, GrpcServerStats
        The gRPC server's.
    clock : Callable[[], float]
        The loop's time.
    pace : Callable[[], float]
        Seconds that a node may be silent for now.
    """

    def __init__(
        self,
        wire: Wire,
        hello: node_service_pb2.Hello,
        node_queue: NodeQueue,
        settings: GrpcServerSettings,
        stats: GrpcServerStats,
        clock: Callable[[], float],
        pace: Callable[[], float],
    ) -> None:
        self.hello = hello
        self.node_queue = node_queue
        self.heard_at = clock()
        self.beat_s = pace()
        self._pace = pace
        self._wire = wire
        self._settings = settings
        self._stats = stats
        self._clock = clock
        self._bucket = TokenBucket(
            settings.frames_per_s, settings.frames_burst, self.heard_at
        )
        self._something_to_send = asyncio.Event()
        self._beat: int | None = None
        self._run_over: str | None = None
        self._reason: str | None = None
        self._reading: asyncio.Task[str] | None = None

    def wake(self) -> None:
        """Say that the node may have something to send."""
        self._something_to_send.set()

    def end(self, reason: str) -> None:
        """End the stream now."""
        self._reason = self._reason or reason
        if self._reading is not None:
            self._reading.cancel()

    def say_run_over(self, reason: str) -> None:
        """Tell the node that the run has ended, then end the stream."""
        self._run_over = reason
        self.wake()

    async def serve(self) -> str:
        """Carry frames until the end; give the reason why it ended."""
        self._reading = asyncio.create_task(self._read())
        writing = asyncio.create_task(self._write())
        both: set[asyncio.Task[str]] = {self._reading, writing}
        if self._reason is not None:  # ended before it began
            self._reading.cancel()
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.wait(both)
        for task in both:
            if self._reason is None and not task.cancelled():
                self._reason = task.result()
        return self._reason or LOST

    async def _read(self) -> str:
        try:
            while isinstance(raw := await self._wire.read(), bytes):
                self.heard_at = self._clock()
                self._stats.bytes_in += len(raw)
                if not self._bucket.take(self.heard_at):
                    return "too-fast"
                self._take(_parse(raw))
        except RefusedError as refused:
            return refused.reason
        except grpc.aio.BaseError:
            return LOST
        return HUNG_UP

    def _take(self, frame: node_service_pb2.FromNode) -> None:
        kind = frame.WhichOneof("kind")
        if kind == "heartbeat":
            self._beat = frame.heartbeat.number
        elif kind == "answer":
            answer = frame.answer
            failure = None if answer.WhichOneof("kind") == "body" else answer.failure
            if failure is not None and not 0 < len(failure) <= LONGEST_NAME:
                raise RefusedError("malformed-message")
            self.node_queue.answer(
                answer.request_id, answer.body, failure, self.heard_at
            )
        else:
            raise RefusedError("unexpected-message")
        self.wake()

    async def _write(self) -> str:
        try:
            while True:
                frame = self._next_frame()
                if frame is None:
                    self._something_to_send.clear()
                    await self._something_to_send.wait()
                    continue
                self._stats.bytes_out += len(frame)
                await self._wire.write(frame)
                if self._run_over is not None and self._reason is not None:
                    return self._reason
        except grpc.aio.BaseError:
            return LOST

    def _next_frame(self) -> bytes | None:
        if self._beat is not None:
            number, self._beat, self.beat_s = self._beat, None, self._pace()
            beat = node_service_pb2.Heartbeat(
                number=number, next_ms=round(self.beat_s * 1000)
            )
            return node_service_pb2.FromServer(heartbeat=beat).SerializeToString()
        if self._run_over is not None:
            self._reason = "run-over"
            over = node_service_pb2.RunOver(reason=self._run_over)
            return node_service_pb2.FromServer(run_over=over).SerializeToString()
        return self.node_queue.next_frame(self._settings.window)
