"""Rewards from an application of the device or hospital itself, over gRPC.

The service (``proto/wallflower/v1/rewards.proto``) may take hours: the call stays open,
rewards stream in as they become known, and nothing else on the node waits for them.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncGenerator, Sequence

import grpc

from wallflower.clients.rewards.ready import CHECK, READY_S, try_test_users
from wallflower.clients.rewards.source import FAILED, LATE, LostRewardError, Pull
from wallflower.protocol.errors import InputError, UnavailableError
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange
from wallflower.protocol.wire import rewards_pb2, rewards_pb2_grpc

# Keep-alives find a dead service although no data flows for hours.
_OPTIONS = (
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # A service that is back is found at once; by default a minute may pass.
    ("grpc.max_reconnect_backoff_ms", 2_000),
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
    test_users : Sequence[str]
        Nobody's pseudonyms, on whom the service is tried before anybody is asked.
    reward_range : RewardRange
        In which their outcomes must lie.
    """

    def __init__(
        self,
        address: str,
        certificate: bytes | None = None,
        test_users: Sequence[str] = (),
        reward_range: RewardRange = DEFAULT_RANGE,
    ) -> None:
        if certificate is None and not _stays_on_this_machine(address):
            raise InputError(
                "address",
                f'"{address}"',
                "loopback or unix: without a certificate; rewards are never sent in "
                "clear over a network",
            )
        self._address = address
        self._certificate = certificate
        self._test_users = tuple(test_users)
        self._range = reward_range
        self._channel: grpc.aio.Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def stream(self, pull: Pull) -> AsyncGenerator[tuple[int, object], None]:
        """Ask the service; who is not heard of before the stream ends is lost."""
        # The first word on a user counts; nobody else was asked about.
        awaited = {user: place for place, user in enumerate(pull.users)}
        call = self._stub().Pull(
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

    async def ready(self, arm: int, arm_name: str) -> None:
        """Ask about nobody: the service ends the stream, or fails if it cannot serve.

        After that the test users are pulled, if there are any.
        """
        nobody = rewards_pb2.PullRequest(
            run_id=CHECK, cohort_id=CHECK, arm=arm, arm_name=arm_name
        )
        try:
            async for _ in self._stub().Pull(nobody, timeout=READY_S):
                pass
        except grpc.aio.AioRpcError as error:
            raise UnavailableError(
                f'the reward service at {self._address} cannot serve arm "{arm_name}" '
                f"({error.code().name}); start it, or mend rewards.address and "
                "rewards.certificate"
            ) from None
        if self._test_users:
            await try_test_users(self, arm, arm_name, self._test_users, self._range)

    async def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            await self._channel.close(None)
            self._channel = None

    def _stub(self) -> rewards_pb2_grpc.RewardSourceStub:
        return rewards_pb2_grpc.RewardSourceStub(  # type: ignore[no-untyped-call]
            self._open_channel()
        )

    def _open_channel(self) -> grpc.aio.Channel:
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
