"""What is asked of every caller at the headers of its call, before anything is read.

A caller that shows no run token is refused at once: it holds no place, no message of it
is read, and nobody waits for it. Refusals are counted against its network, so that a
neighbour's noise does not shut out a node: who shows a token is judged by its own name.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from wallflower.listening.limits import (
    Blame,
    TokenBucket,
    address_of,
    network_of,
)
from wallflower.protocol.identity import tls
from wallflower.protocol.identity.tokens import (
    HANDSHAKE,
    LONGEST_HANDSHAKE,
    STATUS,
    hello_transcript,
    poll_transcript,
)
from wallflower.protocol.wire import node_service_pb2
from wallflower.strategy.transport.grpc.admission import Admission, RefusedError
from wallflower.strategy.transport.grpc.settings import GrpcServerSettings
from wallflower.strategy.transport.grpc.stats import GrpcServerStats

_log = logging.getLogger(__name__)
_Context = grpc.aio.ServicerContext[Any, Any]
_Handshake = TypeVar("_Handshake", bound=Message)
_REFUSALS_LOGGED_PER_S = 10
# Reasons that are nobody's fault, or already a consequence of it.
_BLAMELESS = frozenset({"too-many-streams", "server-closing", "too-fast"})


class RpcGate:
    """Lets callers of a gRPC server in, or refuses them by name.

    Parameters
    ----------
    admission : Admission
        Knows the run's tokens.
    settings, stats : GrpcServerSettings, GrpcServerStats
        The gRPC server's.
    """

    def __init__(
        self, admission: Admission, settings: GrpcServerSettings, stats: GrpcServerStats
    ) -> None:
        self._admission = admission
        self._stats = stats
        self._blame = Blame(settings.refusals_per_s, settings.refusals_burst)
        self._log_lines = TokenBucket(_REFUSALS_LOGGED_PER_S, 100, 0.0)

    def hello(self, context: _Context) -> node_service_pb2.Hello:
        """Return the hello of a stream whose caller holds a run token."""
        handshake = _read_handshake(context, node_service_pb2.Handshake)
        hello, transcribed = handshake.hello, hello_transcript(handshake.hello)
        self._admission.require_token(
            hello, "hello", transcribed, handshake.token_proof
        )
        self._require_patience(hello)
        return hello

    def check_poll(self, context: _Context) -> node_service_pb2.PollHandshake:
        """Return the handshake of a poll whose caller holds a run token."""
        handshake = _read_handshake(context, node_service_pb2.PollHandshake)
        proof, transcribed = handshake.proof.token_proof, poll_transcript(handshake)
        self._admission.require_token(handshake.hello, "node", transcribed, proof)
        self._require_patience(handshake.hello)
        return handshake

    def stranger(self, context: _Context) -> str | None:
        """Return the reason not to listen to a caller that shows nothing."""
        if not tls.is_current(context.auth_context()):
            return "tls-too-old"
        now = asyncio.get_running_loop().time()
        return "too-fast" if self._blame.is_blocked(_network(context), now) else None

    async def refuse(
        self, context: _Context, reason: str, hello: node_service_pb2.Hello | None
    ) -> None:
        """End a call, and take note of why; `hello` of those who showed a token."""
        now = asyncio.get_running_loop().time()
        caller = _network(context) if hello is None else _holder(hello)
        if hello is None and self._blame.is_blocked(caller, now):
            reason = "too-fast"
        self._stats.refused[reason] += 1
        if self._log_lines.take(now):  # whoever floods us must not flood the log
            transcribed = {"event": "refused", "run_id": self._admission.run_id}
            address = address_of(context.peer())
            _log.warning(
                "refused", extra={**transcribed, "reason": reason, "address": address}
            )
        if reason not in _BLAMELESS:
            self._blame.add(caller, now)
        await end(context, reason)

    def _require_patience(self, hello: node_service_pb2.Hello) -> None:
        now = asyncio.get_running_loop().time()
        if self._blame.is_blocked(_holder(hello), now):
            raise RefusedError("too-fast")


async def end(context: _Context, reason: str) -> None:
    """End a call with the status that belongs to the reason."""
    status = STATUS.get(reason, "OK")
    if status != "OK":
        await context.abort(grpc.StatusCode[status], reason)


def _read_handshake(context: _Context, kind: type[_Handshake]) -> _Handshake:
    if not tls.is_current(context.auth_context()):
        raise RefusedError("tls-too-old")
    raw = dict(context.invocation_metadata() or ()).get(HANDSHAKE)
    if not isinstance(raw, bytes):
        raise RefusedError("unexpected-message")
    if len(raw) > LONGEST_HANDSHAKE:
        raise RefusedError("too-large")
    try:
        return kind.FromString(raw)
    except DecodeError:
        raise RefusedError("malformed-message") from None


def _network(context: _Context) -> str:
    return network_of(address_of(context.peer()))


def _holder(hello: node_service_pb2.Hello) -> str:
    # No network is called so.
    return f"holder {hello.token_holder or hello.node_id}"
