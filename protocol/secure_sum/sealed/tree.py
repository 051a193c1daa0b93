"""One digest of many pieces, so that each can be shown to be one of them (Merkle 1979).

A dealer signs the root over all sealed shares. A member is sent its own share and the
digests beside its way up: what the server altered on the way is not the dealer's.
Leaves and inner nodes are hashed under different tags; a last node without a neighbour
moves up as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from wallflower.protocol.errors import MalformedMessageError

_DIGEST_BYTES = 32


def root(pieces: Sequence[bytes]) -> bytes:
    """Digest of all pieces in their order; there is at least one."""
    level = [_leaf(piece) for piece in pieces]
    while len(level) > 1:
        level = _above(level)
    return level[0]


def paths(pieces: Sequence[bytes]) -> list[bytes]:
    """Give, for every piece, the digests beside its way to the root."""
    level = [_leaf(piece) for piece in pieces]
    beside: list[list[bytes]] = [[] for _ in pieces]
    height = 0
    while len(level) > 1:
        for index, way in enumerate(beside):
            neighbour = (index >> height) ^ 1
            if neighbour < len(level):
                way.append(level[neighbour])
        level, height = _above(level), height + 1
    return [b"".join(way) for way in beside]


def climb(piece: bytes, index: int, count: int, beside: bytes) -> bytes:
    """Return the root of `count` pieces with this one at `index`, by its path."""
    node, rest = _leaf(piece), beside
    while count > 1:
        if index ^ 1 < count:
            if len(rest) < _DIGEST_BYTES:
                raise MalformedMessageError("a path to a root is cut short")
            other, rest = rest[:_DIGEST_BYTES], rest[_DIGEST_BYTES:]
            node = _inner(other, node) if index & 1 else _inner(node, other)
        index, count = index >> 1, (count + 1) >> 1
    if rest:
        raise MalformedMessageError("a path to a root is too long")
    return node


def _above(level: list[bytes]) -> list[bytes]:
    above = [_inner(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
    return above + level[-1:] if len(level) & 1 else above


def _leaf(piece: bytes) -> bytes:
    return hashlib.sha256(b"\0" + piece).digest()


def _inner(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()
