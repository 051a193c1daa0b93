"""The difference of two Pólya draws: shares of discrete Laplace noise, or many."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial

from flint import arb, ctx

from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.balls import (
    Ball,
    Ladder,
    accuracy_after,
    ball,
    climb,
    one_minus_exp,
    precision,
    scaled_floor,
)
from wallflower.protocol.noise.bits import BitSource, Integers
from wallflower.protocol.noise.laplace import DiscreteLaplace, log_two_sided
from wallflower.protocol.noise.law import (
    WIDEST_TABLE,
    NoiseLaw,
    check_listable,
    far_out,
    far_out_argument,
    positive_rational,
)
from wallflower.protocol.noise.rejection import polya_sampler, polya_variance

# --- Gauss's function ₂F₁(R + extra, R + x; x + 1; e^{−2·rate}), enclosed.
#
# Its series has positive terms. Where they fall fast enough, adding them up takes two
# milliseconds. Elsewhere flint subtracts two series in 1 − e^{−2·rate}. That loses
# about three bits for each unit of x·rate, and where it lost half of all bits flint
# begins anew with a routine that takes ten milliseconds or more. With bits to spare it
# takes less than one.


_LARGEST_SHAPE = 4  # more, and the terms grow before they fall
_SMALLEST_RATE = Fraction(1, 40)
_LOOK_EVERY = 32  # terms
_SPARE_BITS = 64


def gauss_series(shape: Fraction, rate: Fraction, x: int, extra: int) -> Ball:
    """Enclose ₂F₁ at the working precision; x ≥ 0, extra 0 or 1."""
    if shape <= _LARGEST_SHAPE and rate >= _SMALLEST_RATE:
        return _sum_terms(shape, rate, x, extra)
    # With a larger shape less is lost than is spared.
    spare = _SPARE_BITS + int(6 * x * rate) if shape <= _LARGEST_SHAPE else 0
    with precision(ctx.prec + spare):
        argument, parameter = (-2 * ball(rate)).exp(), ball(shape)
        return argument.hypgeom_2f1(parameter + extra, parameter + x, arb(x + 1))


def _sum_terms(shape: Fraction, rate: Fraction, x: int, extra: int) -> Ball:
    """Add terms up until the rest is below the last bit, and enclose the rest.

    A term is the one before times z·(a/e)·(b/c), where a, b, c, e grow by one a step
    (all held times the denominator of R). a/e and b/c tend to one from their side, so
    max(a/e, 1)·max(b/c, 1)·z bounds the ratio of all terms to come.
    """
    step = shape.denominator
    a, b = shape.numerator + extra * step, shape.numerator + x * step
    c, e = (x + 1) * step, step
    z, negligible = (-2 * ball(rate)).exp(), arb(2) ** -ctx.prec
    term = total = arb(1)
    while True:
        for _ in range(_LOOK_EVERY):
            term = term * (a * b) * z / (c * e)
            total += term
            a, b, c, e = a + step, b + step, c + step, e + step
        ratio = ball(Fraction(max(a, e), e) * Fraction(max(b, c), c)) * z
        if ratio < 1:
            rest = term * ratio / (1 - ratio)
            if rest < total * negligible:
                return total + rest.union(arb(0))


# --- The recurrence behind the difference of two Pólya draws.
#
# A_k = P(X = k) and C_k are (1−q)^{2R} times the coefficients of
# (1−qz)^{−R}(1−q/z)^{−R} and of (1−qz)^{−R}(1−q/z)^{−R−1}. Comparing coefficients in
# z·dA/dz gives
#
#     A_{k−1} = [(k−R)·A_k + R(1−q²)·C_k] / (q(k−1+R)),   C_{k−1} = A_{k−1} + q·C_k,
#
# which is positive, hence stable downwards, for k ≥ R. For k < R a term is negative and
# the lost bits are counted. C falls with k, so that its first value is its smallest.
# The loop holds D_k = 2R(1−q²)·C_k times the denominator of R instead of C_k.


@dataclass(slots=True)
class _Descent:
    """A place k of the recurrence with A_k and D_k, both scaled and rounded down."""

    place: int
    mass: int
    companion: int
    lost_bits: float = 0.0


@dataclass(frozen=True, slots=True)
class _Recurrence:
    """Constants of the recurrence, scaled by 2^fine, each exact to the guard."""

    shape: Fraction
    fine: int
    inverse: int
    ratio: int
    gap: int

    @classmethod
    def of(cls, shape: Fraction, rate: Fraction, guard_bits: int) -> _Recurrence:
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

    def descend(self, state: _Descent, steps: int) -> list[int]:
        """Return A_{k−1}, A_{k−2}, …, so many of them, and move the state there.

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


