"""Who a node is: Ed25519 identities certified by an enrolment key.

The server does not hold the enrolment key, so it cannot invent nodes. Without one the
run is labelled *semi-honest server* wherever it is shown: keys are then taken from the
server on trust.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from google.protobuf.message import DecodeError

from wallflower.protocol.errors import (
    AuthenticationError,
    ConfigError,
    InputError,
    MalformedMessageError,
)
from wallflower.protocol.identity.canonical import LONGEST_NAME, canonical
from wallflower.protocol.numbers import whole
from wallflower.protocol.wire import identity_pb2

_CERTIFICATE = "wallflower/v1/enrolment-certificate"
_LARGEST_CERTIFICATE = 1024
_LARGEST_CAPACITY = 2**32


def trust_label(*, enrolled: bool, malicious_server: bool) -> str:
    """Say in words what must be believed of the server; shown wherever a run is."""
    if not enrolled:
        return "semi-honest server (no enrolment key: node keys are not authenticated)"
    if malicious_server:
        return "malicious server withstood (enrolled nodes)"
    return "semi-honest server (enrolled nodes)"


@dataclass(frozen=True, slots=True)
class Certificate:
    """An enrolment key's word that `node_id` owns `public_key` until `not_after`.

    `capacity` is the most users the node may speak for: a node cannot help a lying
    server over the quorum by claiming more.
    """

    node_id: str
    public_key: bytes
    serial: int
    not_after: int
    capacity: int
    signature: bytes = b""

    def signed_part(self) -> bytes:
        """Return the bytes the enrolment key signs."""
        return canonical(
            _CERTIFICATE,
            self.node_id,
            self.public_key,
            self.serial,
            self.not_after,
            self.capacity,
        )

    def to_bytes(self) -> bytes:
        """Serialize (wallflower.v1.EnrolmentCertificate)."""
        return identity_pb2.EnrolmentCertificate(
            node_id=self.node_id,
            public_key=self.public_key,
            serial=self.serial,
            not_after=self.not_after,
            capacity=self.capacity,
            signature=self.signature,
        ).SerializeToString(deterministic=True)

    @classmethod
    def from_bytes(cls, body: bytes) -> Certificate:
        """Parse; raises MalformedMessageError. Says nothing about who signed it."""
        if len(body) > _LARGEST_CERTIFICATE:
            raise MalformedMessageError("an enrolment certificate is too long")
        try:
            message = identity_pb2.EnrolmentCertificate.FromString(body)
        except DecodeError:
            raise MalformedMessageError("an enrolment certificate is garbled") from None
        if len(message.public_key) != 32 or len(message.signature) != 64:
            raise MalformedMessageError("an enrolment certificate is incomplete")
        return cls(
            node_id=message.node_id,
            public_key=message.public_key,
            serial=message.serial,
            not_after=message.not_after,
            capacity=message.capacity,
            signature=message.signature,
        )


class EnrolmentKey:
    """The key that admits nodes to an experiment; kept away from the server."""

    def __init__(self, private_key: Ed25519PrivateKey) -> None:
        self._private_key = private_key
        self.public_key = private_key.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return f"EnrolmentKey(public_key={self.public_key.hex()})"

    @classmethod
    def generate(cls) -> EnrolmentKey:
        """Make a new one from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_private_bytes(cls, seed: bytes) -> EnrolmentKey:
        """Restore from the 32 bytes of `private_bytes`."""
        return cls(_private_key(seed))

    def private_bytes(self) -> bytes:
        """Return the 32 secret bytes, to be stored by the caller."""
        return self._private_key.private_bytes_raw()

    def issue(
        self,
        node_id: str,
        public_key: bytes,
        *,
        not_after: int,
        capacity: int = 1,
        serial: int | None = None,
    ) -> Certificate:
        """Certify a node's public key until `not_after` for at most `capacity` users.

        The serial is random unless given.
        """
        if not 0 < len(node_id) <= LONGEST_NAME:
            raise InputError("node_id", node_id, f"1 to {LONGEST_NAME} characters")
        if len(public_key) != 32:
            raise InputError("public_key", public_key.hex(), "32 bytes of Ed25519")
        whole("capacity", capacity, at_least=1, at_most=_LARGEST_CAPACITY)
        bare = Certificate(
            node_id,
            public_key,
            secrets.randbits(63) if serial is None else serial,
            not_after,
            capacity,
        )
        signature = self._private_key.sign(bare.signed_part())
        return Certificate(
            node_id=bare.node_id,
            public_key=bare.public_key,
            serial=bare.serial,
            not_after=bare.not_after,
            capacity=bare.capacity,
            signature=signature,
        )


