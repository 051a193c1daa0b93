"""One stream to the gRPC server: handshake, then answers and heartbeats."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from wallflower.clients.transport.answering import Answering, Outbox
from wallflower.protocol.errors import AuthenticationError, MalformedMessageError
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.protocol.identity.tokens import (
    HANDSHAKE,
    METHOD,
    NONCE_BYTES,
    STATUS,
    VERSION,
    RunToken,
    check_token_proof,
    hello_transcript,
    token_proof,
    transcript,
)
from wallflower.protocol.wire import node_service_pb2

CERTIFICATE_REFUSED = "server-certificate-refused"
# A gRPC server must not make its nodes beat themselves to death, nor fall asleep.
_SLOWEST_BEAT_MS = 600_000
_FASTEST_BEAT_MS = 50
_Call = grpc.aio.StreamStreamCall[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a stream ended.

    `reason` is the gRPC server's word, or gRPC's status in lower case; `run_over` is
    set when the gRPC server said so; `welcome` when the handshake had succeeded.
    """

    reason: str
    run_over: str | None = None
    welcome: bool = False


async def connect_once(
    channel: grpc.aio.Channel,
    run_id: str,
    token: RunToken,
    identity: NodeIdentity,
    answering: Answering,
    instance: bytes,
    *,
    handshake_s: float,
    server_fingerprint: bytes | None,
) -> Ended:
    """Answer on one connection until it ends, for whatever reason.

    Raises AuthenticationError when the gRPC server is not the one we were told of.
    """
    hello = new_hello(run_id, token, identity, instance)
    proof = token_proof(token, "hello", hello_transcript(hello))
    handshake = node_service_pb2.Handshake(hello=hello, token_proof=proof)
    headers = ((HANDSHAKE, handshake.SerializeToString()),)
    call: _Call = channel.stream_stream(METHOD, None, None)(None, metadata=headers)
    welcomed = False
    try:
        async with asyncio.timeout(handshake_s):
            welcome = await _prove(call, hello, token, identity, server_fingerprint)
        welcomed = True
        over = await _Stream(call, answering, welcome).serve()
        if over is not None:
            return Ended("run-over", over, welcomed)
    except TimeoutError:
        return Ended(
            "handshake-late" if not welcomed else "heartbeat-lost", None, welcomed
        )
    except MalformedMessageError:
        return Ended("malformed-server-message", None, welcomed)
    except grpc.aio.AioRpcError:
        pass
    except asyncio.InvalidStateError:  # written to after the gRPC server ended the call
        pass
    finally:
        answering.outbox = None
        if not call.done():
            call.cancel()
    return Ended(await _reason(call), None, welcomed)


async def _reason(call: _Call) -> str:
    """Say why the gRPC server ended a call: its own word if it gave one."""
    return reason_of(await call.code(), await call.details() or "")


def reason_of(status: grpc.StatusCode, details: str) -> str:
    """Return the gRPC server's word for the end of a call, or gRPC's."""
    if details in STATUS:
        return details
    if "CERTIFICATE_VERIFY_FAILED" in details.upper():
        return CERTIFICATE_REFUSED
    return status.name.lower().replace("_", "-")


def new_hello(
    run_id: str, token: RunToken, identity: NodeIdentity, instance: bytes
) -> node_service_pb2.Hello:
    """Say who we are, with a nonce that was never used before."""
    certificate = identity.certificate
    return node_service_pb2.Hello(
        version=VERSION,
        run_id=run_id,
        node_id=identity.node_id,
        public_key=identity.public_key,
        certificate=b"" if certificate is None else certificate.to_bytes(),
        nonce=secrets.token_bytes(NONCE_BYTES),
        token_expiry=token.expiry,
        instance=instance,
        token_holder=token.holder,
    )


