"""The law of pure privacy: discrete Laplace, the two-sided geometric law."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial

from wallflower.protocol.noise.balls import (
    Ball,
    Ladder,
    ball,
    certainly_at_most,
    climb,
    one_minus_exp,
    scaled_floor,
)
from wallflower.protocol.noise.bits import BitSource, Integers
from wallflower.protocol.noise.law import (
    WIDEST_TABLE,
    NoiseLaw,
    check_listable,
    positive_rational,
)
from wallflower.protocol.noise.rejection import LogConcaveSampler


@dataclass(frozen=True, slots=True)
class DiscreteLaplace(NoiseLaw):
    """Lap_ℤ(t): P(x) = (1−q)/(1+q) · q^|x|, q = e^{−1/t}.

    Added to a query of sensitivity g with t = g/ε it gives (ε, 0)-differential privacy
    (paper, Fact `lem:disLap_priv_util`).
    """

    scale: Fraction

    def __post_init__(self) -> None:
        positive_rational(
            "scale", self.scale, at_least=Fraction(1, 1000), at_most=10**9
        )

    def mass(self, x: int) -> Ball:
        """Enclose P(X = x)."""
        rate = 1 / ball(self.scale)
        return one_minus_exp(rate) / (1 + (-rate).exp()) * (-rate * x).exp()

    def tail(self, magnitude: int) -> Ball:
        """Enclose P(|X| > k) = 2 q^{k+1}/(1+q)."""
        rate = 1 / ball(self.scale)
        return 2 * (-rate * (magnitude + 1)).exp() / (1 + (-rate).exp())

    def _smallest_magnitude(self, level: Fraction) -> int:
        """Smallest k with 2 q^{k+1}/(1+q) ≤ level, by enclosures around the guess."""
        scale = float(self.scale)
        ratio = math.log(2) - math.log1p(math.exp(-1 / scale))
        log_level = math.log(level.numerator) - math.log(level.denominator)
        guess = max(0, math.ceil(scale * (ratio - log_level) - 1))
        while not certainly_at_most(partial(self.tail, guess), level):
            guess += 1
        while guess and certainly_at_most(partial(self.tail, guess - 1), level):
            guess -= 1
        return guess

    def log_mgf(self, argument: float) -> float:
        """ln[(1−q)² / ((1−q e^λ)(1−q e^{−λ}))], +inf from |λ| ≥ 1/t."""
        return log_two_sided(1 / float(self.scale), argument)

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


def log_two_sided(rate: float, argument: float) -> float:
    """ln[(1−q)² / ((1−q e^λ)(1−q e^{−λ}))]: the log-MGF of Lap_ℤ(1/rate).

    As −ln(1 − (sinh λ/2 / sinh rate/2)²), in which nothing cancels near zero: a sum of
    10¹⁰ such noises is rounded by no more than its own last digits.
    """
    if abs(argument) >= rate:
        return math.inf
    part = (math.sinh(argument / 2) / math.sinh(rate / 2)) ** 2
    return -math.log1p(-part) if part < 1 else math.inf  # a last digit below the rate
