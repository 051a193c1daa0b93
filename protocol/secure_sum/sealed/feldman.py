"""Sharing a secret so that every holder can check its share (Feldman 1987).

A dealer draws f(x) = a₀ + a₁x + … + a_{t−1}x^{t−1} over ℤ_q, gives f(i) to holder i and
publishes A_k = a_k·G. Holder i checks f(i)·G = Σ iᵏ·A_k. Fewer than t shares and the
A_k tell nothing about a₀ beyond A₀: given A₀ and any t − 1 shares, the other A_k follow
by interpolation in the exponent, so they can be simulated.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import reduce

from wallflower.protocol.errors import MalformedMessageError
from wallflower.protocol.secure_sum.sealed.group import (
    ORDER,
    POINT_BYTES,
    Point,
    base,
    random_scalar,
    times,
    total,
)


def random_polynomial(threshold: int, order: int = ORDER) -> list[int]:
    """Draw t coefficients, the secret first; none is 0, whose point has no encoding.

    The law differs from uniform by t/q, which is nothing.
    """
    if order == ORDER:
        return [random_scalar() for _ in range(threshold)]
    return [secrets.randbelow(order) for _ in range(threshold)]


def evaluate(coefficients: Sequence[int], place: int, order: int = ORDER) -> int:
    """f(place), by Horner's rule."""
    return reduce(lambda value, a: (value * place + a) % order, reversed(coefficients))


def commit(coefficients: Sequence[int]) -> list[Point]:
    """A_k = a_k·G."""
    return [base(coefficient) for coefficient in coefficients]


def share_point(commitments: Sequence[Point], place: int) -> Point:
    """f(place)·G from the commitments, by Horner's rule with the small factor place."""
    value = commitments[-1]
    for commitment in reversed(commitments[:-1]):
        value = total((times(value, place), commitment))
    return value


def fits(share: int, commitments: Sequence[Point], place: int) -> bool:
    """Tell whether a share is the dealer's polynomial at `place`."""
    return bool(share % ORDER) and base(share) == share_point(commitments, place)


def commitment_bytes(commitments: Sequence[Point]) -> bytes:
    """Write commitments one after the other."""
    return b"".join(map(bytes, commitments))


def read_commitments(body: bytes, threshold: int) -> list[Point]:
    """Read exactly t commitments: another number is another degree."""
    if len(body) != threshold * POINT_BYTES:
        raise MalformedMessageError(
            f"{len(body)} bytes of commitments; {threshold} points are due"
        )
    return [
        Point.parse(body[start : start + POINT_BYTES])
        for start in range(0, len(body), POINT_BYTES)
    ]


def added(columns: Sequence[Sequence[Point]]) -> list[Point]:
    """Add polynomials' commitments up, coefficient by coefficient."""
    return [total(column) for column in zip(*columns, strict=True)]