async def _prove(
    call: _Call,
    hello: node_service_pb2.Hello,
    token: RunToken,
    identity: NodeIdentity,
    server_fingerprint: bytes | None,
) -> node_service_pb2.Welcome:
    """Prove who we are; check that the gRPC server knows the run and is the expected
    one.
    """
    challenge = (await _expect(call, "challenge")).challenge
    if server_fingerprint not in (None, challenge.server_fingerprint):
        raise AuthenticationError(
            "the gRPC server shows another TLS certificate than agreed"
        )
    if len(challenge.nonce) != NONCE_BYTES:
        raise MalformedMessageError("the gRPC server's challenge has no proper nonce")
    signed = transcript(hello, challenge)
    check_token_proof(token, "server", signed, challenge.server_proof)
    proof = node_service_pb2.Proof(
        signature=identity.sign(signed), token_proof=token_proof(token, "node", signed)
    )
    await call.write(node_service_pb2.FromNode(proof=proof).SerializeToString())
    return (await _expect(call, "welcome")).welcome


async def _expect(call: _Call, kind: str) -> node_service_pb2.FromServer:
    raw = await call.read()
    if not isinstance(raw, bytes):
        raise asyncio.InvalidStateError
    frame = _parse(raw)
    if frame.WhichOneof("kind") != kind:
        raise MalformedMessageError(f"the gRPC server did not send its {kind}")
    return frame


def _parse(raw: bytes) -> node_service_pb2.FromServer:
    try:
        return node_service_pb2.FromServer.FromString(raw)
    except DecodeError:
        raise MalformedMessageError("the gRPC server sent garbage") from None


class _Stream:
    """Reads requests, writes answers, beats; ends with the first of the three."""

    def __init__(
        self, call: _Call, answering: Answering, welcome: node_service_pb2.Welcome
    ) -> None:
        self._call = call
        self._answering = answering
        self._heartbeat_s = max(welcome.heartbeat_ms, _FASTEST_BEAT_MS) / 1000
        self._outbox = Outbox(most=2 * welcome.window)
        self._heard_at = self._said_at = asyncio.get_running_loop().time()
        answering.outbox = self._outbox
        answering.most_bytes = welcome.most_bytes

    async def serve(self) -> str | None:
        """Return the run's end reason, or None when the stream just ended."""
        parts: list[Coroutine[Any, Any, str | None]] = [
            self._read(),
            self._write(),
            self._beat(),
        ]
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        ended = [task for task in tasks if not task.cancelled()]
        # The reader knows best: a write may fail only because the gRPC server said
        # goodbye.
        return ended[0].result() if ended else None

    async def _read(self) -> str | None:
        while isinstance(raw := await self._call.read(), bytes):
            self._heard_at = asyncio.get_running_loop().time()
            frame = _parse(raw)
            kind = frame.WhichOneof("kind")
            if kind == "request":
                self._answering.request(frame.request)
                await self._outbox.room()
            elif kind == "abandon":
                self._answering.abandon(frame.abandon.request_id)
            elif kind == "run_over":
                return frame.run_over.reason
            elif kind == "heartbeat":
                self._slow_down(frame.heartbeat.next_ms)
            else:
                raise MalformedMessageError(
                    "the gRPC server sent an unexpected message"
                )
        return None

    def _slow_down(self, next_ms: int) -> None:
        """Beat as the gRPC server asks; never so seldom that a dead gRPC server goes
        unnoticed.
        """
        if next_ms:
            wanted = min(max(next_ms, _FASTEST_BEAT_MS), _SLOWEST_BEAT_MS)
            self._heartbeat_s = wanted / 1000

    async def _write(self) -> None:
        while True:
            await self._call.write(await self._outbox.take())
            self._said_at = asyncio.get_running_loop().time()

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        number = 0
        while True:
            said_at = self._said_at
            await asyncio.sleep(max(said_at + self._heartbeat_s - loop.time(), 0))
            if loop.time() - self._heard_at > 3 * self._heartbeat_s:
                raise TimeoutError
            # Whoever answers is there: only a silent node says so. Asked of what was
            # said, not of the clock, whose rounding would let this turn on the spot.
            if self._said_at != said_at:
                continue
            number, self._said_at = number + 1, loop.time()
            beat = node_service_pb2.Heartbeat(number=number)
            self._outbox.put(
                node_service_pb2.FromNode(heartbeat=beat).SerializeToString()
            )
