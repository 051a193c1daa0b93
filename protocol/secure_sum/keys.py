"""X25519 keys of parties, signed by their identities where nodes are enrolled."""

from __future__ import annotations

from collections.abc import Sequence

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
from wallflower.protocol.secure_sum.seals import check_public
from wallflower.protocol.wire.secure_sum_pb2 import PartyKey


def statement(run_id: str, cohort_id: str, party: str, key: PartyKey) -> bytes:
    """Give the bytes a party signs to own a key in one cohort."""
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
    """Give the certificate of the party that surely owns the key, or raise."""
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
