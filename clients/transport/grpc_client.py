"""A node's side of the gRPC server: stay connected until a run it is over.

One outbound stream over TLS; when it breaks, back off, come back, and go on with the
same requests. The server never dials in.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import dataclass, fields
from typing import Any

import grpc
import grpc.aio

from wallflower.clients.transport.answering import Answering
from wallflower.clients.transport.grpc_stream import (
    CERTIFICATE_REFUSED,
    Ended,
    connect_once,
)
from wallflower.protocol.errors import (
    AuthenticationError,
    InputError,
    UnavailableError,
    WallflowerError,
)
from wallflower.protocol.identity import tls
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.protocol.identity.tokens import FINAL, INSTANCE_BYTES, RunToken
from wallflower.protocol.messages.answers import AnswerStore, MemoryAnswers
from wallflower.protocol.messages.port import NodeHandler

_log = logging.getLogger(__name__)
_jitter = secrets.SystemRandom()


def check_waits(settings: Any) -> None:
    """Refuse settings under which nothing would ever happen: a wait of no time."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name.endswith("_s") and not value > 0:
            raise InputError(field.name.replace("_", "-"), value, "above 0")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How a node behaves when things go wrong.

    Attributes
    ----------
    concurrency : int
        Requests worked on at once: as many as a round has arms, since each may wait for
        the end of its window.
    patience_s : float
        How long to try without once reaching the gRPC server before giving up.
    first_wait_s, longest_wait_s : float
        Bounds of the wait between two attempts; it doubles, and a random part of it is
        taken so that a thousand nodes do not come back in the same instant.
    handshake_s : float
        How long the handshake may take.
    most_bytes : int
        Largest message accepted from the gRPC server.
    """

    concurrency: int = 1024
    patience_s: float = 300.0
    first_wait_s: float = 0.2
    longest_wait_s: float = 20.0
    handshake_s: float = 15.0
    most_bytes: int = 65 * 2**20

    def __post_init__(self) -> None:
        check_waits(self)
        if self.concurrency < 1:
            raise InputError("concurrency", self.concurrency, "at least 1")


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a node must know to connect: where, whose gRPC server, which run.

    Attributes
    ----------
    address : str
        ``host:port`` of the gRPC server.
    root_certificate : bytes
        PEM of the authority that signed the gRPC server's certificate, or that very
        certificate: then the stream is bound to that one key.
    run_id : str
        The run.
    token : RunToken
        This node's token for it.
    server_fingerprint : bytes, optional
        SHA-256 of the certificate the gRPC server must have.
    """

    address: str
    root_certificate: bytes
    run_id: str
    token: RunToken
    server_fingerprint: bytes | None = None


async def connect_node(
    invitation: Invitation,
    identity: NodeIdentity,
    handler: NodeHandler,
    *,
    answers: AnswerStore | None = None,
    instance: bytes | None = None,
    settings: ConnectionSettings | None = None,
) -> str:
    """Stay connected to a run until the gRPC server says it is over; give its reason.

    Parameters
    ----------
    invitation : Invitation
        Where and what.
    identity : NodeIdentity
        Who we are, with the enrolment certificate if there is one.
    handler : NodeHandler
        Answers requests. Runs at most once per request id; a slow one holds up neither
        heartbeats nor other requests.
    answers : AnswerStore, optional
        What was answered before; default: in memory. Give a durable one together with
        its `instance` to survive a restart of the node.
    instance : bytes, optional
        Sixteen bytes that name `answers`; default: random.
    settings : ConnectionSettings, optional
        Waiting and limits.

    Raises
    ------
    AuthenticationError
        The gRPC server refuses us for good, or is not the gRPC server we were told of.
    UnavailableError
        The gRPC server could not be reached for `patience_s`.
    """
    settings = settings or ConnectionSettings()
    answers = MemoryAnswers() if answers is None else answers
    instance = secrets.token_bytes(INSTANCE_BYTES) if instance is None else instance
    if not tls.is_enforced():
        _log.warning(
            "gRPC was loaded before us and would speak TLS 1.2 to a server that has "
            "nothing newer: start this process with %s=%s",
            *(tls.VARIABLE, tls.NO_TLS_12),
            extra={"event": "tls-not-enforced", "node_id": identity.node_id},
        )
    outcome: str | WallflowerError
    async with asyncio.TaskGroup() as group:
        answering = Answering(handler, answers, group, concurrency=settings.concurrency)
        try:
            outcome = await _connect(
                invitation, identity, answering, instance, settings
            )
        except WallflowerError as error:
            outcome = error  # raised below: a TaskGroup would wrap it
        finally:
            answering.stop()
    if isinstance(outcome, WallflowerError):
        raise outcome
    return outcome


