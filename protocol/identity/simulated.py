"""Identities of simulated nodes: all derived from one key, in whatever process."""

from __future__ import annotations

import hashlib
import hmac

from wallflower.protocol.identity.canonical import canonical
from wallflower.protocol.identity.enrolment import EnrolmentKey, NodeIdentity

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
