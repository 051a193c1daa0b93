"""A gRPC server for a run that Flower carries: opened by the ServerApp, joined by all
nodes.

Address, certificate and key come from ``[transport]``; whom to admit, from
``[secure-sum] enrolment``. The secret behind the run's tokens lies in the run
directory, so that nodes find their way back to a server that was restarted.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from wallflower.protocol.errors import ConfigError, InputError
from wallflower.protocol.files import keyfiles
from wallflower.protocol.files.watched import RevokedSerials
from wallflower.protocol.identity.certificates import (
    KeyPair,
    make_authority,
    make_server_certificate,
)
from wallflower.protocol.identity.tokens import RunToken, RunTokens
from wallflower.protocol.messages import flower as flower_record
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.sections import TransportSettings
from wallflower.strategy.transport.flower import FlowerTransport
from wallflower.strategy.transport.grid import Fields
from wallflower.strategy.transport.grpc.admission import (
    Admission,
    EnrolledKeys,
    FirstUseKeys,
    RevokedNodes,
    TokenHolders,
)
from wallflower.strategy.transport.grpc.server import GrpcServer
from wallflower.strategy.transport.node_inviter import InvitationPace, NodeInviter

HOLDER = "flower/"  # + Flower's number of a node: whom a token is issued to
SECRET_FILE = "run-token.secret"  # noqa: S105 (a file's name)
_TOKEN_DAYS = 30
_TRUSTEE_DAYS = 400  # rounds of people who arrive are long


def enrolment_key(config: ExperimentConfig) -> bytes | None:
    """Read the public enrolment key that ``[secure-sum] enrolment`` names."""
    path = config.secure_sum.enrolment
    if path is None:
        if config.secure_sum.server == "malicious":
            raise ConfigError(
                "secure-sum.enrolment",
                'is missing; server = "malicious" needs the public enrolment key',
            )
        return None
    return keyfiles.read_public(path)


@asynccontextmanager
async def flower_grpc(
    config: ExperimentConfig,
    run_id: str,
    run_dir: Path,
    port: FlowerTransport,
    *,
    pace: InvitationPace | None = None,
) -> AsyncIterator[GrpcServer]:
    """Open the run's gRPC server and keep all nodes that Flower lists connected."""
    transport = config.transport
    root, server = grpc_certificates(transport)
    tokens = RunTokens(run_id, run_secret(run_dir))
    admission = _admission(config, tokens, TokenHolders(HOLDER))
    grpc_server = GrpcServer(admission, server)
    listening = await grpc_server.open(f"{transport.host}:{transport.port}")
    address = transport.public_address or f"{transport.host}:{listening}"
    expiry = int(time.time()) + _TOKEN_DAYS * 86_400

    def invitation(flower_id: int) -> Fields:
        token = tokens.issue_to(f"{HOLDER}{flower_id}", expiry=expiry)
        return {
            flower_record.ADDRESS: address,
            flower_record.CERTIFICATE: root,
            flower_record.RUN_ID: run_id,
            flower_record.TOKEN: token.to_text(),
        }

    # After an error nodes are let go: a resumed run sends for them again. After a kill
    # they hear nothing and look for the gRPC server for a while.
    run_over = "failed"
    try:
        async with NodeInviter(port, invitation, pace).kept():
            yield grpc_server
            run_over = "finished"
    finally:
        await grpc_server.close(run_over)


@dataclass(frozen=True, slots=True)
class TrusteeInvitation:
    """What a trustee must be given to connect."""

    name: str
    address: str
    root_certificate: bytes
    token: RunToken


@dataclass(slots=True)
class TrusteeServer:
    """The gRPC server of a run with trustees, and who is invited to it.

    Trustees that are not told `is_over` stay: a resumed run finds them, with their
    shares of the key.
    """

    server: GrpcServer
    invited: Sequence[TrusteeInvitation]
    is_over: bool = False


