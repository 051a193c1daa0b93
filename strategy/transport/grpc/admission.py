"""Who gets in: the checks between a node's Hello and its Welcome."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import (
    Callable,
    Iterable,
    MutableMapping,
)
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from wallflower.protocol.errors import AuthenticationError, ConfigError, ProtocolError
from wallflower.protocol.files.watched import RevokedSerials, WatchedFile
from wallflower.protocol.identity.canonical import LONGEST_NAME
from wallflower.protocol.identity.enrolment import (
    Certificate,
    trust_label,
    verify_signature,
)
from wallflower.protocol.identity.tokens import (
    INSTANCE_BYTES,
    NONCE_BYTES,
    VERSION,
    RunToken,
    RunTokens,
    check_token_proof,
    poll_transcript,
    reply_transcript,
    token_proof,
    transcript,
)
from wallflower.protocol.wire import node_service_pb2

# How far a polling node's clock may be off: so long, and no longer, a recorded poll
# could be shown to a gRPC server that was restarted and has forgotten it.
MOST_SKEW_S = 300.0


class RefusedError(Exception):
    """A stream must end; `reason` is a key of `protocol.identity.tokens.STATUS`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class KeyRule(Protocol):
    """Decides whether a public key may speak for a node id."""

    @property
    def enrolled(self) -> bool:
        """True when somebody other than the server vouches for keys."""
        ...

    def check(self, hello: node_service_pb2.Hello, now: float) -> None:
        """Raise `RefusedError` for a key that may not."""
        ...

    def confirm(self, hello: node_service_pb2.Hello) -> None:
        """Take note that the key was proved."""
        ...

    def find_expelled(self, hello: node_service_pb2.Hello, now: float) -> str | None:
        """Return the reason for which a key that was let in may not stay."""
        ...

    def expiry(self, hello: node_service_pb2.Hello) -> float:
        """Return the time (Unix seconds) after which a key may not stay."""
        ...

    def read_revoked(self) -> frozenset[int]:
        """Return the revoked serials; a change of it is a reason to look again."""
        ...


@dataclass(frozen=True, slots=True)
class EnrolledKeys:
    """Keys certified by an enrolment key, which the server does not hold."""

    enrolment_key: bytes
    revoked_serials: RevokedSerials | frozenset[int] = frozenset()
    enrolled: bool = True

    def check(self, hello: node_service_pb2.Hello, now: float) -> None:
        """Check that the certificate is of this key and name, signed and in time."""
        if not hello.certificate:
            raise RefusedError("unknown-key")
        try:
            certificate = Certificate.from_bytes(hello.certificate)
        except ProtocolError:
            raise RefusedError("certificate-invalid") from None
        try:
            verify_signature(
                self.enrolment_key, certificate.signature, certificate.signed_part()
            )
        except AuthenticationError:
            raise RefusedError("unknown-key") from None
        if (certificate.node_id, certificate.public_key) != (
            hello.node_id,
            hello.public_key,
        ):
            raise RefusedError("not-your-name")
        if (reason := self._find_end(certificate, now)) is not None:
            raise RefusedError(reason)

    def confirm(self, hello: node_service_pb2.Hello) -> None:
        """Nothing to remember: the certificate says it all."""

    def find_expelled(self, hello: node_service_pb2.Hello, now: float) -> str | None:
        """Look at the clock and the revoked serials again; the rest stays true."""
        return self._find_end(_parsed(hello.certificate), now)

    def expiry(self, hello: node_service_pb2.Hello) -> float:
        """Return the end of the certificate."""
        return _parsed(hello.certificate).not_after

    def read_revoked(self) -> frozenset[int]:
        """Return the revoked serials as they are now."""
        serials = self.revoked_serials
        return serials if isinstance(serials, frozenset) else serials.read()

    def _find_end(self, certificate: Certificate, now: float) -> str | None:
        if certificate.not_after < now:
            return "certificate-expired"
        return "revoked" if certificate.serial in self.read_revoked() else None


