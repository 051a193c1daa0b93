"""The recurrence behind the difference of two Pólya draws.

A_k = P(X = k) and C_k are (1−q)^{2R} times the coefficients of (1−qz)^{−R}(1−q/z)^{−R}
and of (1−qz)^{−R}(1−q/z)^{−R−1}. Comparing coefficients in z·dA/dz gives

    A_{k−1} = [(k−R)·A_k + R(1−q²)·C_k] / (q(k−1+R)),   C_{k−1} = A_{k−1} + q·C_k,

which is positive, hence stable downwards, for k ≥ R. For k < R a term is negative and
the lost bits are counted. C falls with k, so that its first value is its smallest. The
loop holds D_k = 2R(1−q²)·C_k times the denominator of R instead of C_k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from wallflower.protocol.noise.balls import Ball, ball, scaled_floor


def one_minus_exp(rate: Ball) -> Ball:
    """Enclose 1 − e^{−rate} without cancellation."""
    return -(-rate).expm1()


@dataclass(slots=True)
class Descent:
    """A place k of the recurrence with A_k and D_k, both scaled and rounded down."""

    place: int
    mass: int
    companion: int
    lost_bits: float = 0.0


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Constants of the recurrence, scaled by 2^fine, each exact to the guard."""

    shape: Fraction
    fine: int
    inverse: int
    ratio: int
    gap: int

    @classmethod
    def of(cls, shape: Fraction, rate: Fraction, guard_bits: int) -> Recurrence:
        """Enclose 1/q, q and the numerator of R times 1−q²."""
        # The smallest of them, q or 1−q², keeps all guard bits.
        fine = guard_bits + 48 + math.ceil(3 * rate)
        return cls(
            shape,
            fine,
            scaled_floor(lambda: ball(rate).exp(), fine, guard_bits),
            scaled_floor(lambda: (-ball(rate)).exp(), fine, guard_bits),
            shape.numerator
            * scaled_floor(lambda: one_minus_exp(2 * ball(rate)), fine, guard_bits),
        )

    def descend(self, state: Descent, steps: int) -> list[int]:
        """Give A_{k−1}, A_{k−2}, …, so many of them, and move the state there.

        Relative errors grow by at most five roundings a step, and below k = R by the
        lost bits; from there on masses may also lie above the true ones.
        """
        top, bottom = self.shape.numerator, self.shape.denominator
        fine, inverse, ratio, gap = self.fine, self.inverse, self.ratio, self.gap
        mass, companion = state.mass, state.companion
        factor = state.place * bottom - top
        below = factor + 2 * top - bottom
        masses: list[int] = []
        for _ in range(steps):
            if factor < 0:
                state.lost_bits += _lost_bits(-factor * mass, companion)
            mass = ((factor * mass + companion) * inverse >> fine) // below
            companion = (gap * mass + ratio * companion) >> fine
            masses.append(mass)
            factor -= bottom
            below -= bottom
        state.place -= steps
        state.mass, state.companion = mass, companion
        return masses


def _lost_bits(negative: int, positive: int) -> float:
    """Bits of relative accuracy lost in positive − negative."""
    return math.log2((positive + negative) / (positive - negative))
