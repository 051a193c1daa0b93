"""Masks of secagg-plus: uniform elements of ℤ_m from 32-byte seeds, any m.

HMAC-SHA256 in counter mode, cut into words, with rejection: never ``mod m``, which
would favour small residues.
"""

from __future__ import annotations

import hmac

from wallflower.protocol.identity.canonical import canonical

_WORD_BYTES = 8
_WORDS = 4


def mask_info(context: bytes, purpose: str) -> bytes:
    """Bind a mask to its cohort and to what it hides: ``self`` or ``pair``."""
    return canonical("wallflower/v1/mask", context, purpose)


def mask_value(seed: bytes, info: bytes, modulus: int) -> int:
    """Expand a seed to one uniform element of ℤ_modulus, modulus ≤ 2^64."""
    keep = (1 << (modulus - 1).bit_length()) - 1
    counter = 0
    while True:
        block = hmac.digest(seed, info + counter.to_bytes(4, "big"), "sha256")
        for index in range(_WORDS):
            start = index * _WORD_BYTES
            word = int.from_bytes(block[start : start + _WORD_BYTES], "big") & keep
            if word < modulus:
                return word
        counter += 1
