"""Unbiased uniform integers of ℤ_m from the operating system's randomness.

Rejection, never reduction: a value drawn as ``bits mod m`` would favour small residues.
"""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.errors import InputError
from wallflower.protocol.secure_sum.backends import LARGEST_MODULUS


def uniform_integers(count: int, modulus: int) -> NDArray[np.uint64]:
    """Draw `count` independent uniform elements of ℤ_modulus, modulus ≤ 2^62."""
    if not 1 <= modulus <= LARGEST_MODULUS:
        raise InputError("modulus", modulus, f"1 to {LARGEST_MODULUS}")
    mask = np.uint64((1 << (modulus - 1).bit_length()) - 1)
    kept = np.empty(0, dtype=np.uint64)
    while kept.size < count:
        # Each word is kept with probability above 1/2.
        wanted = count - kept.size
        words = 2 * wanted + 8 if mask >= modulus else wanted
        drawn = np.frombuffer(secrets.token_bytes(8 * words), dtype="<u8") & mask
        kept = np.concatenate([kept, drawn[drawn < modulus]])
    return kept[:count]
