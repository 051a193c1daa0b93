"""How a committee's shares are sealed: one share and a user count per seal."""

from __future__ import annotations

import hashlib
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from wallflower.protocol.errors import MalformedMessageError
from wallflower.protocol.identity.canonical import digest
from wallflower.protocol.secure_sum.seals import TAG_BYTES, expand
from wallflower.protocol.secure_sum.stages import CONTRIBUTE

_PLAIN = struct.Struct(">QI")  # share, users
SEAL_BYTES = _PLAIN.size + TAG_BYTES
MOST_USERS = 2**32 - 1
_NONCE = bytes(12)


def committee_digest(body: bytes) -> bytes:
    """Digest of a serialized Committee: who holds which share under which key."""
    return hashlib.sha256(b"wallflower/v1/committee" + body).digest()


def seal_head(context: bytes, committee: bytes) -> bytes:
    """Begin the HKDF info of every seal of a cohort; 32 bytes, to keep infos short."""
    return digest("wallflower/v1/seal", context, committee, CONTRIBUTE)


def seal_share(pair: bytes, info: bytes, share: int, users: int) -> bytes:
    """Seal a share; `info` holds head, sender, receiver and the sender's salt.

    The salt is fresh for every upload, so each expanded key seals one message.
    """
    cipher = AESGCM(expand(pair, info))
    return cipher.encrypt(_NONCE, _PLAIN.pack(share, users), None)


def open_share(pair: bytes, info: bytes, sealed: bytes) -> tuple[int, int] | None:
    """Give share and user count, or None if the seal does not open here."""
    try:
        plain = AESGCM(expand(pair, info)).decrypt(_NONCE, sealed, None)
    except InvalidTag:
        return None
    return _PLAIN.unpack(plain)


def split(body: bytes, count: int, width: int) -> list[bytes]:
    """Cut equal pieces; refuses a body of another length."""
    if len(body) != count * width:
        raise MalformedMessageError("a list of equal pieces has the wrong length")
    return [body[start : start + width] for start in range(0, len(body), width)]
