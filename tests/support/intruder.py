"""Somebody who speaks to the gRPC server without keeping to the protocol."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from tests.support.grpc_fixtures import AUTHORITY, House
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.protocol.identity.tokens import (
    HANDSHAKE,
    METHOD,
    RunToken,
    hello_transcript,
    token_proof,
    transcript,
)
from wallflower.protocol.wire import node_service_pb2


def hello_of(
    house: House, identity: NodeIdentity, token: RunToken | None = None, **changes: Any
) -> node_service_pb2.Hello:
    """A correct Hello, but for `changes`."""
    token = token or good_token(house, identity.node_id)
    hello = node_service_pb2.Hello(
        version=1,
        run_id=house.run_id,
        node_id=identity.node_id,
        public_key=identity.public_key,
        certificate=identity.certificate.to_bytes() if identity.certificate else b"",
        nonce=secrets.token_bytes(32),
        token_expiry=token.expiry,
        instance=secrets.token_bytes(16),
    )
    for name, value in changes.items():
        setattr(hello, name, value)
    return hello


def good_token(house: House, node_id: str) -> RunToken:
    return house.tokens.issue(node_id, expiry=int(time.time()) + 3600)


def proof_of(
    hello: node_service_pb2.Hello,
    challenge: node_service_pb2.Challenge,
    identity: NodeIdentity,
    token: RunToken,
) -> node_service_pb2.Proof:
    signed = transcript(hello, challenge)
    return node_service_pb2.Proof(
        signature=identity.sign(signed),
        token_proof=token_proof(token, "node", signed),
    )


def handshake_of(hello: node_service_pb2.Hello, token: RunToken) -> bytes:
    """What the headers of a stream say."""
    proof = token_proof(token, "hello", hello_transcript(hello))
    return node_service_pb2.Handshake(
        hello=hello, token_proof=proof
    ).SerializeToString()


class Intruder:
    """One call, begun with whatever headers; every message is raw bytes."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._begin = channel.stream_stream(METHOD, None, None)
        self._call: grpc.aio.StreamStreamCall[bytes, bytes] | None = None

    @property
    def call(self) -> grpc.aio.StreamStreamCall[bytes, bytes]:
        """The call; one that was not begun yet says nothing in its headers."""
        if self._call is None:
            self._call = self._begin(None)
        return self._call

    def knock(self, handshake: bytes) -> None:
        """Begin the call with this in its headers."""
        self._call = self._begin(None, metadata=((HANDSHAKE, handshake),))

    def say_hello(
        self, house: House, hello: node_service_pb2.Hello, token: RunToken | None = None
    ) -> None:
        """Begin the call as a node does."""
        self.knock(handshake_of(hello, token or good_token(house, hello.node_id)))

    async def send(self, raw: bytes) -> None:
        await self.call.write(raw)

    async def say(self, **kind: Any) -> None:
        await self.send(node_service_pb2.FromNode(**kind).SerializeToString())

    async def hear(self) -> node_service_pb2.FromServer:
        raw = await self.call.read()
        assert isinstance(raw, bytes), await self.status()
        return node_service_pb2.FromServer.FromString(raw)

    async def status(self) -> tuple[str, str]:
        """How the gRPC server ended the call."""
        async with asyncio.timeout(60):
            code: grpc.StatusCode = await self.call.code()
            return code.name, await self.call.details()

    async def authenticate(
        self,
        house: House,
        identity: NodeIdentity,
        token: RunToken | None = None,
        tamper: Callable[[node_service_pb2.Proof], None] = lambda proof: None,
        **changes: Any,
    ) -> None:
        """Go through the handshake, with something changed on the way."""
        token = token or good_token(house, identity.node_id)
        hello = hello_of(house, identity, token, **changes)
        try:
            self.say_hello(house, hello, token)
            raw = await self.call.read()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # refused already; `status` says why
        assert isinstance(raw, bytes)
        challenge = node_service_pb2.FromServer.FromString(raw).challenge
        proof = proof_of(hello, challenge, identity, token)
        tamper(proof)
        await self.say(proof=proof)


@asynccontextmanager
async def channel_to(
    port: int, root: bytes = AUTHORITY.certificate
) -> AsyncIterator[grpc.aio.Channel]:
    options = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_send_message_length", 64 * 2**20),
    ]
    credentials = grpc.ssl_channel_credentials(root)
    async with grpc.aio.secure_channel(
        f"127.0.0.1:{port}", credentials, options
    ) as channel:
        yield channel


@asynccontextmanager
async def intruder_at(port: int) -> AsyncIterator[Intruder]:
    async with channel_to(port) as channel:
        intruder = Intruder(channel)
        yield intruder
        intruder.call.cancel()
