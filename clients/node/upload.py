"""Takes what a node has for somebody other than the server there, over TLS 1.3.

The body is sealed to a key that the node's users pinned, and what comes back shows that
the key's holder opened it: whoever answers under the address the server stated cannot
pretend. Handing the same body over twice is the same as once.
"""

from __future__ import annotations

import asyncio
import hmac
import random
from collections.abc import Sequence

import grpc

from wallflower.protocol.errors import RefusalError
from wallflower.protocol.secure_sum.session import Destination, ShufflerUpload
from wallflower.protocol.secure_sum.shuffle.deposits import GREETING
from wallflower.protocol.wire.shuffle_pb2 import DepositAnswer

_METHOD = "/wallflower.v1.Shuffler/Deposit"
_CALL_S = 30.0
_REACH_S = 10.0
# By event loop and place: who is knocking there now.
_knocking: dict[tuple[int, Destination], asyncio.Task[None]] = {}
_PAUSES_S = (0.1, 0.5, 2.0, 5.0, 10.0)
_AGAIN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
}


async def reach(place: Destination) -> None:
    """See that somebody answers there under TLS; raises RefusalError where not.

    Asked before people are charged for a contribution that must be taken there. Nodes
    of one process that ask at the same time knock once.
    """
    key = id(asyncio.get_running_loop()), place
    knock = _knocking.get(key)
    if knock is None:
        knock = _knocking[key] = asyncio.create_task(_knock(place))

        def forget(done: asyncio.Task[None]) -> None:
            _knocking.pop(key, None)
            if not done.cancelled():
                done.exception()  # whoever waited may have gone

        knock.add_done_callback(forget)
    await asyncio.shield(knock)


async def _knock(place: Destination) -> None:
    credentials = grpc.ssl_channel_credentials(place.authority)
    async with grpc.aio.secure_channel(place.address, credentials) as channel:
        try:
            async with asyncio.timeout(_REACH_S):
                await channel.channel_ready()
        except TimeoutError:
            raise RefusalError(
                "shuffler-unreachable", f"{place.address} did not answer"
            ) from None


async def deliver(
    upload: ShufflerUpload, pauses_s: Sequence[float] | None = None
) -> None:
    """Hand a parcel over; raises RefusalError where it was not taken."""
    pauses_s = _PAUSES_S if pauses_s is None else pauses_s
    credentials = grpc.ssl_channel_credentials(upload.authority)
    async with grpc.aio.secure_channel(upload.address, credentials) as channel:
        answer = await _handed_over(channel, upload, pauses_s)
    if not hmac.compare_digest(answer.receipt, upload.receipt):
        raise RefusalError(
            "shuffler-not-genuine", "who answered does not hold the pinned key"
        )


async def _handed_over(
    channel: grpc.aio.Channel, upload: ShufflerUpload, pauses_s: Sequence[float]
) -> DepositAnswer:
    call = channel.unary_unary(
        _METHOD,
        request_serializer=bytes,
        response_deserializer=DepositAnswer.FromString,
    )
    for pause_s in (*pauses_s, None):
        try:
            answer: DepositAnswer = await call(
                upload.body, metadata=((GREETING, upload.greeting),), timeout=_CALL_S
            )
            return answer
        except grpc.aio.AioRpcError as error:
            word = error.code().name.lower().replace("_", "-")
            if error.code() not in _AGAIN or pause_s is None:
                raise RefusalError(
                    "shuffler-unreachable", f"{upload.address} gave {word}"
                ) from None
            # Nodes that were turned away together do not come back together.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311
    raise AssertionError("unreachable")