class FirstUseKeys:
    """The first key proved for a node id stays that node's key.

    Parameters
    ----------
    pins : MutableMapping[str, bytes]
        Node id → public key; give one that is stored to outlive a restart.
    """

    enrolled = False

    def __init__(self, pins: MutableMapping[str, bytes] | None = None) -> None:
        self._pins: MutableMapping[str, bytes] = {} if pins is None else pins

    def check(self, hello: node_service_pb2.Hello, now: float) -> None:
        """Check that no other key was there first."""
        if self._pins.get(hello.node_id, hello.public_key) != hello.public_key:
            raise RefusedError("not-your-name")

    def confirm(self, hello: node_service_pb2.Hello) -> None:
        """Pin the key that was proved."""
        self._pins.setdefault(hello.node_id, hello.public_key)

    def find_expelled(self, hello: node_service_pb2.Hello, now: float) -> str | None:
        """Who was first stays."""
        return None

    def expiry(self, hello: node_service_pb2.Hello) -> float:
        """No certificate, no end."""
        return math.inf

    def read_revoked(self) -> frozenset[int]:
        """No certificate, no serial."""
        return frozenset()


class TokenHolders:
    """Lets tokens speak for nodes whose name was not known when they were issued.

    Flower knows a node by a number, we by the name on its certificate. A token issued
    to Flower's number serves whatever name its node proves first, and no other; nor
    does a second number get that name.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._names: dict[str, str] = {}  # holder → name
        self._holders: dict[str, str] = {}  # name → holder

    def check(self, hello: node_service_pb2.Hello) -> None:
        """Raise `RefusedError` unless holder and name may go together."""
        holder, name = hello.token_holder, hello.node_id
        if not holder.startswith(self._prefix):
            raise RefusedError("token-invalid")
        if (
            self._names.get(holder, name) != name
            or self._holders.get(name, holder) != holder
        ):
            raise RefusedError("not-your-name")

    def confirm(self, hello: node_service_pb2.Hello) -> None:
        """Take note that the two go together."""
        self._names.setdefault(hello.token_holder, hello.node_id)
        self._holders.setdefault(hello.node_id, hello.token_holder)


class RevokedNodes:
    """Node ids that may not come (any more): a set, and a file that may change."""

    def __init__(self, path: Path | None = None, *, required: bool = True) -> None:
        self._file = None if path is None else WatchedFile(path, required=required)
        self._added: set[str] = set()

    def add(self, node_id: str) -> None:
        """Revoke a node until the process ends."""
        self._added.add(node_id)

    def read(self) -> frozenset[str]:
        """Return everybody who is revoked now; raises ConfigError."""
        listed = frozenset() if self._file is None else self._file.read()
        return listed | self._added if self._added else listed


class Admission:
    """All checks of a handshake, in order, for one run.

    Parameters
    ----------
    tokens : RunTokens
        The run and its secret.
    keys : KeyRule
        Which public key may speak for which node.
    revoked : RevokedNodes
        Who may not come.
    malicious_server : bool
        What the run's secure sums withstand; only for the label.
    holders : TokenHolders, optional
        Lets tokens be issued before the node's name is known; without it a token
        serves the very name it was issued to.
    clock : Callable[[], float]
        Unix seconds.
    """

    def __init__(
        self,
        tokens: RunTokens,
        keys: KeyRule,
        revoked: RevokedNodes | None = None,
        *,
        malicious_server: bool = False,
        holders: TokenHolders | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.run_id = tokens.run_id
        self.revoked = RevokedNodes() if revoked is None else revoked
        self.label = trust_label(
            enrolled=keys.enrolled, malicious_server=malicious_server
        )
        self._tokens = tokens
        self._keys = keys
        self._token_holders = holders
        self._clock = clock
        # What the last look at those inside was made with.
        self._seen: tuple[frozenset[str], frozenset[int]] | None = None
        self._next_expiry = math.inf

    def require_token(
        self, hello: node_service_pb2.Hello, side: str, transcribed: bytes, proof: bytes
    ) -> None:
        """Refuse whoever does not hold a token of this run; it costs one MAC."""
        try:
            check_token_proof(self._token(hello), side, transcribed, proof)
        except AuthenticationError:
            raise RefusedError("token-invalid") from None

    def challenge(
        self, hello: node_service_pb2.Hello, server_fingerprint: bytes
    ) -> node_service_pb2.Challenge:
        """Check what can be checked at once; draw the nonce and show our own proof."""
        self._check(hello)
        challenge = node_service_pb2.Challenge(
            nonce=secrets.token_bytes(NONCE_BYTES),
            server_fingerprint=server_fingerprint,
        )
        challenge.server_proof = token_proof(
            self._token(hello), "server", transcript(hello, challenge)
        )
        return challenge

    def check_poll(
        self, handshake: node_service_pb2.PollHandshake, server_fingerprint: bytes
    ) -> bytes:
        """Check a handshake, which must prove all at once; give what was proved.

        Whether it was seen before is for whoever remembers the node's last one.
        """
        hello, transcribed = handshake.hello, poll_transcript(handshake)
        if abs(self._clock() - handshake.at_ms / 1000) > MOST_SKEW_S:
            raise RefusedError("clock-differs")
        if handshake.server_fingerprint not in (b"", server_fingerprint):
            raise RefusedError("wrong-server")
        self._check(hello)
        self._prove(hello, transcribed, handshake.proof)
        return transcribed

    def reply_proof(
        self, hello: node_service_pb2.Hello, transcribed: bytes, body: bytes
    ) -> bytes:
        """Show a polling node that the gRPC server knows the run, and that this is its
        reply.
        """
        return token_proof(
            self._token(hello), "server", reply_transcript(transcribed, body)
        )

    def _check(self, hello: node_service_pb2.Hello) -> None:
        if hello.version != VERSION:
            raise RefusedError("unsupported-version")
        if (
            len(hello.public_key) != 32
            or len(hello.nonce) != NONCE_BYTES
            or len(hello.instance) != INSTANCE_BYTES
            or not 0 < len(hello.node_id) <= LONGEST_NAME
        ):
            raise RefusedError("malformed-message")
        if hello.run_id != self.run_id:
            raise RefusedError("wrong-run")
        now = self._clock()
        if hello.token_expiry < now:
            raise RefusedError("token-expired")
        try:
            if hello.node_id in self.revoked.read():
                raise RefusedError("revoked")
            self._keys.check(hello, now)
        except ConfigError:  # of a list of the revoked
            raise RefusedError("server-unready") from None
        self._check_holder(hello)

    def admit(
        self,
        hello: node_service_pb2.Hello,
        challenge: node_service_pb2.Challenge,
        proof: node_service_pb2.Proof,
    ) -> None:
        """Check the proofs over the whole transcript; raises `RefusedError`."""
        self._prove(hello, transcript(hello, challenge), proof)
        self._next_expiry = min(self._next_expiry, self._keys.expiry(hello))

    def _prove(
        self,
        hello: node_service_pb2.Hello,
        transcribed: bytes,
        proof: node_service_pb2.Proof,
    ) -> None:
        self.require_token(hello, "node", transcribed, proof.token_proof)
        try:
            verify_signature(hello.public_key, proof.signature, transcribed)
        except AuthenticationError:
            raise RefusedError("signature-invalid") from None
        # Another stream may have been first with another key in the meantime.
        try:
            self._keys.check(hello, self._clock())
        except ConfigError:
            raise RefusedError("server-unready") from None
        self._check_holder(hello)
        self._keys.confirm(hello)
        if self._token_holders is not None:
            self._token_holders.confirm(hello)

    def find_expelled(self, hellos: Iterable[node_service_pb2.Hello]) -> dict[str, str]:
        """Say who of those inside may not stay, and why; raises ConfigError."""
        now, revoked = self._clock(), self.revoked.read()
        seen = (revoked, self._keys.read_revoked())
        if seen == self._seen and now <= self._next_expiry:
            return {}  # thousands of nodes, every few seconds, and nothing changed
        reasons, self._next_expiry = {}, math.inf
        for hello in hellos:
            if hello.node_id in revoked:
                reasons[hello.node_id] = "revoked"
            elif (reason := self._keys.find_expelled(hello, now)) is not None:
                reasons[hello.node_id] = reason
            else:
                self._next_expiry = min(self._next_expiry, self._keys.expiry(hello))
        self._seen = seen
        return reasons

    def _token(self, hello: node_service_pb2.Hello) -> RunToken:
        holder = hello.token_holder or hello.node_id
        return self._tokens.issue(holder, expiry=hello.token_expiry)

    def _check_holder(self, hello: node_service_pb2.Hello) -> None:
        if self._token_holders is not None:
            self._token_holders.check(hello)
        elif hello.token_holder:
            raise RefusedError("token-invalid")


# Certificates of nodes that are inside, looked at every few seconds.
_parsed = lru_cache(maxsize=2**16)(Certificate.from_bytes)
