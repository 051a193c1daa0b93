"""What a node and the gRPC server must agree on to begin a stream: proofs and limits.

A node shows in the headers of its call that this run invited it, by a MAC under its run
token. Of anybody else the gRPC server reads nothing. The node then proves three things
about one fresh stream: that it holds its Ed25519 identity (signature), that this run
invited it (run token), and that it means this gRPC server (the gRPC server's TLS
certificate is inside what it signs). The gRPC server proves that it knows the run's
secret. Tokens never travel: both sides show a MAC under the token, so what was recorded
on one stream is worthless on any other.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, replace

from wallflower.protocol.errors import AuthenticationError, InputError
from wallflower.protocol.identity.canonical import canonical
from wallflower.protocol.wire import node_service_pb2

VERSION = 1
METHOD = "/wallflower.v1.NodeService/Connect"
POLL = "/wallflower.v1.NodeService/Poll"
NONCE_BYTES = 32
INSTANCE_BYTES = 16
# The header that says who calls; of a caller it does not prove nothing more is read.
HANDSHAKE = "handshake-bin"
LONGEST_HANDSHAKE = 4096

# Every reason for which the gRPC server ends a stream, with the gRPC status that
# carries it.
STATUS = {
    "malformed-message": "INVALID_ARGUMENT",
    "unexpected-message": "INVALID_ARGUMENT",
    "unsupported-version": "FAILED_PRECONDITION",
    "wrong-run": "FAILED_PRECONDITION",
    "tls-too-old": "FAILED_PRECONDITION",
    "wrong-server": "FAILED_PRECONDITION",
    "clock-differs": "FAILED_PRECONDITION",
    "unknown-key": "PERMISSION_DENIED",
    "not-your-name": "PERMISSION_DENIED",
    "revoked": "PERMISSION_DENIED",
    "certificate-invalid": "UNAUTHENTICATED",
    "certificate-expired": "UNAUTHENTICATED",
    "token-expired": "UNAUTHENTICATED",
    "token-invalid": "UNAUTHENTICATED",
    "signature-invalid": "UNAUTHENTICATED",
    "too-large": "RESOURCE_EXHAUSTED",
    "too-many-streams": "RESOURCE_EXHAUSTED",
    "too-fast": "RESOURCE_EXHAUSTED",
    "handshake-late": "DEADLINE_EXCEEDED",
    "heartbeat-lost": "DEADLINE_EXCEEDED",
    "superseded": "ABORTED",
    "poll-repeated": "ALREADY_EXISTS",
    "already-connected": "ALREADY_EXISTS",
    "server-closing": "UNAVAILABLE",
    "server-unready": "UNAVAILABLE",
    "run-over": "OK",
}
# Coming back will not help: the node stops and says why.
FINAL = frozenset(
    reason
    for reason, status in STATUS.items()
    if status
    in {
        "INVALID_ARGUMENT",
        "FAILED_PRECONDITION",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "ABORTED",
    }
)


@dataclass(frozen=True, slots=True)
class RunToken:
    """A node's admission ticket to one run; a secret of node and server."""

    expiry: int
    key: bytes
    holder: str = ""  # whom it was issued to, where that is not the node's own name

    def __repr__(self) -> str:
        """Say when it ends, never what it is."""
        return f"RunToken(expiry={self.expiry})"

    def to_text(self) -> str:
        """Write it for a config value or an environment variable."""
        holder = f".{self.holder}" if self.holder else ""
        return f"{self.expiry}.{self.key.hex()}{holder}"

    @classmethod
    def from_text(cls, text: str) -> RunToken:
        """Read what `to_text` wrote."""
        expiry, _, rest = text.strip().partition(".")
        key, _, holder = rest.partition(".")
        try:
            token = cls(int(expiry), bytes.fromhex(key), holder)
        except ValueError:
            token = cls(0, b"")
        if len(token.key) != 32:
            raise InputError("run token", "unreadable", "what the run handed out")
        return token


class RunTokens:
    """The server's side: makes the token of any node of one run from one secret.

    Parameters
    ----------
    run_id : str
        A token of another run never fits.
    secret : bytes
        32 bytes; kept in the run directory so that nodes come back after a restart.
    """

    def __init__(self, run_id: str, secret: bytes) -> None:
        if len(secret) != 32:
            raise InputError("run secret", f"{len(secret)} bytes", "32 bytes")
        self.run_id = run_id
        self._secret = secret

    @staticmethod
    def new_secret() -> bytes:
        """Draw a run's secret from the operating system."""
        return secrets.token_bytes(32)

    def issue(self, node_id: str, *, expiry: int) -> RunToken:
        """Make the token of one node, good until `expiry` (Unix seconds)."""
        message = canonical("wallflower/v1/run-token", self.run_id, node_id, expiry)
        return RunToken(
            expiry, hmac.new(self._secret, message, hashlib.sha256).digest()
        )

    def issue_to(self, holder: str, *, expiry: int) -> RunToken:
        """Make a token for a holder whose node's own name is not known yet."""
        return replace(self.issue(holder, expiry=expiry), holder=holder)


def hello_transcript(hello: node_service_pb2.Hello) -> bytes:
    """Return what the MAC in the headers is about: all of the hello."""
    return canonical("wallflower/v1/hello", *_list_fields(hello))


def transcript(
    hello: node_service_pb2.Hello, challenge: node_service_pb2.Challenge
) -> bytes:
    """Return what both proofs are about: everything either side has said so far."""
    return canonical(
        "wallflower/v1/connect",
        *_list_fields(hello),
        challenge.nonce,
        challenge.server_fingerprint,
    )


def poll_transcript(handshake: node_service_pb2.PollHandshake) -> bytes:
    """What a polling node's proofs are about: the poll, its body by its digest."""
    return canonical(
        "wallflower/v1/poll",
        *_list_fields(handshake.hello),
        handshake.at_ms,
        handshake.server_fingerprint,
        handshake.digest,
    )


def reply_transcript(poll: bytes, body: bytes) -> bytes:
    """What the gRPC server's proof is about: the poll's transcript, and the reply to
    it.
    """
    return canonical("wallflower/v1/asked", poll, body)


def _list_fields(hello: node_service_pb2.Hello) -> tuple[str | int | bytes, ...]:
    return (
        hello.version,
        hello.run_id,
        hello.node_id,
        hello.public_key,
        hello.certificate,
        hello.nonce,
        hello.token_expiry,
        hello.instance,
        hello.token_holder,
    )


def token_proof(token: RunToken, side: str, transcript: bytes) -> bytes:
    """MAC of the transcript under the token; `side` keeps the two directions apart."""
    return hmac.new(token.key, canonical(side, transcript), hashlib.sha256).digest()


def check_token_proof(
    token: RunToken, side: str, transcript: bytes, proof: bytes
) -> None:
    """Raise AuthenticationError unless `proof` was made with the token."""
    if not hmac.compare_digest(token_proof(token, side, transcript), proof):
        raise AuthenticationError(f"the {side}'s proof does not fit the run token")