@asynccontextmanager
async def trustee_grpc(
    config: ExperimentConfig, run_id: str, run_dir: Path
) -> AsyncIterator[TrusteeServer]:
    """Open the run's gRPC server for its trustees, and invite each by name."""
    assert config.visitors is not None
    transport = config.transport
    root, server = _kept_certificates(transport, run_dir)
    tokens = RunTokens(run_id, run_secret(run_dir))
    grpc_server = GrpcServer(_admission(config, tokens, None), server)
    listening = await grpc_server.open(f"{transport.host}:{transport.port}")
    address = transport.public_address or f"{transport.host}:{listening}"
    expiry = int(time.time()) + _TRUSTEE_DAYS * 86_400
    invited = [
        TrusteeInvitation(name, address, root, tokens.issue(name, expiry=expiry))
        for name in config.visitors.trustees
    ]
    opened = TrusteeServer(grpc_server, invited)
    try:
        yield opened
    finally:
        await grpc_server.close("finished" if opened.is_over else None)


def _admission(
    config: ExperimentConfig, tokens: RunTokens, holders: TokenHolders | None
) -> Admission:
    key = enrolment_key(config)
    return Admission(
        tokens,
        FirstUseKeys() if key is None else EnrolledKeys(key, revoked_serials(config)),
        _revoked_nodes(config),
        malicious_server=config.secure_sum.server == "malicious",
        holders=holders,
    )


def _kept_certificates(
    transport: TransportSettings, run_dir: Path
) -> tuple[bytes, KeyPair]:
    """Return what trustees believe; where the server makes its own, the same again."""
    if transport.certificate is not None:
        return grpc_certificates(transport)
    paths = [run_dir / name for name in ("server-ca.crt", "server.crt", "server.key")]
    if not all(path.exists() for path in paths):
        root, server = grpc_certificates(transport)
        for path, content in zip(
            paths, (root, server.certificate, server.private_key), strict=True
        ):
            path.unlink(missing_ok=True)
            keyfiles.write_private(path, content)
    root, certificate, private_key = map(keyfiles.read_private, paths)
    return root, KeyPair(certificate, private_key)


def grpc_certificates(transport: TransportSettings) -> tuple[bytes, KeyPair]:
    """Return the certificate that nodes without their own believe, and the gRPC
    server's pair.

    Without files a gRPC server on loopback makes its own; any other address needs real
    ones.
    """
    if transport.certificate is not None and transport.private_key is not None:
        try:
            certificate = transport.certificate.read_bytes()
        except OSError as error:
            raise ConfigError(
                "transport.certificate",
                f"{transport.certificate} cannot be read ({error.strerror})",
            ) from None
        return certificate, KeyPair(
            certificate, keyfiles.read_private(transport.private_key)
        )
    if not _is_loopback(transport.host):
        raise InputError(
            "transport.host", transport.host, "loopback, unless certificate is given"
        )
    now = datetime.datetime.now(datetime.UTC)
    authority = make_authority("Wallflower gRPC server", now=now, days=_TOKEN_DAYS)
    server = make_server_certificate(
        authority, [transport.host], now=now, days=_TOKEN_DAYS
    )
    return authority.certificate, server


def revoked_serials(config: ExperimentConfig) -> RevokedSerials | frozenset[int]:
    """Watch the file of revoked serials beside the enrolment key."""
    path = config.secure_sum.enrolment
    if path is None:
        return frozenset()
    return RevokedSerials(path.with_name(keyfiles.REVOKED))


def _revoked_nodes(config: ExperimentConfig) -> RevokedNodes:
    """Watch the file of revoked names, so that a node can be shut out during a run."""
    path = config.secure_sum.enrolment
    beside = None if path is None else path.with_name(keyfiles.REVOKED_NODES)
    return RevokedNodes(beside, required=False)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def run_secret(run_dir: Path) -> bytes:
    """Read the run's secret, or make it for a new run."""
    path = run_dir / SECRET_FILE
    if path.exists():
        return keyfiles.read_private(path)
    secret = RunTokens.new_secret()
    # Whole or not at all: a crash or a full disk must not leave half a secret behind.
    draft = run_dir / f"{SECRET_FILE}.{os.getpid()}"
    keyfiles.write_private(draft, secret)
    draft.replace(path)
    return secret
