"""Rewards from an application of the device or hospital itself, over gRPC.

The service (``proto/wallflower/v1/rewards.proto``) may take hours: the call stays open,
rewards stream in as they become known, and nothing else on the node waits for them.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncGenerator

import grpc

from wallflower.clients.rewards.source import FAILED, LATE, LostRewardError, Pull
from wallflower.protocol.errors import InputError
from wallflower.protocol.wire import rewards_pb2, rewards_pb2_grpc

# Keep-alives find a dead service although no data flows for hours.
_OPTIONS = (
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
)


class ServiceRewards:
    """A client of a RewardSource service.

    Parameters
    ----------
    address : str
        ``host:port`` or ``unix:/path``.
    certificate : bytes | None
        PEM of the CA that signed the service's certificate. Without it rewards would
        travel in clear, so only loopback and unix addresses are taken.
    """

    def __init__(self, address: str, certificate: bytes | None = None) -> None:
        if certificate is None and not _stays_on_this_machine(address):
            raise InputError(
                "address",
                f'"{address}"',
                "loopback or unix: without a certificate; rewards are never sent in "
                "clear over a network",
            )
        self._address = address
        self._certificate = certificate
        self._channel: grpc.aio.Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def stream(self, pull: Pull) -> AsyncGenerator[tuple[int, object], None]:
        """Ask the service; who is not heard of before the stream ends is lost."""
        stub = rewards_pb2_grpc.RewardSourceStub(  # type: ignore[no-untyped-call]
            self._connected()
        )
        # The first word on a user counts; nobody else was asked about.
        awaited = {user: place for place, user in enumerate(pull.users)}
        call = stub.Pull(
            rewards_pb2.PullRequest(
                run_id=pull.run_id,
                cohort_id=pull.cohort_id,
                batch=pull.batch,
                arm=pull.arm,
                arm_name=pull.arm_name,
                users=pull.users,
            )
        )
        try:
            async for reward in call:
                place = awaited.pop(reward.user, None)
                if place is None:
                    continue
                known = reward.WhichOneof("outcome") == "value"
                yield place, reward.value if known else LostRewardError(FAILED)
        except grpc.aio.AioRpcError as error:
            late = error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            raise LostRewardError(LATE if late else FAILED) from None
        finally:
            call.cancel()

    async def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            await self._channel.close(None)
            self._channel = None

    def _connected(self) -> grpc.aio.Channel:
        loop = asyncio.get_running_loop()
        if self._channel is None or self._loop is not loop:
            # A channel belongs to the loop it was made in.
            self._loop = loop
            if self._certificate is None:
                self._channel = grpc.aio.insecure_channel(self._address, _OPTIONS)
            else:
                self._channel = grpc.aio.secure_channel(
                    self._address,
                    grpc.ssl_channel_credentials(self._certificate),
                    _OPTIONS,
                )
        return self._channel


def _stays_on_this_machine(address: str) -> bool:
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
