"""Who of a node's users cannot be asked: one bit for each user whom it described.

A node with ten million users says it in 1.25 MB, one with nobody to leave out in no
byte at all. The bits follow the order of the description; a mark of the names shows
that both sides mean the same description.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from wallflower.protocol.errors import MalformedMessageError

Mask = npt.NDArray[np.bool_]  # True: this user cannot be asked
_MARK_BYTES = 8


def mark_users(users: Sequence[str]) -> int:
    """Return a number that stands for these names in this order."""
    names = hashlib.sha256(json.dumps(users).encode()).digest()
    return int.from_bytes(names[:_MARK_BYTES], "big")


def pack_left_out(users: Sequence[str], left_out: Collection[str]) -> bytes:
    """Write which of the users are left out; zero bytes at the end are not written.

    Examples
    --------
    >>> pack_left_out(["a", "b", "c"], {"b"}).hex()
    '02'
    """
    if not left_out:
        return b""
    flags = np.fromiter((user in left_out for user in users), np.bool_, len(users))
    return np.packbits(flags, bitorder="little").tobytes().rstrip(b"\0")


def unpack_left_out(packed: bytes, users: int) -> Mask:
    """Read what `pack_left_out` wrote for so many users.

    Raises MalformedMessageError for bits that stand for nobody.
    """
    if len(packed) > (users + 7) // 8:
        raise MalformedMessageError("a node leaves out more users than it has")
    whole = np.zeros((users + 7) // 8, np.uint8)
    whole[: len(packed)] = np.frombuffer(packed, np.uint8)
    flags = np.unpackbits(whole, bitorder="little").astype(np.bool_)
    if flags[users:].any():
        raise MalformedMessageError("a node leaves out more users than it has")
    return flags[:users]
