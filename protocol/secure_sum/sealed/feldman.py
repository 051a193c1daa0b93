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
from itertools import pairwise

from wallflower.protocol.errors import MalformedMessageError
from wallflower.protocol.secure_sum.sealed.group import (
    ORDER,
    POINT_BYTES,
    DegenerateSumError,
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
    try:
        for commitment in reversed(commitments[:-1]):
            value = total((times(value, place), commitment))
    except DegenerateSumError:  # infinity on the way, which is no point
        powers = (pow(place, k, ORDER) for k in range(len(commitments)))
        return total(list(map(times, commitments, powers)))
    return value


def share_points(commitments: Sequence[Point], last: int) -> list[Point]:
    """f(1)·G … f(last)·G; after the first t of them by additions alone.

    A polynomial of degree t − 1 has constant differences of that order.
    """
    ahead = range(1, min(len(commitments), last) + 1)
    points = [share_point(commitments, place) for place in ahead]
    try:
        edge, row = [points[-1]], points
        while len(row) > 1:
            row = [after - before for before, after in pairwise(row)]
            edge.append(row[-1])
        for _ in range(len(points), last):
            for order in range(len(edge) - 2, -1, -1):
                edge[order] = total((edge[order], edge[order + 1]))
            points.append(edge[0])
    except DegenerateSumError:  # a difference is infinity: possible, never by chance
        return [share_point(commitments, place) for place in range(1, last + 1)]
    return points


def fits(share: int, commitments: Sequence[Point], place: int) -> bool:
    """Return whether a share is the dealer's polynomial at `place`."""
    return bool(share % ORDER) and base(share) == share_point(commitments, place)


def commitment_bytes(commitments: Sequence[Point]) -> bytes:
    """Write commitments one after the other."""
    return b"".join(map(bytes, commitments))


def read_commitments(body: bytes, threshold: int) -> list[Point]:
    """Read exactly t commitments: another number is another degree."""
    check_length(body, threshold)
    return [
        Point.parse(body[start : start + POINT_BYTES])
        for start in range(0, len(body), POINT_BYTES)
    ]


def check_length(body: bytes, threshold: int) -> None:
    """Refuse what cannot be t commitments, whatever the points are."""
    if len(body) != threshold * POINT_BYTES:
        raise MalformedMessageError(
            f"{len(body)} bytes of commitments; {threshold} points are due"
        )


def add_up(columns: Sequence[Sequence[Point]]) -> list[Point]:
    """Add polynomials' commitments up, coefficient by coefficient."""
    return [total(column) for column in zip(*columns, strict=True)]
