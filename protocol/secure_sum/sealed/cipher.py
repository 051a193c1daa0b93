"""ElGamal in the exponent: what a node seals, and how members open the sum.

A node's integer y becomes (C₁, C₂) = (r·G, r·P + y·G) with fresh r. Ciphertexts add up
to one of Σ y under Σ r. Member i of the committee, whose key is s_i, gives
D_i = s_i·ΣC₁; any t of them give s·ΣC₁ by Lagrange's formula in the exponent, and
ΣC₂ − s·ΣC₁ = (Σ y)·G. There is no modulus: the sum is an integer of ℤ.

Under DDH a ciphertext hides y from whoever knows fewer than t of the s_i. The D_i
reveal s·ΣC₁ and nothing else: with t − 1 keys and s·ΣC₁ the other D_i follow. ElGamal
is malleable, so a contribution carries a proof that its sender knows r, bound to
context, sender, users and both points: a re-randomised copy of somebody else's
ciphertext has an r that its sender does not know.

From (Σ y)·G back to Σ y, known to lie in a window, it takes baby steps and giant steps.
The table holds j·G for 1 ≤ j ≤ w by the first bytes of x; x is the same for j and −j,
so one look covers 2w + 1 numbers, and a window of m numbers takes m/(2w + 1) giant
steps. The table depends on nothing but the generator: it is made once per process and
grows when a wider window comes. Public data in, public data out: a sum that was never
meant to be released never gets there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from wallflower.protocol.errors import InputError
from wallflower.protocol.identity.canonical import digest
from wallflower.protocol.secure_sum.recovery import zero_coefficients
from wallflower.protocol.secure_sum.sealed.group import (
    ORDER,
    DegenerateSumError,
    KeyPair,
    Point,
    base,
    plus_base,
    prove_knowledge,
    shows_knowledge,
    times,
    total,
)

LARGEST_VALUE = 2**62
_SHIFT = 2**64
_UNSHIFT = base(-_SHIFT)
LARGEST_WINDOW: Final = 2**42
_SMALLEST_TABLE = 256
_LARGEST_TABLE = 2**20
_EVEN = 2  # how a point with an even y begins
_KEY = slice(1, 9)  # 64 bits of x: a false hit is checked and costs one step


@dataclass(frozen=True, slots=True)
class Ciphertext:
    """(C₁, C₂), or a sum of such."""

    one: Point
    two: Point


@dataclass(frozen=True, slots=True)
class Opening:
    """What a sealer knows of its own ciphertext, for proofs about it."""

    randomness: KeyPair
    value: int

    def __repr__(self) -> str:
        return "Opening(…)"


def encrypt(public: Point, value: int) -> tuple[Ciphertext, Opening]:
    """Encrypt y under P.

    y·G is computed as (y + 2⁶⁴)·G − 2⁶⁴·G by the constant-time routine, so that time
    tells nothing about y, zero included. r·P takes variable time; r is used once.
    """
    if abs(value) >= LARGEST_VALUE:
        raise InputError("value", "too large (not shown)", "below 2^62 in magnitude")
    randomness = KeyPair.generate()
    mask = times(public, randomness.secret)
    two = total((mask, base(value + _SHIFT), _UNSHIFT))
    return Ciphertext(randomness.point, two), Opening(randomness, value)


@lru_cache(maxsize=256)
def sealed_context(context: bytes, dealing: bytes) -> bytes:
    """Bind a cohort's context to the name of the dealing it is sealed under."""
    return digest("wallflower/v1/sealed-context", context, dealing)


def opening_place(
    context: bytes, summed: bytes, contributors: int, users: int, party: str
) -> bytes:
    """Say what a member's answer is about: cohort, dealing, set and member."""
    return digest("wallflower/v1/opening", context, summed, contributors, users, party)


def statement(context: bytes, sender: str, users: int, one: bytes, two: bytes) -> bytes:
    """Digest of all that a contribution says; its proofs and signature are bound to it.

    `context` holds run, cohort, every other field of the description, roster and
    dealing.
    """
    return digest("wallflower/v1/contribution", context, sender, users, one, two)


