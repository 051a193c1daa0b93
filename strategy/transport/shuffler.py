"""How the server reaches the shuffler: beside the nodes, through the same transport."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from wallflower.protocol.errors import ConfigError, UnavailableError
from wallflower.protocol.messages.port import Answer, NodeId, NodeTransport, Request
from wallflower.protocol.secure_sum.backends import SHUFFLE
from wallflower.protocol.secure_sum.shuffle.plan import SHUFFLER
from wallflower.protocol.wire.shuffle_pb2 import Chunk
from wallflower.strategy.sections import SecureSumSettings

_METHOD = "/wallflower.v1.Shuffler/Release"
_CHUNK_BYTES = 1 << 20
_CONNECT_S = 30.0


@dataclass(frozen=True, slots=True)
class ShufflerFiles:
    """What a shuffler handed to the operator; `Home` of the shuffler writes them."""

    public_key: bytes
    authority: bytes
    token: bytes

    @classmethod
    def read(cls, folder: Path) -> ShufflerFiles:
        """Read ``shuffler.pub``, ``ca.crt`` and ``token``."""
        try:
            return cls(
                (folder / "shuffler.pub").read_bytes(),
                (folder / "ca.crt").read_bytes(),
                (folder / "token").read_bytes().strip(),
            )
        except OSError as error:
            raise ConfigError(
                "secure-sum.shuffler-files",
                f"{folder}: {error.strerror}; it is the folder `operator` that "
                "`wallflower shuffler` made",
            ) from None

    @property
    def fingerprint(self) -> str:
        """What nodes pin."""
        return hashlib.sha256(self.public_key).hexdigest()

    def __repr__(self) -> str:
        """Show no token."""
        return f"ShufflerFiles({len(self.public_key)} bytes of key)"


class ShufflerTransport:
    """A transport that has the shuffler asked by gRPC and everybody else as before."""

    def __init__(
        self, nodes: NodeTransport, channel: grpc.aio.Channel, place: ShufflerPlace
    ) -> None:
        self._nodes = nodes
        self._channel = channel
        self._place = place
        self._release = channel.stream_stream(
            _METHOD,
            request_serializer=Chunk.SerializeToString,
            response_deserializer=Chunk.FromString,
        )

    async def nodes(self) -> Sequence[NodeId]:
        """Name the nodes; the shuffler is none.

        People are drawn from these next, so the shuffler must answer first.
        """
        await self.check_shuffler()
        return await self._nodes.nodes()

    async def check_shuffler(self) -> None:
        """Raise UnavailableError if the shuffler does not answer.

        Nobody may be charged for a sum that it could not release.
        """
        try:
            async with asyncio.timeout(_CONNECT_S):
                await self._channel.channel_ready()
        except TimeoutError:
            raise UnavailableError(
                f"the shuffler at {self._place.address} did not answer within "
                f"{_CONNECT_S:g} s; start it, or correct secure-sum.shuffler"
            ) from None

    async def ask(
        self, requests: Sequence[Request], *, timeout_s: float
    ) -> AsyncGenerator[Answer, None]:
        """Ask nodes, or the shuffler alone: a stage never asks both."""
        if [request.node_id for request in requests] == [SHUFFLER]:
            yield await self._ask_shuffler(requests[0], timeout_s)
            return
        async with aclosing(self._nodes.ask(requests, timeout_s=timeout_s)) as answers:
            async for answer in answers:
                yield answer

    async def _ask_shuffler(self, request: Request, timeout_s: float) -> Answer:
        async def chunks() -> AsyncIterator[Chunk]:
            for start in range(0, len(request.body), _CHUNK_BYTES):
                yield Chunk(part=request.body[start : start + _CHUNK_BYTES])

        metadata = (("authorization", "Bearer " + self._place.files.token.decode()),)
        body = bytearray()
        try:
            async with asyncio.timeout(timeout_s):
                call = self._release(chunks(), metadata=metadata)
                async for chunk in call:
                    body += chunk.part
        except TimeoutError:
            return Answer(SHUFFLER, request.request_id, failure="shuffler-timeout")
        except grpc.aio.AioRpcError as error:
            # Whether it gave the batch cannot be known: it is never asked again.
            word = error.code().name.lower().replace("_", "-")
            return Answer(SHUFFLER, request.request_id, failure=f"shuffler-{word}")
        return Answer(SHUFFLER, request.request_id, bytes(body))


@dataclass(frozen=True, slots=True)
class ShufflerPlace:
    """Where a shuffler is, and what it handed to the operator."""

    address: str
    files: ShufflerFiles


def stated_shuffler(settings: SecureSumSettings) -> ShufflerPlace | None:
    """Return the shuffler that the experiment names; None where sums need none."""
    if settings.backend != SHUFFLE:
        return None
    if settings.shuffler_files is None:
        raise ConfigError(
            "secure-sum.shuffler",
            "is missing; start `wallflower shuffler` on a machine of another party and "
            "name its address and files",
        )
    files = ShufflerFiles.read(settings.shuffler_files)
    return ShufflerPlace(settings.shuffler, files)


@asynccontextmanager
async def shuffled(
    port: NodeTransport, place: ShufflerPlace | None
) -> AsyncIterator[NodeTransport]:
    """Add the shuffler to the transport while inside; without one, return it as it is.

    Raises UnavailableError if the shuffler does not answer.
    """
    if place is None:
        yield port
        return
    credentials = grpc.ssl_channel_credentials(place.files.authority)
    options = [("grpc.max_receive_message_length", 2 * _CHUNK_BYTES)]
    async with grpc.aio.secure_channel(place.address, credentials, options) as channel:
        transport = ShufflerTransport(port, channel, place)
        await transport.check_shuffler()
        yield transport
