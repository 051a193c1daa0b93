"""X25519 keys of parties, signed by their identities where nodes are enrolled."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from wallflower.protocol.errors import (
    AuthenticationError,
    MalformedMessageError,
    UnusableKeyError,
)
from wallflower.protocol.identity.canonical import canonical
from wallflower.protocol.identity.enrolment import (
    Certificate,
    NodeIdentity,
    Trust,
    verify_signature,
)
from wallflower.protocol.wire.secure_sum_pb2 import PartyKey

# --- Keys between two parties and what is sealed with them.
#
# X25519 → HKDF-SHA256 → AES-256-GCM, all from `cryptography` and the standard library.
# A *pair key* is the HKDF extract-and-expand of a Diffie-Hellman secret, bound to the
# run and both public keys; it may be kept for a run. A *sealing key* is expanded from
# it for one message only: run, batch, arm, cohort, roster, sender, receiver, stage and
# salt are in its `info`, so a seal opens in no other place, and the nonce may be zero.


KEY_BYTES = 32
SALT_BYTES = 16
TAG_BYTES = 16
_NONCE = bytes(12)
_PAIR = b"wallflower/v1/pair-key"


_PRIME = 2**255 - 19
# Every u-coordinate of small order (RFC 7748, section 6.1): what is agreed with one of
# these is zero, whoever agrees. p and p + 1 are other ways to write 0 and 1.
_SMALL_ORDER = frozenset(
    point.to_bytes(32, "little")
    for point in (
        0,
        1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
        _PRIME - 1,
        _PRIME,
        _PRIME + 1,
    )
)


def check_public(key: bytes) -> None:
    """Refuse a public key of the wrong length or of small order."""
    if len(key) != KEY_BYTES:
        raise MalformedMessageError("a public key is not 32 bytes long")
    # X25519 does not look at the highest bit.
    if key[:-1] + bytes([key[-1] & 0x7F]) in _SMALL_ORDER:
        raise UnusableKeyError("a public key is of small order: nobody agrees with it")


def expand(key: bytes, info: bytes) -> bytes:
    """HKDF-Expand (RFC 5869) to 32 bytes: its first and only block."""
    return hmac.digest(key, info + b"\x01", "sha256")


def pair_key(
    mine: X25519PrivateKey, my_public: bytes, theirs: bytes, purpose: bytes
) -> bytes:
    """Agree on a key; the same for both sides, different for every purpose and pair."""
    if len(theirs) != KEY_BYTES:
        raise MalformedMessageError("a public key is not 32 bytes long")
    try:
        secret = mine.exchange(X25519PublicKey.from_public_bytes(theirs))
    except ValueError:
        # All-zero secret: the peer sent a point of small order.
        raise AuthenticationError("a public key is degenerate") from None
    extracted = hmac.digest(_PAIR, secret, "sha256")
    # Both keys are 32 bytes, so the info is unambiguous as it stands.
    low, high = (my_public, theirs) if my_public < theirs else (theirs, my_public)
    return expand(extracted, low + high + purpose)


def seal(key: bytes, info: bytes, plain: bytes) -> bytes:
    """Seal one message under the key expanded for `info`; never twice with one info."""
    return AESGCM(expand(key, info)).encrypt(_NONCE, plain, None)


def unseal(key: bytes, info: bytes, sealed: bytes) -> bytes:
    """Open a seal, or raise AuthenticationError: altered, or from elsewhere."""
    try:
        return AESGCM(expand(key, info)).decrypt(_NONCE, sealed, None)
    except InvalidTag:
        raise AuthenticationError("a seal does not open") from None


def split(body: bytes, count: int, width: int) -> list[bytes]:
    """Cut equal pieces; refuses a body of another length."""
    if len(body) != count * width:
        raise MalformedMessageError("a list of equal pieces has the wrong length")
    return [body[start : start + width] for start in range(0, len(body), width)]


def fingerprint(key: bytes) -> str:
    """Name a public key in a log line."""
    return hashlib.sha256(key).hexdigest()[:12]


def statement(run_id: str, cohort_id: str, party: str, key: PartyKey) -> bytes:
    """Return the bytes a party signs to own a key in one cohort."""
    return canonical(
        "wallflower/v1/party-key",
        run_id,
        cohort_id,
        party,
        key.key,
        key.mask_key,
    )


def signed(
    key: PartyKey,
    run_id: str,
    cohort_id: str,
    party: str,
    identity: NodeIdentity | None,
) -> PartyKey:
    """Add certificate and signature where the party is enrolled."""
    if identity is not None and identity.certificate is not None:
        key.certificate = identity.certificate.to_bytes()
        key.signature = identity.sign(statement(run_id, cohort_id, party, key))
    return key


def verify(
    key: PartyKey, run_id: str, cohort_id: str, party: str, trust: Trust
) -> Certificate:
    """Return the certificate of the party that surely owns the key, or raise."""
    if not key.certificate or not key.signature:
        raise AuthenticationError(f"{party} showed no certificate for its key")
    certificate = trust.verify(party, key.certificate)
    try:
        verify_signature(
            certificate.public_key,
            key.signature,
            statement(run_id, cohort_id, party, key),
        )
    except AuthenticationError:
        raise AuthenticationError(f"{party} did not sign its key") from None
    return certificate


def check_usable(key: PartyKey, *, mask: bool = False) -> None:
    """Refuse keys with which nothing can be sealed or masked."""
    check_public(key.key)
    if mask:
        check_public(key.mask_key)
        if key.key == key.mask_key:
            raise UnusableKeyError("one key for two purposes")
    elif key.mask_key:
        raise MalformedMessageError("a mask key where none belongs")


def check_distinct(keys: Sequence[PartyKey]) -> None:
    """Refuse a list in which two parties show the same key."""
    shown = [raw for key in keys for raw in (key.key, key.mask_key) if raw]
    if len(set(shown)) != len(shown):
        raise UnusableKeyError("two parties show the same key")
