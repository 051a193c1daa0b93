"""Proofs that a sealed integer lies in its range, many of them checked at once.

Statement: for C₁ = r·G, C₂ = r·P + y·G, the sender knows r and y with low ≤ y ≤ high.
Write y − low = Σ w_j·b_j with bits b_j and the weights 1, 2, 4, … whose last one is cut
so that they add up to high − low: every number of the range can be written so, and
nothing else.

The proof is the bit argument of Groth and Kohlweiss (2015) and Bootle et al. (2015,
fig. 4), for all bits together, with generators H, H_j whose logarithms nobody knows:

    B = β·H + Σ b_j·H_j             A = α·H + Σ a_j·H_j
    C = γ·H + Σ a_j(1 − 2b_j)·H_j   D = δ·H − Σ a_j²·H_j
    R₁ = ρ·G                        R₂ = ρ·P + (Σ w_j a_j)·G
    e = challenge over context, statement and all six points
    f_j = e·b_j + a_j   z_A = e·β + α   z_C = e·γ + δ   z_r = e·r + ρ

    e·B + A  = z_A·H + Σ f_j·H_j                          f_j opens to e·b_j + a_j
    e·C + D  = z_C·H + Σ f_j(e − f_j)·H_j                 b_j(1 − b_j) = 0
    e·C₁ + R₁ = z_r·G                                     the same r …
    e·(C₂ − low·G) + R₂ = z_r·P + (Σ w_j f_j)·G           … and y − low = Σ w_j b_j

*Sound.* From three accepted transcripts with one set of points and different e follow
openings of B and C; f_j(e − f_j) has the coefficient b_j(1 − b_j) at e², the left side
of the second line none, so each b_j is a bit or a relation among the generators is
known. The last two lines give r = log C₁ and y: a ciphertext of another r, or of a y
out of range, has no proof. *Zero-knowledge.* f_j, z and e can be drawn first and the
points A, D, R₁, R₂ computed; B and C are Pedersen commitments, which hide perfectly.

*Many at once.* The four lines of every proof are weighted with fresh random 128-bit
numbers and added up: one wrong line survives with probability 2⁻¹²⁸. G, P, H and H_j
are common to all proofs, so each further proof costs eight multiplications, whatever
the number of bits. Only when the sum does not vanish are halves looked at.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from wallflower.protocol.errors import InputError, MalformedMessageError
from wallflower.protocol.secure_sum.sealed.cipher import Ciphertext, Opening
from wallflower.protocol.secure_sum.sealed.group import (
    ORDER,
    POINT_BYTES,
    SCALAR_BYTES,
    Point,
    base,
    challenge_of,
    hashed_point,
    multiply_each,
    random_scalar,
    read_scalar,
    scalar_bytes,
    times,
    total,
    vanishes,
)

MOST_BITS = 48
_TAG = "wallflower/v1/range"
_POINTS = 6
_WEIGHT_BITS = 128


@dataclass(frozen=True, slots=True)
class Range:
    """low … high, both allowed, at least two numbers."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 0 < self.high - self.low < 1 << MOST_BITS:
            raise InputError(
                "range", f"{self.low} to {self.high}", f"2 to 2^{MOST_BITS} numbers"
            )

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high

    @property
    def weights(self) -> tuple[int, ...]:
        """1, 2, 4, …, with a last one that makes them add up to high − low."""
        width = self.high - self.low
        count = width.bit_length()
        powers = [1 << j for j in range(count - 1)]
        return (*powers, width - sum(powers))

    @property
    def proof_bytes(self) -> int:
        """Length of a proof."""
        bits = (self.high - self.low).bit_length()
        return _POINTS * POINT_BYTES + (bits + 3) * SCALAR_BYTES

    def bits(self, value: int) -> list[int]:
        """Write value − low with the weights."""
        if value not in self:
            raise InputError("value", "out of range (not shown)", "in its range")
        weights, rest = self.weights, value - self.low
        last = int(rest > sum(weights[:-1]))
        rest -= last * weights[-1]
        return [rest >> j & 1 for j in range(len(weights) - 1)] + [last]


@dataclass(frozen=True, slots=True)
class Claim:
    """One contribution to be checked: statement, context, and its proof."""

    sealed: Ciphertext
    allowed: Range
    context: bytes
    proof: bytes


def prove(
    public: Point, sealed: Ciphertext, opening: Opening, allowed: Range, context: bytes
) -> bytes:
    """Prove that a ciphertext holds a number of its range, bound to `context`."""
    weights, bits = allowed.weights, allowed.bits(opening.value)
    blind, nonces = _generators(len(bits))
    beta, alpha, gamma, delta, rho = (random_scalar() for _ in range(5))
    a = [random_scalar() for _ in bits]
    hidden = [times(point, nonce) for point, nonce in zip(nonces, a, strict=True)]
    spread = sum(w * nonce for w, nonce in zip(weights, a, strict=True)) % ORDER
    points = (
        total((times(blind, beta), *_choose_points(bits))),
        total((times(blind, alpha), *hidden)),
        total(
            (
                times(blind, gamma),
                *(
                    _negate_for_one(one, bit)
                    for one, bit in zip(hidden, bits, strict=True)
                ),
            )
        ),
        total(
            (
                times(blind, delta),
                *(times(one, -nonce) for one, nonce in zip(hidden, a, strict=True)),
            )
        ),
        base(rho),
        total((times(public, rho), base(spread))),
    )
    body = b"".join(map(bytes, points))
    e = _challenge(public, sealed, allowed, context, body)
    responses = [e * bit + nonce for bit, nonce in zip(bits, a, strict=True)]
    responses += (
        e * beta + alpha,
        e * gamma + delta,
        e * opening.randomness.secret + rho,
    )
    return body + b"".join(map(scalar_bytes, responses))


