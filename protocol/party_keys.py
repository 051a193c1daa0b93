"""X25519 keys of parties, signed by their identities where nodes are enrolled."""

from __future__ import annotations

from protocol.encoding import canonical
from protocol.errors import AuthenticationError, MalformedMessageError
from protocol.identity import Certificate, NodeIdentity, Trust, verify_signature
from protocol.sealing import KEY_BYTES
from protocol.wire.secure_sum_pb2 import PartyKey


def statement(run_id: str, cohort_id: str, party: str, key: PartyKey) -> bytes:
    """Give the bytes a party signs to own a key, for one cohort or for the run."""
    return canonical(
        "wallflower/v1/party-key",
        run_id,
        "" if key.whole_run else cohort_id,
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


def check_lengths(key: PartyKey, *, mask: bool = False) -> None:
    """Refuse keys of the wrong length."""
    wanted = KEY_BYTES if mask else 0
    if len(key.key) != KEY_BYTES or len(key.mask_key) != wanted:
        raise MalformedMessageError("a party's key has the wrong length")