_MOST_PARTS = 64  # shapes above are far from zero, where the recurrence ends
_MOST_LADDER_PARTS = 2000  # each part costs two bits in all numbers
_SMALL_LEVEL = Fraction(1, 1000)  # a bound that lies well outside the centre
_CHUNK = 256  # steps between two looks at the tail


@dataclass(frozen=True, slots=True)
class NegativeBinomialDifference(NoiseLaw):
    """Difference of two independent Pólya(shape, e^{−rate}) draws.

    The law of a cohort's noise when shares calibrated to h users come from R·h of them;
    shape 1 is Lap_ℤ(1/rate). Closed under sums: shapes add up.

    Masses come from the recurrence above, started from
    Gauss's function ₂F₁.
    """

    shape: Fraction
    rate: Fraction

    def __post_init__(self) -> None:
        least = Fraction(1, 10**15)
        positive_rational("shape", self.shape, at_least=least, at_most=10**15)
        least = Fraction(1, 10**9)
        positive_rational("rate", self.rate, at_least=least, at_most=1000)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Of two exact numbers, and asked for with every draw.
        return hash((self.shape, self.rate))

    def mass(self, x: int) -> Ball:
        """P(X = x) = (1−q)^{2R} q^x (R)_x/x! · ₂F₁(R, R+x; x+1; q²)."""
        return self._coefficient(x, extra=0)

    def _smallest_magnitude(self, level: Fraction) -> int:
        """Exact up to 64 parts, above by Chernoff's bound: never too small."""
        if self.shape > _MOST_PARTS:
            return self._chernoff(level)
        found = None
        if level < _SMALL_LEVEL:
            found = _search_once(self, level)
        return NoiseLaw._smallest_magnitude(self, level) if found is None else found

    def _chernoff(self, level: Fraction) -> int:
        """Return k with 2·M(λ)·e^{−λ(k+1)} ≤ level, for a λ near the best one."""
        tail_bits = (level.denominator // level.numerator).bit_length()
        argument = Fraction(far_out_argument(self, tail_bits))
        with precision(256):
            rate, shift = ball(self.rate), ball(argument)
            parts = 2 * one_minus_exp(rate).log()
            parts -= one_minus_exp(rate - shift).log()
            parts -= one_minus_exp(rate + shift).log()
            needed = (ball(self.shape) * parts + (2 / ball(level)).log()) / shift
            return max(0, int(needed.upper().ceil().unique_fmpz()) - 1)

    def _coefficient(self, x: int, extra: int) -> Ball:
        shape, rate = ball(self.shape), ball(self.rate)
        front = (x + shape).lgamma() - shape.lgamma() - arb(x + 1).lgamma()
        front += 2 * shape * one_minus_exp(rate).log() - rate * x
        return front.exp() * gauss_series(self.shape, self.rate, x, extra)

    def _reach(self, tail_bits: int) -> int:
        """Guess k with P(|X| > k) ≤ 2^−tail_bits; the loop checks what is missing.

        |X| > k needs one of two Pólya draws above k. Below shape one their masses fall
        by q or more a step, so that is at most 2·P(G = k+1)/(1−q): far tighter for a
        small share than Chernoff's bound.
        """
        high = far_out(self, tail_bits)
        if self.shape >= 1:
            return high
        shape, rate = float(self.shape), float(self.rate)
        limit = -(tail_bits + 2) * math.log(2) - (shape - 1) * math.log(
            -math.expm1(-rate)
        )

        def far_enough(k: int) -> bool:
            weight = math.lgamma(k + 1 + shape) - math.lgamma(shape)
            return weight - math.lgamma(k + 2) - rate * (k + 1) <= limit

        return bisect.bisect_left(range(high), True, lo=1, key=far_enough)

    def _doubled_mass(self, x: int) -> Ball:
        return 2 * self.mass(x)

    def _doubled_companion(self, x: int) -> Ball:
        """R(1−q²)·C_x times 2 and the denominator of R, as the loop holds it."""
        gap = self.shape.numerator * one_minus_exp(2 * ball(self.rate))
        return 2 * gap * self._coefficient(x, extra=1)

    def log_mgf(self, argument: float) -> float:
        """R times the log-MGF of Lap_ℤ(1/rate)."""
        return float(self.shape) * log_two_sided(float(self.rate), argument)

    def variance(self) -> float:
        """2R q/(1−q)²."""
        return 2 * polya_variance(self.shape, self.rate)

    @cached_property
    def wide(self) -> bool:
        """True for many parts or a small rate; shares below one part never are."""
        return self.shape >= 1 and (
            self.shape > _MOST_PARTS or self.rate * WIDEST_TABLE < 1
        )

    def sample_wide(self, count: int, bits: BitSource) -> Integers:
        """Draw the two halves and subtract."""
        half = polya_sampler(self.shape, self.rate)
        return half.sample(count, bits) - half.sample(count, bits)

    def ladder(self, tail_bits: int, guard_bits: int) -> Ladder:
        """Run the recurrence down to zero from where the tail is small enough."""
        if self.shape == 1:
            return DiscreteLaplace(1 / self.rate).ladder(tail_bits, guard_bits)
        check_listable("rate", self.rate, 1 / self.rate)
        if self.shape > _MOST_LADDER_PARTS:
            raise InputError(
                "shape", self.shape, f"at most {_MOST_LADDER_PARTS} to list all masses"
            )
        # Below k = R each step loses less than two bits.
        guard_bits += 2 * math.ceil(self.shape)
        recurrence = _Recurrence.of(self.shape, self.rate, guard_bits)
        last = self._reach(tail_bits)

        def attempt(shift: int) -> tuple[list[int], int] | None:
            nonlocal last
            state = self._start(last, shift, guard_bits)
            if state is None:
                return None
            masses = [state.mass, *recurrence.descend(state, last)]
            masses[-1] //= 2
            masses.reverse()
            if (1 << shift) - sum(masses) > 1 << (shift - tail_bits):
                last += last // 8 + 1
                return attempt(shift)
            lost = math.ceil(state.lost_bits) + 1
            return _lower_masses(
                masses, math.ceil(self.shape), guard_bits, lost
            ), lost + 2

        return climb(attempt, guard_bits, guard_bits + tail_bits + 48)

    def _start(self, place: int, shift: int, guard_bits: int) -> _Descent | None:
        """Enclose the recurrence at a place; None if the shift is too small."""
        mass, companion = (
            scaled_floor(partial(formula, place), shift, guard_bits)
            for formula in (self._doubled_mass, self._doubled_companion)
        )
        return _Descent(place, mass, companion) if mass and companion else None

    def _search_tail(self, level: Fraction) -> int | None:
        """Smallest k with P(|X| > k) ≤ level from the masses beyond it alone.

        What lies beyond the first mass is bounded by a geometric series: its ratio is
        at most q for shapes up to one (A is then a moment sequence on [0, q]), and at
        most that of the first two masses above (A is log-concave).

        None if that does not settle it, or k comes close to R.
        """
        guard_bits = 128
        tail_bits = (level.denominator // level.numerator).bit_length() + 24
        shift = guard_bits + tail_bits + 96
        first = self._reach(tail_bits)
        # Two steps hardly leave the centre, and so short a ladder serves other levels.
        if first - 2 * _CHUNK < self.shape:
            return None
        state = self._start(first, shift, guard_bits)
        if state is None:
            return None
        recurrence = _Recurrence.of(self.shape, self.rate, guard_bits)
        accuracy = accuracy_after(state.place, guard_bits)
        outermost = state.mass
        masses = recurrence.descend(state, _CHUNK)
        if self.shape <= 1:
            ratio = Fraction(recurrence.ratio + 1, 1 << recurrence.fine)
        else:
            ratio = Fraction(outermost, masses[0]) * (1 + Fraction(1, 1 << accuracy))
        beyond = math.ceil(2 * outermost * ratio / (1 - ratio))
        limit = (level.numerator << shift) // level.denominator
        tail, place = outermost, state.place + _CHUNK
        while True:
            for mass in masses:
                place -= 1
                if tail + mass > limit:
                    above = tail + (tail >> accuracy) + 1 + beyond
                    settled = above <= limit and tail + mass > limit + 1
                    return place if settled else None
                tail += mass
            if state.place - _CHUNK < self.shape:
                return None
            masses = recurrence.descend(state, _CHUNK)


def _lower_masses(
    masses: list[int], count: int, guard_bits: int, lost: int
) -> list[int]:
    """Lower the masses below R, which subtractions may have left too high."""
    accuracy = accuracy_after(len(masses), guard_bits) - lost
    centre = [mass - (mass >> accuracy) - 1 for mass in masses[:count]]
    return centre + masses[count:]


@lru_cache(maxsize=1024)
def _search_once(law: NegativeBinomialDifference, level: Fraction) -> int | None:
    return law._search_tail(level)
