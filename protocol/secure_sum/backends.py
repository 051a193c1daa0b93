"""The secure-sum back-ends by name, and the modulus each works in."""

from __future__ import annotations

from wallflower.protocol.errors import InputError, nearest
from wallflower.protocol.numbers import whole
from wallflower.protocol.secure_sum.primes import (
    LARGEST_MODULUS,
    smallest_prime_at_least,
)
from wallflower.protocol.wire.cohort_pb2 import CohortSpec

COMMITTEE = "committee"
SECAGG_PLUS = "secagg-plus"
SEALED = "sealed"
SHUFFLE = "shuffle"
BACKENDS = (COMMITTEE, SECAGG_PLUS, SEALED, SHUFFLE)


def summing_modulus(spec: CohortSpec) -> int | None:
    """Give the modulus in which nodes add up; None where a sum is one of ℤ."""
    return None if spec.backend == SEALED else spec.modulus


def backend_modulus(backend: str, minimum: int) -> int:
    """Give the modulus a back-end uses where the mechanism needs at least `minimum`.

    `committee` shares integers in the field ℤ_m itself, so m is the smallest prime
    ≥ minimum; `secagg-plus` works in any ℤ_m; `sealed` in ℤ itself, where m is the
    width of the window in which the sum is decoded; `shuffle` in powers of two.
    """
    if backend not in BACKENDS:
        raise InputError(
            "backend", f'"{backend}"{nearest(backend, BACKENDS)}', " or ".join(BACKENDS)
        )
    whole("modulus", minimum, at_least=2, at_most=LARGEST_MODULUS)
    if backend == SHUFFLE:
        return 1 << (minimum - 1).bit_length()
    return smallest_prime_at_least(minimum) if backend == COMMITTEE else minimum