async def _connect(
    invitation: Invitation,
    identity: NodeIdentity,
    answering: Answering,
    instance: bytes,
    settings: ConnectionSettings,
) -> str:
    loop = asyncio.get_running_loop()
    reached_at, failures, ever_welcome = loop.time(), 0, False
    while True:
        ended = await _try(invitation, identity, answering, instance, settings)
        _log.info(
            "stream ended",
            extra={
                "event": "stream-ended",
                "run_id": invitation.run_id,
                "node_id": identity.node_id,
                "reason": ended.reason,
            },
        )
        if ended.run_over is not None:
            return ended.run_over
        if ended.reason == CERTIFICATE_REFUSED and not ever_welcome:
            # Once we were inside, this is an attack or an accident that may pass.
            raise certificate_refused(invitation)
        if ended.reason in FINAL:
            raise AuthenticationError(
                f"the server at {invitation.address} ended node {identity.node_id}'s "
                f"stream: {ended.reason}"
            )
        if ended.welcome:
            ever_welcome, reached_at, failures = True, loop.time(), 0
        if loop.time() - reached_at > settings.patience_s:
            raise not_reached(invitation, settings.patience_s, ended.reason)
        longest = min(settings.longest_wait_s, settings.first_wait_s * 2**failures)
        failures = min(failures + 1, 30)
        await asyncio.sleep(longest * (0.5 + _jitter.random() / 2))


async def _try(
    invitation: Invitation,
    identity: NodeIdentity,
    answering: Answering,
    instance: bytes,
    settings: ConnectionSettings,
) -> Ended:
    """Open one connection, answer on it until it ends."""
    async with open_channel(invitation, settings.most_bytes) as channel:
        return await connect_once(
            channel=channel,
            run_id=invitation.run_id,
            token=invitation.token,
            identity=identity,
            answering=answering,
            instance=instance,
            handshake_s=settings.handshake_s,
            server_fingerprint=invitation.server_fingerprint,
        )


def open_channel(invitation: Invitation, most_bytes: int) -> grpc.aio.Channel:
    """Return a connection of our own to the gRPC server; it is made when it is first
    used.
    """
    credentials = grpc.ssl_channel_credentials(invitation.root_certificate)
    options = [
        ("grpc.max_receive_message_length", most_bytes),
        ("grpc.max_send_message_length", most_bytes),
        # A connection of our own: nodes of one process must not share their fate.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        # A gRPC server that died without a word; one that lives asks first (every 120
        # s).
        ("grpc.keepalive_time_ms", 150_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ]
    return grpc.aio.secure_channel(invitation.address, credentials, options)


def certificate_refused(invitation: Invitation) -> AuthenticationError:
    """Say that the gRPC server is not one that we were told to believe."""
    return AuthenticationError(
        f"the gRPC server at {invitation.address} has a TLS certificate that our root "
        "certificate does not vouch for (other authority, other host name, or expired)"
    )


def not_reached(
    invitation: Invitation, seconds: float, reason: str
) -> UnavailableError:
    """Say that nobody answered at the gRPC server's address for so long."""
    return UnavailableError(
        f"the gRPC server at {invitation.address} was not reached for {seconds:g} s "
        f"({reason}); check address, network and certificate"
    )
