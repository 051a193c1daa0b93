"""What a secagg-plus party seals for a neighbour: two shares and its user count."""

from __future__ import annotations

import struct

from wallflower.protocol.identity.canonical import digest, name_tag
from wallflower.protocol.secure_sum.seals import TAG_BYTES
from wallflower.protocol.secure_sum.secret_shares import SHARE_BYTES
from wallflower.protocol.secure_sum.stages import SHARE

_USERS = struct.Struct(">I")
BOTH_SHARES = 2 * SHARE_BYTES
PLUS_SEAL_BYTES = BOTH_SHARES + _USERS.size + TAG_BYTES


def share_head(context: bytes) -> bytes:
    """Begin the HKDF info of every seal of a cohort; 32 bytes, to keep infos short."""
    return digest("wallflower/v1/seal", context, SHARE)


def share_info(head: bytes, sender: str, receiver: str, salt: bytes) -> bytes:
    """HKDF info of the seal from one neighbour to another."""
    return head + name_tag(sender) + name_tag(receiver) + salt


def pack(both: bytes, users: int) -> bytes:
    """Write the shares of the self seed and of the mask key, and the user count."""
    return both + _USERS.pack(users)


def unpack(plain: bytes) -> tuple[bytes, int]:
    """Read what `pack` wrote."""
    return plain[:BOTH_SHARES], _USERS.unpack(plain[BOTH_SHARES:])[0]