def wrong_claims(public: Point, claims: Sequence[Claim]) -> list[int]:
    """Return the places of claims whose proofs fail; all are checked together."""
    equations: list[_Equation | None] = []
    for claim in claims:
        try:
            equations.append(_equation(public, claim))
        except MalformedMessageError:
            equations.append(None)
    wrong = [place for place, one in enumerate(equations) if one is None]
    good = [place for place, one in enumerate(equations) if one is not None]
    return sorted(wrong + _search(public, equations, good))


@dataclass(frozen=True, slots=True)
class _Equation:
    """Four weighted lines of one proof: what must vanish when added up.

    `own` are the proof's own points multiplied out; the scalars belong to G, P, H, H_j.
    """

    own: tuple[Point, ...]
    generator: int
    public: int
    blind: int
    bits: tuple[int, ...]


def _search(
    public: Point, equations: Sequence[_Equation | None], places: list[int]
) -> list[int]:
    """Halve until every wrong one stands alone."""
    chosen = [one for place in places if (one := equations[place]) is not None]
    if not chosen or _holds(public, chosen):
        return []
    if len(places) == 1:
        return places
    half = len(places) // 2
    return _search(public, equations, places[:half]) + _search(
        public, equations, places[half:]
    )


def _holds(public: Point, equations: Sequence[_Equation]) -> bool:
    count = max(len(one.bits) for one in equations)
    blind, nonces = _generators(count)
    by_bit = [0] * count
    for one in equations:
        for j, scalar in enumerate(one.bits):
            by_bit[j] += scalar
    common = [(public, sum(one.public for one in equations))]
    common.append((blind, sum(one.blind for one in equations)))
    common += zip(nonces, by_bit, strict=True)
    points = multiply_each(common)
    generator = sum(one.generator for one in equations) % ORDER
    if generator:
        points.append(base(generator))
    for one in equations:
        points += one.own
    return vanishes(points)


def _equation(public: Point, claim: Claim) -> _Equation:
    allowed, proof, sealed = claim.allowed, claim.proof, claim.sealed
    if len(proof) != allowed.proof_bytes:
        raise MalformedMessageError("a range proof has the wrong length")
    body, rest = proof[: _POINTS * POINT_BYTES], proof[_POINTS * POINT_BYTES :]
    bits_, first, mixed, last, r1, r2 = (
        Point.parse(body[start : start + POINT_BYTES])
        for start in range(0, len(body), POINT_BYTES)
    )
    scalars = [
        read_scalar(rest[start : start + SCALAR_BYTES])
        for start in range(0, len(rest), SCALAR_BYTES)
    ]
    *f, z_a, z_c, z_r = scalars
    e = _challenge(public, sealed, allowed, claim.context, body)
    u1, u2, u3, u4 = (secrets.randbits(_WEIGHT_BITS) | 1 for _ in range(4))
    spread = sum(w * one for w, one in zip(allowed.weights, f, strict=True))
    own = multiply_each(
        (
            (bits_, u1 * e),
            (first, u1),
            (mixed, u2 * e),
            (last, u2),
            (sealed.one, u3 * e),
            (r1, u3),
            (sealed.two, u4 * e),
            (r2, u4),
        )
    )
    return _Equation(
        own=tuple(own),
        generator=-(u3 * z_r + u4 * (spread + e * allowed.low)) % ORDER,
        public=-u4 * z_r % ORDER,
        blind=-(u1 * z_a + u2 * z_c) % ORDER,
        bits=tuple(-(u1 + u2 * (e - one)) * one % ORDER for one in f),
    )


def _challenge(
    public: Point, sealed: Ciphertext, allowed: Range, context: bytes, body: bytes
) -> int:
    return challenge_of(
        _TAG,
        context,
        bytes(public),
        bytes(sealed.one),
        bytes(sealed.two),
        f"{allowed.low},{allowed.high}".encode(),
        body,
    )


@lru_cache(maxsize=MOST_BITS)
def _generators(bits: int) -> tuple[Point, tuple[Point, ...]]:
    return _blind(), tuple(_bit_generator(j) for j in range(bits))


@lru_cache(maxsize=1)
def _blind() -> Point:
    return hashed_point("range/blind")


@lru_cache(maxsize=MOST_BITS)
def _bit_generator(j: int) -> Point:
    return hashed_point(f"range/bit/{j}")


@lru_cache(maxsize=MOST_BITS)
def _choices(j: int) -> tuple[Point, Point]:
    """K_j and K_j + H_j for a fixed K_j: a bit of 0 costs an addition like one of 1."""
    offset = hashed_point(f"range/offset/{j}")
    return offset, offset + _bit_generator(j)


@lru_cache(maxsize=MOST_BITS)
def _offsets(bits: int) -> Point:
    return -total([_choices(j)[0] for j in range(bits)])


def _negate_for_one(point: Point, bit: int) -> Point:
    """(1 − 2b)·X; the negative is made either way."""
    return (point, -point)[bit]


def _choose_points(bits: Sequence[int]) -> list[Point]:
    """Points that add up to Σ b_j·H_j, as many for every b."""
    return [_choices(j)[bit] for j, bit in enumerate(bits)] + [_offsets(len(bits))]
