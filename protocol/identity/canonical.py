"""One unambiguous way to write several values as bytes to hash or sign.

Protobuf is not canonical, so nothing is ever signed or hashed in its wire form unless
those very bytes travel along.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from wallflower.protocol.errors import MalformedMessageError

LONGEST_NAME = 200
# A kind and a length in eight bytes, written out for the short values there mostly are.
_BYTES, _TEXT, _INTEGER = (
    [kind + size.to_bytes(8, "big") for size in range(256)]
    for kind in (b"b", b"s", b"i")
)


def _head(heads: list[bytes], size: int) -> bytes:
    return heads[0][:1] + size.to_bytes(8, "big")


def canonical(*values: str | bytes | int) -> bytes:
    """Write values so that no two different sequences give the same bytes."""
    parts: list[bytes] = []
    for value in values:
        if isinstance(value, bytes):
            heads, raw = _BYTES, value
        elif isinstance(value, str):
            heads, raw = _TEXT, value.encode()
        else:
            heads, raw = _INTEGER, str(value).encode()
        size = len(raw)
        parts += (heads[size] if size < 256 else _head(heads, size), raw)
    return b"".join(parts)


@lru_cache(maxsize=2**16)
def name_tag(party: str) -> bytes:
    """Write a party's name so that two names in a row are unambiguous."""
    check_name(party)
    raw = party.encode()
    return len(raw).to_bytes(2, "big") + raw


def check_name(party: str) -> None:
    """Refuse what is no name of a party: a certificate has room for 200 characters."""
    if not 0 < len(party) <= LONGEST_NAME:
        raise MalformedMessageError(
            f"a party's name has {len(party)} characters; 1 to {LONGEST_NAME} may be"
        )


def digest(*values: str | bytes | int) -> bytes:
    """SHA-256 of the canonical form."""
    return hashlib.sha256(canonical(*values)).digest()
