"""Shamir sharing of 32-byte secrets, vectorised over GF(2^31 − 1).

A secret is nine limbs of 30 bits, each shared by its own polynomial. Several secrets
are shared at once. A share of one secret is nine little-endian 32-bit words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.errors import InputError, MalformedMessageError
from wallflower.protocol.secure_sum.recovery import (
    InconsistentSharesError,
    barycentric,
    recover_integer,
    zero_coefficients,
)
from wallflower.protocol.secure_sum.shamir import share_integers
from wallflower.protocol.secure_sum.uniform import uniform_integers

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
    """Give the secret and the holders whose shares were wrong.

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
        return _located(xs, rows, threshold)
    weights = _weights(xs[:threshold])
    limbs = (weights[:, None] * rows[:threshold] % _P).sum(axis=0) % _P
    return _joined([int(limb) for limb in limbs]), ()


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


def _located(
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
    return _joined(limbs), tuple(sorted(wrong))


@lru_cache(maxsize=256)
def _weights(xs: tuple[int, ...]) -> NDArray[np.uint64]:
    return np.array(zero_coefficients(xs, FIELD), dtype=np.uint64)


@lru_cache(maxsize=64)
def _dual_code(xs: tuple[int, ...], spare: int) -> NDArray[np.uint64]:
    """Rows that every codeword is orthogonal to: w_i·x_i^j for j < spare."""
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


def _joined(limbs: Sequence[int]) -> bytes:
    """Put limbs together; limbs no honest dealer shared are inconsistent."""
    number = 0
    for index, limb in enumerate(limbs):
        if limb >> _LIMB_BITS:
            raise InconsistentSharesError("the shares hold no 32-byte secret")
        number |= limb << (_LIMB_BITS * index)
    if number >> (8 * SECRET_BYTES):
        raise InconsistentSharesError("the shares hold no 32-byte secret")
    return number.to_bytes(SECRET_BYTES, "little")
