"""Shamir sharing of integers in a prime field ℤ_m, m ≤ 2^31, vectorised and exact.

Holder x (1, 2, …) gets f(x) for a uniform polynomial f of degree t − 1 with f(0) the
secret: any t values determine the secret, any t − 1 are uniform whatever it is.
Products of two residues fit 64 bits.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.errors import InputError
from wallflower.protocol.secure_sum.uniform import uniform_integers

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
