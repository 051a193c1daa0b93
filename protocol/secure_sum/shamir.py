"""Shamir sharing of integers in a prime field ℤ_m, vectorised and exact.

Holder x (1, 2, …) gets f(x) for a uniform polynomial f of degree t − 1 with f(0) the
secret: any t values determine the secret, any t − 1 are uniform whatever it is.

Moduli reach 2^62, where a product does not fit 64 bits. Below 2^31 a table of powers is
used; above, Horner's rule, whose multiplier x is so small that a double finds the
quotient to within one, and wrapping 64-bit arithmetic the exact remainder.
"""

from __future__ import annotations

from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.errors import InputError
from wallflower.protocol.secure_sum.primes import LARGEST_MODULUS
from wallflower.protocol.secure_sum.uniform import uniform_integers

Residues = NDArray[np.uint64]
_TABLE_BELOW = 2**31
_MOST_HOLDERS = 2**20


def share_integers(
    secrets_: Residues, threshold: int, holders: int, modulus: int
) -> Residues:
    """Share each of the given residues; row x − 1 holds what holder x gets."""
    _check(threshold, holders, modulus)
    width = secrets_.shape[0]
    drawn = uniform_integers((threshold - 1) * width, modulus)
    return evaluate(secrets_, drawn.reshape(threshold - 1, width), holders, modulus)


def share_integer(secret: int, threshold: int, holders: int, modulus: int) -> list[int]:
    """Share one residue; entry x − 1 is the share of holder x."""
    if not 0 <= secret < modulus:
        raise InputError("the secret", "outside the field", f"0 to {modulus - 1}")
    one = np.array([secret], dtype=np.uint64)
    shares = share_integers(one, threshold, holders, modulus)
    return cast(list[int], shares[:, 0].tolist())


def evaluate(
    constants: Residues, coefficients: Residues, holders: int, modulus: int
) -> Residues:
    """f(1), …, f(holders) for polynomials given by columns; exact for m ≤ 2^62.

    `coefficients[j]` belongs to x^(j+1).
    """
    if modulus <= _TABLE_BELOW:
        powers = _powers(holders, coefficients.shape[0], modulus)
        m = np.uint64(modulus)
        terms = powers[:, :, None] * coefficients[None, :, :]
        terms %= m
        total: Residues = terms.sum(axis=1, dtype=np.uint64)
        total += constants
        total %= m
        return total
    x = np.arange(1, holders + 1, dtype=np.int64)[:, None]
    m_signed = np.int64(modulus)
    value = np.zeros((holders, constants.shape[0]), dtype=np.int64)
    for row in [*coefficients[::-1], constants]:
        value = _times_small(value, x, modulus) + row.astype(np.int64)
        value = np.where(value >= m_signed, value - m_signed, value)
    return cast(Residues, value.astype(np.uint64))


def _times_small(
    value: NDArray[np.int64], x: NDArray[np.int64], modulus: int
) -> NDArray[np.int64]:
    """value · x mod m for 0 ≤ value < m ≤ 2^62 and 0 < x ≤ 2^20.

    The quotient is below 2^20, so its double is off by at most one; the difference of
    the two wrapped products is then the true remainder, within (−m, 2m), mod 2^64 and
    so in int64.
    """
    quotient = (value.astype(np.float64) * x / float(modulus)).astype(np.int64)
    m = np.int64(modulus)
    with np.errstate(over="ignore"):
        rest = value * x - quotient * m
    rest = np.where(rest < 0, rest + m, rest)
    return np.where(rest >= m, rest - m, rest)


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
    if not holders < modulus <= LARGEST_MODULUS:
        raise InputError(
            "modulus", modulus, f"a prime above {holders} holders and at most 2^62"
        )