def prove_sender(opening: Opening, statement: bytes) -> bytes:
    """Prove knowledge of r, bound to the statement."""
    return prove_knowledge(opening.randomness, statement)


def shows_sender(one: Point, proof: bytes, statement: bytes) -> bool:
    """Check what `prove_sender` made."""
    return shows_knowledge(one, proof, statement)


def lagrange(places: tuple[int, ...], order: int = ORDER) -> tuple[int, ...]:
    """λ_i with f(0) = Σ λ_i·f(i) for every f of degree below the number of places."""
    return _lagrange(places, order)


@lru_cache(maxsize=64)
def _lagrange(places: tuple[int, ...], order: int) -> tuple[int, ...]:
    return tuple(zero_coefficients(places, order))


def combine(answers: Mapping[int, Point]) -> Point:
    """s·ΣC₁ from exactly t answers D_i, by place."""
    places = tuple(sorted(answers))
    return total(
        [
            times(answers[place], weight)
            for place, weight in zip(places, lagrange(places), strict=True)
        ]
    )


def uncover(two: Point, mask: Point) -> Point | None:
    """(Σ y)·G = ΣC₂ − s·ΣC₁, or None for infinity: a sum of 0."""
    try:
        return two - mask
    except DegenerateSumError:
        return None


class _Table:
    """j·G by x, for j from 1; grows in place.

    Of j and −j, which share their x, the one whose point has the even y stands in it.
    """

    def __init__(self) -> None:
        self.reach = 0
        self._last = base(1)
        self._places: dict[bytes, int] = {}

    def grow(self, reach: int) -> None:
        """Take in all j up to `reach`."""
        if reach <= self.reach:
            return
        step, last = base(1), self._last
        for j in range(self.reach + 1, reach + 1):
            last = total((last, step)) if j > 2 else base(j)
            body = bytes(last)
            self._places[body[_KEY]] = j if body[0] == _EVEN else -j
        self.reach, self._last = reach, last

    def find(self, point: Point) -> int | None:
        """Return j with point = j·G and |j| ≤ reach, or None."""
        body = bytes(point)
        even = self._places.get(body[_KEY])
        if even is None:
            return None
        j = even if body[0] == _EVEN else -even
        return j if base(j) == point else None


_TABLE = _Table()


def table_reach(window: int) -> int:
    """Baby steps for a window: √(2m), as a table serves every sum of a run."""
    return min(max(_SMALLEST_TABLE, math.isqrt(2 * window)), _LARGEST_TABLE)


def decode(point: Point | None, low: int, high: int) -> int | None:
    """Return y with point = y·G and low ≤ y ≤ high, or None; infinity (None) is 0."""
    window = high - low + 1
    if not 1 <= window <= LARGEST_WINDOW:
        raise InputError("window of a sum", window, f"1 to 2^42 ({LARGEST_WINDOW})")
    if point is None:
        return 0 if low <= 0 <= high else None
    _TABLE.grow(table_reach(window))
    reach = _TABLE.reach
    # Look at `point` less the middle of each stretch of 2w + 1 numbers in turn.
    stride, middle = 2 * reach + 1, low + reach
    rest, step = _less(point, middle), None
    while middle - reach <= high:
        j = 0 if rest is None else _TABLE.find(rest)
        if j is not None:
            return middle + j if middle + j <= high else None
        assert rest is not None
        middle += stride
        step = step or base(-stride)
        rest = _sum(rest, step)
    return None


def _sum(point: Point, other: Point) -> Point | None:
    """Add two points; None is infinity."""
    try:
        return total((point, other))
    except DegenerateSumError:
        return None


def _less(point: Point, number: int) -> Point | None:
    """point − number·G, or None for infinity."""
    if number % ORDER == 0:
        return point
    try:
        return plus_base(point, -number)
    except DegenerateSumError:
        return None
