"""Every message sealed on its own to the server: HPKE (RFC 9180), from `cryptography`.

The shuffler carries the seals and cannot open them; the server opens them and cannot
tell who made which. A key is made for one run. What a seal is for stands in HPKE's
`info`, so that it opens in no other cohort, and all bodies of a cohort have one length.

Two key agreements: X25519, 48 bytes a message; and its hybrid with ML-KEM-768, against
who records today and computes with quanta tomorrow, 1,136 bytes a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import (
    MLKEM768PrivateKey,
    MLKEM768PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

from wallflower.protocol.errors import (
    AuthenticationError,
    InputError,
    MalformedMessageError,
)
from wallflower.protocol.identity.canonical import digest
from wallflower.protocol.secure_sum.keys import KEY_BYTES, check_public

PLAIN = "x25519"
HYBRID = "ml-kem-768-x25519"
_TAG_BYTES = 16
_LATTICE_BYTES = 1184
_SEED_BYTES = 64


@dataclass(frozen=True, slots=True)
class _Kind:
    suite: Any
    public_bytes: int
    private_bytes: int
    overhead: int


_KINDS: Final[Mapping[str, _Kind]] = {
    PLAIN: _Kind(
        Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM),
        KEY_BYTES,
        KEY_BYTES,
        32 + _TAG_BYTES,
    ),
    HYBRID: _Kind(
        Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM),
        _LATTICE_BYTES + KEY_BYTES,
        _SEED_BYTES + KEY_BYTES,
        1120 + _TAG_BYTES,
    ),
}
SEAL_KINDS: Final[tuple[str, ...]] = tuple(_KINDS)


def sealed_bytes(kind: str, body_bytes: int) -> int:
    """Return the length of one sealed message."""
    return _kind(kind).overhead + body_bytes


def seal_info(context: bytes, shuffler: bytes) -> bytes:
    """Bind a seal to a cohort's context and to the shuffler's key."""
    return digest("wallflower/v1/shuffled-message", context, shuffler)


class SealingKey:
    """The server's public key, with which anybody seals."""

    __slots__ = ("_kind", "_public", "raw")

    def __init__(self, kind: str, raw: bytes) -> None:
        self._kind = _kind(kind)
        if len(raw) != self._kind.public_bytes:
            raise MalformedMessageError(
                f"a sealing key of {len(raw)} bytes; {kind} has "
                f"{self._kind.public_bytes}"
            )
        self.raw = raw
        check_public(raw[-KEY_BYTES:])
        agreement = X25519PublicKey.from_public_bytes(raw[-KEY_BYTES:])
        self._public: Any = agreement
        if kind == HYBRID:
            try:
                lattice = MLKEM768PublicKey.from_public_bytes(raw[:-KEY_BYTES])
            except ValueError:
                raise MalformedMessageError("a sealing key that is none") from None
            self._public = MLKEM768X25519PublicKey(lattice, agreement)

    def seal(self, body: bytes, info: bytes) -> bytes:
        """Seal one message, with randomness of its own."""
        sealed: bytes = self._kind.suite.encrypt(body, self._public, info=info)
        return sealed


class OpeningKey:
    """The server's private key; opens, and shows itself nowhere."""

    __slots__ = ("_kind", "_private", "_raw", "kind", "public")

    def __init__(self, kind: str, raw: bytes) -> None:
        self._kind = _kind(kind)
        if len(raw) != self._kind.private_bytes:
            raise MalformedMessageError("a private sealing key of the wrong length")
        self.kind, self._raw = kind, raw
        agreement = X25519PrivateKey.from_private_bytes(raw[-KEY_BYTES:])
        self._private: Any = agreement
        public = agreement.public_key().public_bytes_raw()
        if kind == HYBRID:
            lattice = MLKEM768PrivateKey.from_seed_bytes(raw[:-KEY_BYTES])
            self._private = MLKEM768X25519PrivateKey(lattice, agreement)
            public = lattice.public_key().public_bytes_raw() + public
        self.public = public

    @classmethod
    def generate(cls, kind: str) -> OpeningKey:
        """Make a key for one run."""
        _kind(kind)
        raw = X25519PrivateKey.generate().private_bytes_raw()
        if kind == HYBRID:
            raw = MLKEM768PrivateKey.generate().private_bytes_raw() + raw
        return cls(kind, raw)

    def private_bytes(self) -> bytes:
        """Return the key for the run's own sealed store."""
        return self._raw

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """Open one message, or raise AuthenticationError: altered or from elsewhere."""
        try:
            body: bytes = self._kind.suite.decrypt(sealed, self._private, info=info)
        except (InvalidTag, ValueError):
            raise AuthenticationError("a shuffled message does not open") from None
        return body

    def __repr__(self) -> str:
        """Show the kind only."""
        return f"OpeningKey({self.kind})"


def _kind(name: str) -> _Kind:
    if name not in _KINDS:
        raise InputError("seal", f'"{name}"', " or ".join(_KINDS))
    return _KINDS[name]
