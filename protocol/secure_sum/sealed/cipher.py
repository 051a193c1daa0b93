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
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from wallflower.protocol.errors import InputError
from wallflower.protocol.identity.canonical import digest
from wallflower.protocol.secure_sum.recovery import zero_coefficients
from wallflower.protocol.secure_sum.sealed.group import (
    ORDER,
    DegenerateSumError,
    KeyPair,
    Point,
    base,
    times,
    total,
)
from wallflower.protocol.secure_sum.sealed.proofs import (
    prove_knowledge,
    shows_knowledge,
)

LARGEST_VALUE = 2**62
_SHIFT = 2**64
_UNSHIFT = base(-_SHIFT)


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


def prove_sender(opening: Opening, said: bytes) -> bytes:
    """Prove knowledge of r, bound to the statement."""
    return prove_knowledge(opening.randomness, said)


def shows_sender(one: Point, proof: bytes, said: bytes) -> bool:
    """Check what `prove_sender` made."""
    return shows_knowledge(one, proof, said)


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


def uncovered(two: Point, mask: Point) -> Point | None:
    """(Σ y)·G = ΣC₂ − s·ΣC₁, or None for infinity: a sum of 0."""
    try:
        return two - mask
    except DegenerateSumError:
        return None