class NodeIdentity:
    """A node's own Ed25519 key and, once enrolled, its certificate."""

    def __init__(
        self,
        node_id: str,
        private_key: Ed25519PrivateKey,
        certificate: Certificate | None = None,
    ) -> None:
        self.node_id = node_id
        self._private_key = private_key
        self.public_key = private_key.public_key().public_bytes_raw()
        if certificate is not None and (
            certificate.node_id != node_id or certificate.public_key != self.public_key
        ):
            raise InputError(
                "certificate", f"for {certificate.node_id}", f"one issued to {node_id}"
            )
        self.certificate = certificate

    def __repr__(self) -> str:
        return f"NodeIdentity({self.node_id!r}, public_key={self.public_key.hex()})"

    @classmethod
    def generate(cls, node_id: str) -> NodeIdentity:
        """Make a new identity from the operating system's randomness."""
        return cls(node_id, Ed25519PrivateKey.generate())

    @classmethod
    def from_private_bytes(
        cls, node_id: str, seed: bytes, certificate: Certificate | None = None
    ) -> NodeIdentity:
        """Restore from the 32 bytes of `private_bytes`."""
        return cls(node_id, _private_key(seed), certificate)

    def private_bytes(self) -> bytes:
        """Return the 32 secret bytes, to be stored by the caller."""
        return self._private_key.private_bytes_raw()

    def enrolled(self, certificate: Certificate) -> NodeIdentity:
        """Return the same identity with its certificate."""
        return NodeIdentity(self.node_id, self._private_key, certificate)

    def sign(self, message: bytes) -> bytes:
        """Sign; the caller's message names its purpose (see `encoding.canonical`)."""
        return self._private_key.sign(message)


def verify_signature(public_key: bytes, signature: bytes, message: bytes) -> None:
    """Raise AuthenticationError unless `public_key` signed `message`."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        raise AuthenticationError("a signature does not hold") from None


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom a party believes: an enrolment key, minus what has expired or is revoked.

    A connection may last for weeks: the clock (Unix seconds) and the revoked serials
    are looked at each time. Only signatures found good are remembered: by content,
    because one certificate has endless encodings, and `most_remembered` at a time.
    """

    enrolment_key: bytes
    clock: Callable[[], float]
    revoked: Container[int] = frozenset()
    most_remembered: int = 2**17
    _signed: dict[Certificate, None] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def remembered(self) -> int:
        """How many certificates are known to be signed."""
        return len(self._signed)

    def after(self, seconds: float) -> Trust:
        """Believe what was good so long ago: who shows it was let in meanwhile."""
        return replace(self, clock=lambda: self.clock() - seconds)

    def verify(self, node_id: str, body: bytes) -> Certificate:
        """Return the certificate of `node_id`, or raise AuthenticationError."""
        certificate = Certificate.from_bytes(body)
        if certificate not in self._signed:
            self._check_signature(certificate)
            while len(self._signed) >= self.most_remembered:
                self._signed.pop(next(iter(self._signed)), None)  # the oldest
            self._signed[certificate] = None
        self._check_validity(certificate)
        if certificate.node_id != node_id:
            raise AuthenticationError(
                f"the certificate of {certificate.node_id} was shown for {node_id}"
            )
        return certificate

    def _check_signature(self, certificate: Certificate) -> None:
        try:
            verify_signature(
                self.enrolment_key, certificate.signature, certificate.signed_part()
            )
        except AuthenticationError:
            raise AuthenticationError(
                f"the certificate of {certificate.node_id} was not signed by the "
                "enrolment key"
            ) from None

    def _check_validity(self, certificate: Certificate) -> None:
        who = certificate.node_id
        if certificate.not_after < self.clock():
            raise AuthenticationError(f"the certificate of {who} has expired")
        try:
            revoked = certificate.serial in self.revoked
        except ConfigError:
            raise AuthenticationError(
                f"whether the certificate of {who} is revoked cannot be read"
            ) from None
        if revoked:
            raise AuthenticationError(f"the certificate of {who} is revoked")


def _private_key(seed: bytes) -> Ed25519PrivateKey:
    if len(seed) != 32:
        raise InputError("private key", f"{len(seed)} bytes", "32 bytes")
    return Ed25519PrivateKey.from_private_bytes(seed)


# Identities of simulated nodes: all derived from one key, in whatever process.


SEED_FILE = "simulated-enrolment.key"
_NEVER = 2**40  # seconds since 1970: beyond any simulation


def simulated_identity(seed: bytes, node_id: str, users: int) -> NodeIdentity:
    """Return a node's identity and certificate; the same for the same seed and name.

    `seed` is the enrolment key's. Only for simulations: whoever has it is every node.
    """
    place = canonical("wallflower/v1/simulated-identity", node_id)
    secret = hmac.new(seed, place, hashlib.sha256).digest()
    identity = NodeIdentity.from_private_bytes(node_id, secret)
    serial = int.from_bytes(hashlib.sha256(place).digest()[:7], "big")
    certificate = EnrolmentKey.from_private_bytes(seed).issue(
        node_id, identity.public_key, not_after=_NEVER, capacity=users, serial=serial
    )
    return identity.enrolled(certificate)
