"""The difference of two Pólya draws: shares of discrete Laplace noise, or many."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import ClassVar

from flint import arb

from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.balls import Ball, ball, precision, scaled_floor
from wallflower.protocol.noise.counts import (
    MOST_PARTS,
    Polya,
    check_shape_and_rate,
    log_two_sided,
)
from wallflower.protocol.noise.difference_recurrence import (
    Descent,
    Recurrence,
    one_minus_exp,
)
from wallflower.protocol.noise.gauss_series import gauss_series
from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.noise.law import BitSource, Integers
from wallflower.protocol.noise.masses import Ladder, accuracy_after, climb
from wallflower.protocol.noise.tabulated import (
    LadderLaw,
    check_listable,
    far_out,
    far_out_argument,
)

_MOST_LADDER_PARTS = 2000  # each part costs two bits in all numbers
_SMALL_LEVEL = Fraction(1, 1000)  # a bound that lies well outside the centre
_CHUNK = 256  # steps between two looks at the tail
_LONG_LADDER = 2000  # scale from which one closed form is cheaper than all masses


@dataclass(frozen=True, slots=True)
class NegativeBinomialDifference(LadderLaw):
    """Difference of two independent Pólya(shape, e^{−rate}) draws.

    The law of a cohort's noise when shares calibrated to h users come from R·h of them;
    shape 1 is Lap_ℤ(1/rate). Closed under sums: shapes add up.

    Masses come from the recurrence of `protocol.difference_recurrence`, started from
    Gauss's function ₂F₁.
    """

    shape: Fraction
    rate: Fraction
    symmetric: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_shape_and_rate(self.shape, self.rate)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Of two exact numbers, and asked for with every draw.
        return hash((self.shape, self.rate))

    def mass(self, x: int) -> Ball:
        """P(X = x) = (1−q)^{2R} q^x (R)_x/x! · ₂F₁(R, R+x; x+1; q²)."""
        return self._coefficient(x, extra=0)

    def pmf(self, x: int) -> float:
        """P(X = x); ₂F₁ takes milliseconds, so a short ladder answers instead."""
        if self.rate * _LONG_LADDER > 1 and self.shape <= MOST_PARTS:
            return float(self.pmf_range(x, x)[0])
        return LadderLaw.pmf(self, x)

    def _smallest_magnitude(self, level: Fraction) -> int:
        """Exact up to MOST_PARTS parts, above by Chernoff's bound: never too small."""
        if self.shape > MOST_PARTS:
            return self._chernoff(level)
        found = None
        if level < _SMALL_LEVEL:
            found = _searched(self, level)
        return LadderLaw._smallest_magnitude(self, level) if found is None else found

    def _chernoff(self, level: Fraction) -> int:
        """Give k with 2·M(λ)·e^{−λ(k+1)} ≤ level, for a λ near the best one."""
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
        return 2 * self._coefficient(x, extra=0)

    def _doubled_companion(self, x: int) -> Ball:
        """R(1−q²)·C_x times 2 and the denominator of R, as the loop holds it."""
        gap = self.shape.numerator * one_minus_exp(2 * ball(self.rate))
        return 2 * gap * self._coefficient(x, extra=1)

    def log_mgf(self, argument: float) -> float:
        """R times the log-MGF of Lap_ℤ(1/rate)."""
        return float(self.shape) * log_two_sided(float(self.rate), argument)

    def variance(self) -> float:
        """2R q/(1−q)²."""
        return 2 * Polya(self.shape, self.rate).variance()

    @cached_property
    def wide(self) -> bool:
        """True if its two Pólya halves are."""
        return Polya(self.shape, self.rate).wide

    def sample_wide(self, count: int, bits: BitSource) -> Integers:
        """Draw the two halves and subtract."""
        half = Polya(self.shape, self.rate)
        return half.sample_wide(count, bits) - half.sample_wide(count, bits)

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
        recurrence = Recurrence.of(self.shape, self.rate, guard_bits)
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
            return _lowered(masses, math.ceil(self.shape), guard_bits, lost), lost + 2

        return climb(attempt, guard_bits, guard_bits + tail_bits + 48)

    def _start(self, place: int, shift: int, guard_bits: int) -> Descent | None:
        """Enclose the recurrence at a place; None if the shift is too small."""
        mass, companion = (
            scaled_floor(partial(formula, place), shift, guard_bits)
            for formula in (self._doubled_mass, self._doubled_companion)
        )
        return Descent(place, mass, companion) if mass and companion else None

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
        recurrence = Recurrence.of(self.shape, self.rate, guard_bits)
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


def _lowered(masses: list[int], count: int, guard_bits: int, lost: int) -> list[int]:
    """Lower the masses below R, which subtractions may have left too high."""
    accuracy = accuracy_after(len(masses), guard_bits) - lost
    centre = [mass - (mass >> accuracy) - 1 for mass in masses[:count]]
    return centre + masses[count:]


@lru_cache(maxsize=1024)
def _searched(law: NegativeBinomialDifference, level: Fraction) -> int | None:
    return law._search_tail(level)
