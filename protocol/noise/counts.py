"""Laws of counts, on 0, 1, 2, …: Pólya (negative binomial of any shape) and Poisson."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

from flint import arb

from wallflower.protocol.noise.balls import (
    Ball,
    Ladder,
    ball,
    climb,
    nearest_double,
    one_minus_exp,
    precision,
    scaled_floor,
)
from wallflower.protocol.noise.bits import BitSource, Integers
from wallflower.protocol.noise.law import (
    WIDEST_TABLE,
    LadderLaw,
    check_listable,
    positive_rational,
)
from wallflower.protocol.noise.rejection import LogConcaveSampler

MOST_PARTS = 64  # shapes above are far from zero, where the recurrence starts
_LARGEST_TABLED_MEAN = 1000
_CHUNK = 1024  # steps between two looks at how much mass is left


@dataclass(frozen=True, slots=True)
class Polya(LadderLaw):
    """Pólya(r, q), q = e^{−rate}: P(x) = Γ(x+r)/(x! Γ(r)) · q^x (1−q)^r.

    Closed under sums: shapes add up at the same rate. With shape 1/n and rate ε/g, n
    differences of two such draws sum to the discrete Laplace law of scale g/ε
    (paper, Fact `lem:polya`).

    Parameters
    ----------
    shape : r > 0.
    rate : a = ε/g > 0.
    """

    shape: Fraction
    rate: Fraction
    symmetric: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_shape_and_rate(self.shape, self.rate)

    def mass(self, x: int) -> Ball:
        """Enclose P(X = x)."""
        shape = ball(self.shape)
        rate = ball(self.rate)
        weight = (x + shape).lgamma() - shape.lgamma() - arb(x + 1).lgamma()
        return (weight - rate * x + shape * one_minus_exp(rate).log()).exp()

    def cdf(self, x: int) -> float:
        """P(X ≤ x), the regularised incomplete beta function I_{1−q}(r, x+1)."""
        if x < 0:
            return 0.0
        return nearest_double(
            lambda: one_minus_exp(ball(self.rate)).beta_lower(
                ball(self.shape), arb(x + 1), regularized=True
            )
        )

    def log_mgf(self, argument: float) -> float:
        """r · ln[(1−q)/(1−q e^λ)] for λ < rate, else +inf."""
        return float(self.shape) * log_one_sided(float(self.rate), argument)

    def variance(self) -> float:
        """R q/(1−q)²."""
        rate = float(self.rate)
        return float(self.shape) * math.exp(-rate) / math.expm1(-rate) ** 2

    @property
    def wide(self) -> bool:
        """True for many parts or a small rate; shares below one part never are."""
        return self.shape >= 1 and (
            self.shape > MOST_PARTS or self.rate * WIDEST_TABLE < 1
        )

    def sample_wide(self, count: int, bits: BitSource) -> Integers:
        """Draw by rejection: log-concave for shapes from one on."""
        return _polya_sampler(self).sample(count, bits)

    def ladder(self, tail_bits: int, guard_bits: int) -> Ladder:
        """P(x+1) = P(x) · q · (x+r)/(x+1), from P(0) = (1−q)^r."""
        check_listable("rate", self.rate, 1 / self.rate)
        # The first mass is (1−q)^r: every part costs bits in all numbers.
        check_listable("shape", self.shape, 500 * self.shape)
        top, bottom = self.shape.numerator, self.shape.denominator

        def attempt(shift: int) -> tuple[list[int], int] | None:
            mass = scaled_floor(
                lambda: one_minus_exp(ball(self.rate)) ** ball(self.shape),
                shift,
                guard_bits,
            )
            ratio = scaled_floor(lambda: (-ball(self.rate)).exp(), shift, guard_bits)
            if not mass or not ratio:
                return None
            masses = [mass]
            rest = (1 << shift) - mass
            enough = 1 << (shift - tail_bits)
            above, below = top, bottom
            while rest > enough:
                for _ in range(_CHUNK):
                    mass = (mass * ratio * above >> shift) // below
                    masses.append(mass)
                    above += bottom
                    below += bottom
                rest -= sum(masses[-_CHUNK:])
            return _trimmed(masses, shift, tail_bits), 0

        return climb(attempt, guard_bits, guard_bits + tail_bits + 48)


@dataclass(frozen=True, slots=True)
class Poisson(LadderLaw):
    """Poisson(mean): P(x) = e^{−mean} mean^x / x!."""

    mean: Fraction
    symmetric: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive_rational("mean", self.mean, at_least=Fraction(1, 10**12))

    def mass(self, x: int) -> Ball:
        """Enclose P(X = x)."""
        mean = ball(self.mean)
        return (x * mean.log() - mean - arb(x + 1).lgamma()).exp()

    def cdf(self, x: int) -> float:
        """P(X ≤ x), the regularised upper gamma function Q(x+1, mean)."""
        if x < 0:
            return 0.0
        return nearest_double(
            lambda: ball(self.mean).gamma_upper(arb(x + 1), regularized=1)
        )

    def log_mgf(self, argument: float) -> float:
        """Mean · (e^λ − 1)."""
        return float(self.mean) * math.expm1(argument)

    def variance(self) -> float:
        """The mean."""
        return float(self.mean)

    @property
    def wide(self) -> bool:
        """True for a mean whose zero is too rare to start from."""
        return self.mean > _LARGEST_TABLED_MEAN

    def sample_wide(self, count: int, bits: BitSource) -> Integers:
        """Draw by rejection: log-concave."""
        return _poisson_sampler(self).sample(count, bits)

    def ladder(self, tail_bits: int, guard_bits: int) -> Ladder:
        """P(x+1) = P(x) · mean/(x+1), from P(0) = e^{−mean}."""
        # The first mass is e^{−mean}: every unit of the mean costs bits in all numbers.
        check_listable("mean", self.mean, 50 * self.mean)
        top, bottom = self.mean.numerator, self.mean.denominator

        def attempt(shift: int) -> tuple[list[int], int] | None:
            mass = scaled_floor(lambda: (-ball(self.mean)).exp(), shift, guard_bits)
            if not mass:
                return None
            masses = [mass]
            rest = (1 << shift) - mass
            enough = 1 << (shift - tail_bits)
            below = bottom
            while rest > enough:
                mass = mass * top // below
                masses.append(mass)
                rest -= mass
                below += bottom
            return masses, 0

        return climb(attempt, guard_bits, guard_bits + tail_bits + 48)


@lru_cache(maxsize=256)
def _polya_sampler(law: Polya) -> LogConcaveSampler:
    mode = _polya_mode(law)

    def ratio(offset: int) -> Ball:
        if mode + offset < 0:
            return arb(0)
        shape = ball(law.shape)
        weight = (mode + offset + shape).lgamma() - (mode + shape).lgamma()
        weight += arb(mode + 1).lgamma() - arb(mode + offset + 1).lgamma()
        return (weight - ball(law.rate) * offset).exp()

    return LogConcaveSampler(mode, ratio, math.sqrt(law.variance()))


def _polya_mode(law: Polya) -> int:
    """⌊(r−1)q/(1−q)⌋: P(x) ≥ P(x−1) iff x ≤ (r−1)q/(1−q)."""
    bits = 256
    while True:
        with precision(bits):
            place = ball(law.shape - 1) / ball(law.rate).expm1()
            whole = place.floor().unique_fmpz()
        if whole is not None:
            return int(whole)
        bits *= 2


@lru_cache(maxsize=256)
def _poisson_sampler(law: Poisson) -> LogConcaveSampler:
    mode = math.floor(law.mean)

    def ratio(offset: int) -> Ball:
        if mode + offset < 0:
            return arb(0)
        weight = arb(mode + 1).lgamma() - arb(mode + offset + 1).lgamma()
        return (weight + offset * ball(law.mean).log()).exp()

    return LogConcaveSampler(mode, ratio, math.sqrt(law.variance()))


def _trimmed(masses: list[int], shift: int, tail_bits: int) -> list[int]:
    """Drop what a last chunk holds beyond the place where the tail is small enough."""
    end = max(1, len(masses) - _CHUNK)
    rest = (1 << shift) - sum(masses[:end])
    enough = 1 << (shift - tail_bits)
    while rest > enough:
        rest -= masses[end]
        end += 1
    return masses[:end]


def check_shape_and_rate(shape: object, rate: object) -> None:
    """Refuse shapes and rates that are not exact or not sensible."""
    positive_rational("shape", shape, at_least=Fraction(1, 10**15), at_most=10**15)
    positive_rational("rate", rate, at_least=Fraction(1, 10**9), at_most=1000)


def log_one_sided(rate: float, argument: float) -> float:
    """ln[(1−q)/(1−q e^λ)], the log-MGF of the geometric law; +inf from λ ≥ rate."""
    if argument >= rate:
        return math.inf
    return math.log(math.expm1(-rate) / math.expm1(argument - rate))


def log_two_sided(rate: float, argument: float) -> float:
    """ln[(1−q)² / ((1−q e^λ)(1−q e^{−λ}))]: the log-MGF of Lap_ℤ(1/rate).

    As −ln(1 − (sinh λ/2 / sinh rate/2)²), in which nothing cancels near zero: a sum of
    10¹⁰ such noises is rounded by no more than its own last digits.
    """
    if abs(argument) >= rate:
        return math.inf
    part = (math.sinh(argument / 2) / math.sinh(rate / 2)) ** 2
    return -math.log1p(-part) if part < 1 else math.inf  # a last digit below the rate
