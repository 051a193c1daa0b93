"""Laws of pure privacy: the discrete Laplace and the difference of two Pólya draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import ClassVar

from flint import arb

from protocol.enclosures import (
    Ball,
    ball,
    certainly_at_most,
    nearest_double,
    precision,
    scaled_floor,
)
from protocol.errors import InputError
from protocol.ladder import Ladder, climb
from protocol.law import BitSource, Integers
from protocol.laws_base import (
    WIDEST_TABLE,
    LadderLaw,
    check_listable,
    far_out,
    far_out_argument,
    positive_rational,
)
from protocol.laws_counts import (
    MOST_PARTS,
    Polya,
    check_shape_and_rate,
    log_one_sided,
    one_minus_exp,
)
from protocol.rejection import LogConcaveSampler

_MOST_LADDER_PARTS = 2000  # each part costs two bits in all numbers
_LONG_LADDER = 2000  # scale from which one closed form is cheaper than all masses


@dataclass(frozen=True, slots=True)
class DiscreteLaplace(LadderLaw):
    """Lap_ℤ(t): P(x) = (1−q)/(1+q) · q^|x|, q = e^{−1/t}.

    Added to a query of sensitivity g with t = g/ε it gives (ε, 0)-differential privacy
    (paper, Fact `lem:disLap_priv_util`).
    """

    scale: Fraction
    symmetric: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive_rational(
            "scale", self.scale, at_least=Fraction(1, 1000), at_most=10**9
        )

    def mass(self, x: int) -> Ball:
        """Enclose P(X = x)."""
        rate = 1 / ball(self.scale)
        return one_minus_exp(rate) / (1 + (-rate).exp()) * (-rate * x).exp()

    def _upper_tail(self, magnitude: int) -> float:
        """P(|X| > k) = 2 q^{k+1}/(1+q)."""
        return nearest_double(lambda: self._tail(magnitude))

    def _tail(self, magnitude: int) -> Ball:
        rate = 1 / ball(self.scale)
        return 2 * (-rate * (magnitude + 1)).exp() / (1 + (-rate).exp())

    def _smallest_magnitude(self, level: Fraction) -> int:
        """Smallest k with 2 q^{k+1}/(1+q) ≤ level, by enclosures around the guess."""
        scale = float(self.scale)
        ratio = math.log(2) - math.log1p(math.exp(-1 / scale))
        log_level = math.log(level.numerator) - math.log(level.denominator)
        guess = max(0, math.ceil(scale * (ratio - log_level) - 1))
        while not certainly_at_most(partial(self._tail, guess), level):
            guess += 1
        while guess and certainly_at_most(partial(self._tail, guess - 1), level):
            guess -= 1
        return guess

    def log_mgf(self, argument: float) -> float:
        """ln[(1−q)² / ((1−q e^λ)(1−q e^{−λ}))], +inf from |λ| ≥ 1/t."""
        rate = 1 / float(self.scale)
        return log_one_sided(rate, argument) + log_one_sided(rate, -argument)

    def variance(self) -> float:
        """2q/(1−q)²."""
        rate = 1 / float(self.scale)
        return 2 * math.exp(-rate) / math.expm1(-rate) ** 2

    @property
    def wide(self) -> bool:
        """True for a large scale."""
        return self.scale > WIDEST_TABLE

    def sample_wide(self, count: int, bits: BitSource) -> Integers:
        """Draw by rejection around zero."""
        return _laplace_sampler(self).sample(count, bits)

    def ladder(self, tail_bits: int, guard_bits: int) -> Ladder:
        """P(|X| = k+1) = q · P(|X| = k) from k = 1 on."""
        check_listable("scale", self.scale, self.scale)

        def attempt(shift: int) -> tuple[list[int], int] | None:
            centre = scaled_floor(lambda: self.mass(0), shift, guard_bits)
            mass = scaled_floor(lambda: 2 * self.mass(1), shift, guard_bits)
            ratio = scaled_floor(
                lambda: (-1 / ball(self.scale)).exp(), shift, guard_bits
            )
            if not centre or not mass or not ratio:
                return None
            masses = [centre]
            rest = (1 << shift) - centre
            enough = 1 << (shift - tail_bits)
            while rest > enough:
                masses.append(mass)
                rest -= mass
                mass = mass * ratio >> shift
            return masses, 0

        return climb(attempt, guard_bits, guard_bits + tail_bits + 48)


@lru_cache(maxsize=256)
def _laplace_sampler(law: DiscreteLaplace) -> LogConcaveSampler:
    def ratio(offset: int) -> Ball:
        return (-abs(offset) / ball(law.scale)).exp()

    return LogConcaveSampler(0, ratio, math.sqrt(law.variance()))


@dataclass(frozen=True, slots=True)
class NegativeBinomialDifference(LadderLaw):
    """Difference of two independent Pólya(shape, e^{−rate}) draws.

    The law of a cohort's noise when shares calibrated to h users come from R·h of them;
    shape 1 is Lap_ℤ(1/rate). Closed under sums: shapes add up.

    Notes
    -----
    A_k = P(X = k) and C_k, the coefficients of (1−qz)^{−R}(1−q/z)^{−R} and of
    (1−qz)^{−R}(1−q/z)^{−R−1}, obey, from comparing coefficients in z·dA/dz,

        A_{k−1} = [(k−R)·A_k + R(1−q²)·C_k] / (q(k−1+R)),   C_{k−1} = A_{k−1} + q·C_k,

    which is positive, hence stable, for k ≥ R. For k < R a term is negative and the
    lost bits are counted. The start is Gauss's function ₂F₁.
    """

    shape: Fraction
    rate: Fraction
    symmetric: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_shape_and_rate(self.shape, self.rate)

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
        if self.shape <= MOST_PARTS:
            return LadderLaw._smallest_magnitude(self, level)
        return self._chernoff(level)

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
        series = (-2 * rate).exp().hypgeom_2f1(shape + extra, shape + x, arb(x + 1))
        return front.exp() * series

    def _doubled_coefficient(self, x: int, extra: int) -> Ball:
        return 2 * self._coefficient(x, extra)

    def log_mgf(self, argument: float) -> float:
        """R times the log-MGF of Lap_ℤ(1/rate)."""
        rate = float(self.rate)
        both = log_one_sided(rate, argument) + log_one_sided(rate, -argument)
        return float(self.shape) * both

    def variance(self) -> float:
        """2R q/(1−q)²."""
        return 2 * Polya(self.shape, self.rate).variance()

    @property
    def wide(self) -> bool:
        """True if its two Pólya halves are."""
        return Polya(self.shape, self.rate).wide

    def sample_wide(self, count: int, bits: BitSource) -> Integers:
        """Draw the two halves and subtract."""
        half = Polya(self.shape, self.rate)
        return half.sample_wide(count, bits) - half.sample_wide(count, bits)

    def ladder(self, tail_bits: int, guard_bits: int) -> Ladder:
        """Run the recurrence of the class down from where the tail is small enough."""
        if self.shape == 1:
            return DiscreteLaplace(1 / self.rate).ladder(tail_bits, guard_bits)
        check_listable("rate", self.rate, 1 / self.rate)
        if self.shape > _MOST_LADDER_PARTS:
            raise InputError(
                "shape", self.shape, f"at most {_MOST_LADDER_PARTS} to list all masses"
            )
        top, bottom = self.shape.numerator, self.shape.denominator
        # Below k = R each step loses less than two bits (see _lost_bits).
        guard_bits += 2 * math.ceil(self.shape)
        last = far_out(self, tail_bits)

        def attempt(shift: int) -> tuple[list[int], int] | None:
            nonlocal last
            rate = self.rate
            start = [
                scaled_floor(
                    partial(self._doubled_coefficient, last, extra), shift, guard_bits
                )
                for extra in (0, 1)
            ]
            ratio, inverse, gap = (
                scaled_floor(formula, shift, guard_bits)
                for formula in (
                    lambda: (-ball(rate)).exp(),
                    lambda: ball(rate).exp(),
                    lambda: one_minus_exp(2 * ball(rate)),
                )
            )
            if not all((*start, ratio, inverse, gap)):
                return None
            mass, companion = start
            masses = [mass]
            lost = 0.0
            gap *= top
            factor = last * bottom - top
            below = (last - 1) * bottom + top
            for _ in range(last):
                positive = gap * companion >> shift
                if factor < 0:
                    lost += _lost_bits(-factor * mass, positive)
                mass = ((factor * mass + positive) * inverse >> shift) // below
                companion = mass + (ratio * companion >> shift)
                masses.append(mass)
                factor -= bottom
                below -= bottom
            masses[-1] //= 2
            masses.reverse()
            if (1 << shift) - sum(masses) > 1 << (shift - tail_bits):
                last += last // 8 + 1
                return attempt(shift)
            return masses, math.ceil(lost)

        return climb(attempt, guard_bits, guard_bits + tail_bits + 48)


def _lost_bits(negative: int, positive: int) -> float:
    """Bits of relative accuracy lost in positive − negative."""
    return math.log2((positive + negative) / (positive - negative))
