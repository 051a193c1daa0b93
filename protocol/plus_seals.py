"""What a secagg-plus party seals for a neighbour: two shares and its user count."""

from __future__ import annotations

import struct

from protocol.cohort_context import seal_info
from protocol.sealing import TAG_BYTES
from protocol.secret_shares import SHARE_BYTES
from protocol.wire.secure_sum_pb2 import Stage

_USERS = struct.Struct(">I")
BOTH_SHARES = 2 * SHARE_BYTES
PLUS_SEAL_BYTES = BOTH_SHARES + _USERS.size + TAG_BYTES


def share_info(context: bytes, sender: str, receiver: str, salt: bytes) -> bytes:
    """HKDF info of the seal from one neighbour to another."""
    return seal_info(context, int(Stage.STAGE_SHARE), sender, receiver) + salt


def pack(both: bytes, users: int) -> bytes:
    """Write the shares of the self seed and of the mask key, and the user count."""
    return both + _USERS.pack(users)


def unpack(plain: bytes) -> tuple[bytes, int]:
    """Read what `pack` wrote."""
    return plain[:BOTH_SHARES], _USERS.unpack(plain[BOTH_SHARES:])[0]
