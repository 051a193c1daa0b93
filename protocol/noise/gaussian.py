"""Laws of Rényi and concentrated privacy: Skellam and the discrete Gaussian."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial

from flint import arb, ctx

from wallflower.protocol.noise.balls import Ball, Ladder, ball, climb, scaled_floor
from wallflower.protocol.noise.bits import BitSource, Integers
from wallflower.protocol.noise.law import (
    WIDEST_TABLE,
    NoiseLaw,
    check_listable,
    far_out,
    positive_rational,
)
from wallflower.protocol.noise.rejection import LogConcaveSampler, poisson_sampler


@dataclass(frozen=True, slots=True)
class Skellam(NoiseLaw):
    """Sk(0, σ²), the difference of two Poisson(σ²/2) draws: P(x) = e^{−σ²} I_x(σ²).

    Closed under sums: variances add up. Notes: b_k = I_k(z) obeys
    b_{k−1} = b_{k+1} + (2k/z) b_k, positive, hence stable downwards.
    """

    variance_parameter: Fraction

    def __post_init__(self) -> None:
        positive_rational(
            "variance", self.variance_parameter, at_least=Fraction(1, 10**12)
        )

    def mass(self, x: int) -> Ball:
        """Enclose P(X = x)."""
        return ball(self.variance_parameter).bessel_i(arb(x), True)

    def _doubled_mass(self, x: int) -> Ball:
        return 2 * self.mass(x)

    def log_mgf(self, argument: float) -> float:
        """σ²(cosh λ − 1)."""
        return 2 * float(self.variance_parameter) * math.sinh(argument / 2) ** 2

    def variance(self) -> float:
        """σ²."""
        return float(self.variance_parameter)

    @property
    def wide(self) -> bool:
        """True for a large variance."""
        return self.variance_parameter > WIDEST_TABLE**2

    def sample_wide(self, count: int, bits: BitSource) -> Integers:
        """Draw two Poisson variables and subtract."""
        half = poisson_sampler(self.variance_parameter / 2)
        return half.sample(count, bits) - half.sample(count, bits)

    def ladder(self, tail_bits: int, guard_bits: int) -> Ladder:
        """Run the recurrence of the class down from where the tail is small enough."""
        check_listable("variance", self.variance_parameter, math.sqrt(self.variance()))
        top, bottom = (
            self.variance_parameter.numerator,
            self.variance_parameter.denominator,
        )
        last = far_out(self, tail_bits)

        def attempt(shift: int) -> tuple[list[int], int] | None:
            nonlocal last
            outer, mass = (
                scaled_floor(partial(self._doubled_mass, k), shift, guard_bits)
                for k in (last + 1, last)
            )
            if not outer or not mass:
                return None
            masses = [mass]
            factor = 2 * bottom * last
            for _ in range(last):
                outer, mass = mass, outer + factor * mass // top
                masses.append(mass)
                factor -= 2 * bottom
            masses[-1] //= 2
            masses.reverse()
            if (1 << shift) - sum(masses) > 1 << (shift - tail_bits):
                last += last // 8 + 1
                return attempt(shift)
            return masses, 0

        return climb(attempt, guard_bits, guard_bits + tail_bits + 48)


@dataclass(frozen=True, slots=True)
class DiscreteGaussian(NoiseLaw):
    """N_ℤ(0, σ²): P(x) ∝ e^{−x²/(2σ²)} (Canonne, Kamath, Steinke 2020).

    Sub-Gaussian with parameter σ², and its variance is at most σ².
    """

    variance_parameter: Fraction

    def __post_init__(self) -> None:
        positive_rational(
            "variance", self.variance_parameter, at_least=Fraction(1, 1000)
        )

    def mass(self, x: int) -> Ball:
        """Enclose P(X = x)."""
        return (
            -(arb(x) ** 2) / (2 * ball(self.variance_parameter))
        ).exp() / self._weight()

    def _weight(self) -> Ball:
        """Enclose Σ e^{−x²/(2σ²)}, by Poisson's summation formula for σ² ≥ 1/6."""
        parameter = ball(self.variance_parameter)
        if self.variance_parameter * 6 < 1:
            return _theta(1 / (2 * parameter))
        return (2 * arb.pi() * parameter).sqrt() * _theta(2 * arb.pi() ** 2 * parameter)

    def _decay(self, part: int) -> Ball:
        return (-1 / (part * ball(self.variance_parameter))).exp()

    def log_mgf(self, argument: float) -> float:
        """Return σ²λ²/2 + ln of a ratio of theta functions that is at most one."""
        parameter = float(self.variance_parameter)
        if parameter < 1 / 6:
            return self._direct_log_mgf(argument)
        quadratic = parameter * argument**2 / 2
        ratio = decay = 1.0
        for k in range(1, 12):
            weight = 2 * math.exp(-2 * (math.pi * k) ** 2 * parameter)
            ratio += weight * math.cos(2 * math.pi * k * parameter * argument)
            decay += weight
        return quadratic + math.log(ratio / decay)

    def _direct_log_mgf(self, argument: float) -> float:
        parameter = float(self.variance_parameter)
        centre = round(parameter * argument)
        reach = range(-12, 13)
        exponents = [
            argument * x - x * x / (2 * parameter) for x in (centre + k for k in reach)
        ]
        largest = max(exponents)
        above = math.fsum(math.exp(e - largest) for e in exponents)
        below = math.fsum(math.exp(-k * k / (2 * parameter)) for k in reach)
        return largest + math.log(above / below)

    def variance(self) -> float:
        """Var X, less than σ² by a factor that differs from one only for small σ."""
        parameter = float(self.variance_parameter)
        if parameter < 1 / 6:
            weights = [math.exp(-k * k / (2 * parameter)) for k in range(1, 12)]
            second = 2 * sum(k * k * w for k, w in enumerate(weights, 1))
            return second / (1 + 2 * sum(weights))
        rate = 2 * math.pi**2 * parameter
        weights = [math.exp(-rate * k * k) for k in range(1, 12)]
        moment = 2 * sum(k * k * w for k, w in enumerate(weights, 1))
        return parameter * (1 - 2 * rate * moment / (1 + 2 * sum(weights)))

    @property
    def wide(self) -> bool:
        """True for a large parameter."""
        return self.variance_parameter > WIDEST_TABLE**2

    def sample_wide(self, count: int, bits: BitSource) -> Integers:
        """Draw by rejection around zero."""
        return _gaussian_sampler(self).sample(count, bits)

    def ladder(self, tail_bits: int, guard_bits: int) -> Ladder:
        """P(k+1) = P(k) ρ_k and ρ_{k+1} = ρ_k e^{−1/σ²}, from ρ_0 = e^{−1/(2σ²)}."""
        check_listable("variance", self.variance_parameter, math.sqrt(self.variance()))

        def attempt(shift: int) -> tuple[list[int], int] | None:
            centre = scaled_floor(lambda: self.mass(0), shift, guard_bits)
            step, ratio = (
                scaled_floor(partial(self._decay, part), shift, guard_bits)
                for part in (2, 1)
            )
            if not centre or not step or not ratio:
                return None
            masses = [centre]
            mass = 2 * centre
            rest = (1 << shift) - centre
            enough = 1 << (shift - tail_bits)
            while rest > enough:
                mass = mass * step >> shift
                step = step * ratio >> shift
                if step >> guard_bits == 0:
                    return None
                masses.append(mass)
                rest -= mass
            # Errors of the k-th ratio add up too: k² instead of k.
            return masses, len(masses).bit_length()

        return climb(attempt, guard_bits, guard_bits + tail_bits + 48)


@lru_cache(maxsize=256)
def _gaussian_sampler(law: DiscreteGaussian) -> LogConcaveSampler:
    def ratio(offset: int) -> Ball:
        return (-(offset**2) / (2 * ball(law.variance_parameter))).exp()

    return LogConcaveSampler(0, ratio, math.sqrt(law.variance()))


def _theta(rate: Ball) -> Ball:
    """Enclose Σ over all integers k of e^{−rate k²}, rate > 1."""
    total = arb(1)
    k = 1
    while True:
        term = 2 * (-rate * k * k).exp()
        total += term
        k += 1
        # Terms fall at least by e^{−3 rate} each, so the rest is below the next term
        # times 1/(1 − e^{−3}).
        rest = 2 * (-rate * k * k).exp() * 2
        if rest < total * arb(2) ** -(ctx.prec + 8):
            return total + rest.union(arb(0))
