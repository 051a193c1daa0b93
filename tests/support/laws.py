"""Laws that only tests need, and what is asked of a law in tests alone.

Noise is a difference of counts, Pólya or Poisson, and is drawn as such only where it is
wide. The laws of the counts themselves are the reference here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from flint import arb
from numpy.typing import NDArray

from wallflower.protocol.noise.balls import (
    Ball,
    Ladder,
    ball,
    climb,
    nearest_double,
    one_minus_exp,
    scaled_floor,
)
from wallflower.protocol.noise.bits import BitSource, Integers
from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.noise.law import NoiseLaw, check_listable, positive_rational
from wallflower.protocol.noise.rejection import (
    poisson_sampler,
    polya_sampler,
    polya_variance,
)
from wallflower.protocol.noise.table import CertifiedTable

_MOST_PARTS = 64
_WIDEST = 20_000
_LARGEST_TABLED_MEAN = 1000
_CHUNK = 1024  # steps between two looks at how much mass is left


class _KnowsMass(Protocol):
    def mass(self, x: int) -> Ball: ...


class CountLaw(NoiseLaw):
    """A law on 0, 1, 2, …"""

    def pmf_range(self, low: int, high: int) -> NDArray[np.float64]:
        masses = self.list_beyond(max(abs(low), abs(high)))[0]
        places = np.arange(low, high + 1)
        inside = (places >= 0) & (places < len(masses))
        result = np.zeros(high - low + 1)
        result[inside] = masses[places[inside]]
        return result

    def cdf(self, x: int) -> float:
        raise NotImplementedError

    def sample(self, count: int, bits: BitSource) -> Integers:
        if self.wide:
            return self.sample_wide(count, bits)
        return CertifiedTable(self, 64).sample(count, bits)


@dataclass(frozen=True, slots=True)
class Polya(CountLaw):
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

    def __post_init__(self) -> None:
        least = Fraction(1, 10**15)
        positive_rational("shape", self.shape, at_least=least, at_most=10**15)
        least = Fraction(1, 10**9)
        positive_rational("rate", self.rate, at_least=least, at_most=1000)

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
        return float(self.shape) * _log_one_sided(float(self.rate), argument)

    def variance(self) -> float:
        """R q/(1−q)²."""
        return polya_variance(self.shape, self.rate)

    @property
    def wide(self) -> bool:
        """True for many parts or a small rate; shares below one part never are."""
        return self.shape >= 1 and (self.shape > _MOST_PARTS or self.rate * _WIDEST < 1)

    def sample_wide(self, count: int, bits: BitSource) -> Integers:
        """Draw by rejection: log-concave for shapes from one on."""
        return polya_sampler(self.shape, self.rate).sample(count, bits)

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
class Poisson(CountLaw):
    """Poisson(mean): P(x) = e^{−mean} mean^x / x!."""

    mean: Fraction

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
        return poisson_sampler(self.mean).sample(count, bits)

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


def _trimmed(masses: list[int], shift: int, tail_bits: int) -> list[int]:
    """Drop what a last chunk holds beyond the place where the tail is small enough."""
    end = max(1, len(masses) - _CHUNK)
    rest = (1 << shift) - sum(masses[:end])
    enough = 1 << (shift - tail_bits)
    while rest > enough:
        rest -= masses[end]
        end += 1
    return masses[:end]


def _log_one_sided(rate: float, argument: float) -> float:
    """ln[(1−q)/(1−q e^λ)], the log-MGF of the geometric law; +inf from λ ≥ rate."""
    if argument >= rate:
        return math.inf
    return math.log(math.expm1(-rate) / math.expm1(argument - rate))


def is_symmetric(law: NoiseLaw) -> bool:
    """Return whether P(−x) = P(x); only counts are not."""
    return not isinstance(law, CountLaw)


def mass_of(law: NoiseLaw, x: int) -> float:
    """P(X = x), from the closed form where the law has one."""
    if not hasattr(law, "mass"):
        return float(law.pmf_range(x, x)[0])
    if x < 0 and not is_symmetric(law):
        return 0.0
    known: _KnowsMass = law
    return nearest_double(lambda: known.mass(abs(x)))


def mass_up_to(law: NoiseLaw, x: int) -> float:
    """P(X ≤ x), correct to the last digits of a double."""
    if isinstance(law, CountLaw):
        return law.cdf(x)
    return _beyond(law, -x - 1) / 2 if x < 0 else 1.0 - _beyond(law, x) / 2


def _beyond(law: NoiseLaw, magnitude: int) -> float:
    """P(|X| > magnitude)."""
    if isinstance(law, DiscreteLaplace):
        return nearest_double(lambda: law.tail(magnitude))
    tails = law.list_beyond(magnitude)[1]
    return float(tails[magnitude]) if magnitude < len(tails) else 0.0
