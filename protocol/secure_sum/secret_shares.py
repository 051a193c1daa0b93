"""Shamir sharing of 32-byte secrets, vectorised over GF(2^31 − 1).

A secret is nine limbs of 30 bits, each shared by its own polynomial. Several secrets
are shared at once. A share of one secret is nine little-endian 32-bit words.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.errors import InputError, MalformedMessageError
from wallflower.protocol.secure_sum.backends import LARGEST_MODULUS
from wallflower.protocol.secure_sum.recovery import (
    InconsistentSharesError,
    barycentric,
    recover_integer,
    zero_coefficients,
)

# --- Unbiased uniform integers of ℤ_m from the operating system's randomness.
#
# Rejection, never reduction: a value drawn as ``bits mod m`` would favour small
# residues.


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


# --- Shamir sharing of integers in a prime field ℤ_m, m ≤ 2^31, vectorised and exact.
#
# Holder x (1, 2, …) gets f(x) for a uniform polynomial f of degree t − 1 with f(0) the
# secret: any t values determine the secret, any t − 1 are uniform whatever it is.
# Products of two residues fit 64 bits.


Residues = NDArray[np.uint64]
_LARGEST_MODULUS = 2**31
_MOST_HOLDERS = 2**20


def share_integers(
    secrets_: Residues, threshold: int, holders: int, modulus: int
) -> Residues:
    """Share each of the given residues; row x − 1 holds what holder x gets."""
    _check(threshold, holders, modulus)
    width = secrets_.shape[0]
    drawn = uniform_integers((threshold - 1) * width, modulus)
    return evaluate(secrets_, drawn.reshape(threshold - 1, width), holders, modulus)


def evaluate(
    constants: Residues, coefficients: Residues, holders: int, modulus: int
) -> Residues:
    """f(1), …, f(holders) for polynomials given by columns.

    `coefficients[j]` belongs to x^(j+1).
    """
    powers = _powers(holders, coefficients.shape[0], modulus)
    m = np.uint64(modulus)
    terms = powers[:, :, None] * coefficients[None, :, :]
    terms %= m
    total: Residues = terms.sum(axis=1, dtype=np.uint64)
    total += constants
    total %= m
    return total


@lru_cache(maxsize=32)
def _powers(holders: int, degree: int, modulus: int) -> Residues:
    """x^j mod m for x = 1..holders, j = 1..degree; m ≤ 2^31."""
    m = np.uint64(modulus)
    x = np.arange(1, holders + 1, dtype=np.uint64) % m
    table = np.empty((holders, degree), dtype=np.uint64)
    power = x.copy()
    for j in range(degree):
        table[:, j] = power
        power = power * x % m
    table.setflags(write=False)
    return table


def _check(threshold: int, holders: int, modulus: int) -> None:
    if not 1 <= threshold <= holders <= _MOST_HOLDERS:
        raise InputError(
            "threshold", f"{threshold} of {holders} holders", "1 to all the holders"
        )
    if not holders < modulus <= _LARGEST_MODULUS:
        raise InputError(
            "modulus", modulus, f"a prime above {holders} holders and at most 2^31"
        )


FIELD = 2**31 - 1
SECRET_BYTES = 32
_LIMB_BITS = 30
_LIMBS = 9
SHARE_BYTES = 4 * _LIMBS
_P = np.uint64(FIELD)


def share_secrets(
    secrets_: Sequence[bytes], threshold: int, holders: int
) -> list[bytes]:
    """Share secrets; entry x − 1 is holder x's shares of all of them, in order."""
    limbs = np.array(
        [limb for secret in secrets_ for limb in _limbs(secret)], dtype=np.uint64
    )
    shares = share_integers(limbs, threshold, holders, FIELD).astype("<u4")
    return [row.tobytes() for row in shares]


def recover_secret(
    shares: Mapping[int, bytes], threshold: int
) -> tuple[bytes, tuple[int, ...]]:
    """Return the secret and the holders whose shares were wrong.

    With more than `threshold` shares a wrong one is noticed except with probability
    2^-31 (one random word of the dual code), and then located where possible.
    """
    xs = tuple(sorted(shares))
    if len(xs) < threshold:
        raise InputError("shares", len(xs), f"at least the threshold {threshold}")
    if any(len(shares[x]) != SHARE_BYTES for x in xs):
        raise MalformedMessageError("a share of the wrong length")
    words = np.frombuffer(b"".join(shares[x] for x in xs), dtype="<u4")
    rows = words.reshape(len(xs), _LIMBS).astype(np.uint64)
    if int(rows.max()) >= FIELD:
        raise MalformedMessageError("a share outside the field")
    if not _seems_consistent(xs, rows, threshold):
        return _locate_wrong(xs, rows, threshold)
    weights = _weights(xs[:threshold])
    limbs = (weights[:, None] * rows[:threshold] % _P).sum(axis=0) % _P
    return _join_limbs([int(limb) for limb in limbs]), ()


def _seems_consistent(
    xs: tuple[int, ...], rows: NDArray[np.uint64], threshold: int
) -> bool:
    spare = len(xs) - threshold
    if spare == 0:
        return True
    random = uniform_integers(spare, FIELD)
    word = (random[:, None] * _dual_code(xs, spare) % _P).sum(axis=0) % _P
    checks = (word[:, None] * rows % _P).sum(axis=0) % _P
    return not checks.any()


def _locate_wrong(
    xs: tuple[int, ...], rows: NDArray[np.uint64], threshold: int
) -> tuple[bytes, tuple[int, ...]]:
    wrong: set[int] = set()
    limbs = []
    for column in rows.T:
        values = {x: int(y) for x, y in zip(xs, column, strict=True)}
        recovered = recover_integer(values, threshold, FIELD)
        limbs.append(recovered.secret)
        wrong.update(recovered.wrong)
    if 2 * len(wrong) > len(xs) - threshold:
        raise InconsistentSharesError("too many shares are wrong to tell which")
    return _join_limbs(limbs), tuple(sorted(wrong))


@lru_cache(maxsize=256)
def _weights(xs: tuple[int, ...]) -> NDArray[np.uint64]:
    return np.array(zero_coefficients(xs, FIELD), dtype=np.uint64)


@lru_cache(maxsize=64)
def _dual_code(xs: tuple[int, ...], spare: int) -> NDArray[np.uint64]:
    """Return rows that every codeword is orthogonal to: w_i·x_i^j for j < spare."""
    row = np.array(barycentric(xs, FIELD), dtype=np.uint64)
    points = np.array(xs, dtype=np.uint64)
    table = np.empty((spare, len(xs)), dtype=np.uint64)
    for j in range(spare):
        table[j] = row
        row = row * points % _P
    return table


def _limbs(secret: bytes) -> list[int]:
    if len(secret) != SECRET_BYTES:
        raise InputError("secret", f"{len(secret)} bytes", f"{SECRET_BYTES} bytes")
    number = int.from_bytes(secret, "little")
    mask = (1 << _LIMB_BITS) - 1
    return [number >> (_LIMB_BITS * i) & mask for i in range(_LIMBS)]


def _join_limbs(limbs: Sequence[int]) -> bytes:
    """Join limbs; limbs no honest dealer shared are inconsistent."""
    number = 0
    for index, limb in enumerate(limbs):
        if limb >> _LIMB_BITS:
            raise InconsistentSharesError("the shares hold no 32-byte secret")
        number |= limb << (_LIMB_BITS * index)
    if number >> (8 * SECRET_BYTES):
        raise InconsistentSharesError("the shares hold no 32-byte secret")
    return number.to_bytes(SECRET_BYTES, "little")
