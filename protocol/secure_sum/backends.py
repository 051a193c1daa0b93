"""The secure-sum back-ends by name, and the modulus each works in."""

from __future__ import annotations

from typing import Final

from wallflower.protocol.errors import InputError, nearest
from wallflower.protocol.numbers import whole
from wallflower.protocol.wire.cohort_pb2 import CohortSpec

SECAGG_PLUS: Final = "secagg-plus"
SEALED: Final = "sealed"
SHUFFLE: Final = "shuffle"
BACKENDS: Final = (SECAGG_PLUS, SEALED, SHUFFLE)
LARGEST_MODULUS: Final = 2**62
MOST_USERS: Final = 2**32 - 1  # that one node may speak for
# Back-ends of earlier releases, and what took their place.
_SUCCESSORS: Final = {"committee": SEALED}


def check_backend(parameter: str, name: str) -> None:
    """Refuse a back-end that is not known, with its successor or the near miss."""
    if name in BACKENDS:
        return
    hint = nearest(name, BACKENDS)
    if name in _SUCCESSORS:
        hint = f' (it is gone; "{_SUCCESSORS[name]}" took its place)'
    raise InputError(parameter, f'"{name}"{hint}', f"one of {', '.join(BACKENDS)}")


def summing_modulus(spec: CohortSpec) -> int | None:
    """Give the modulus in which nodes add up; None where a sum is one of ℤ."""
    return None if spec.backend == SEALED else spec.modulus


def backend_modulus(backend: str, minimum: int) -> int:
    """Give the modulus a back-end uses where the mechanism needs at least `minimum`.

    `secagg-plus` works in any ℤ_m; `sealed` in ℤ itself, where m is the width of the
    window in which the sum is decoded; `shuffle` in powers of two.
    """
    check_backend("backend", backend)
    whole("modulus", minimum, at_least=2, at_most=LARGEST_MODULUS)
    return 1 << (minimum - 1).bit_length() if backend == SHUFFLE else minimum
