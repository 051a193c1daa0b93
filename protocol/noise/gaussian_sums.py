"""The sum of independent discrete Gaussians, which is not a discrete Gaussian.

Kairouz, Liu and Steinke (2021, "The distributed discrete Gaussian mechanism", the
closeness theorem behind the paper's Lemma on the sum of discrete Gaussians): for
σ² ≥ 1/4 and every x,

    |ln P(X₁ + … + X_n = x) − ln P(N_ℤ(0, nσ²) = x)| ≤ 10 · Σ_{k<n} e^{−2π²σ² k/(k+1)}.

At σ = 10 the right side is below 2^−1390 for any cohort, so the masses of the single
discrete Gaussian enclose those of the sum far more tightly than a table needs. Where σ
is too small for that, the masses are convolved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from flint import arb, fmpz_poly

from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.balls import Ball, Ladder, ball, precision
from wallflower.protocol.noise.bits import BitSource, Integers
from wallflower.protocol.noise.gaussian import DiscreteGaussian
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.noise.rejection import LogConcaveSampler

# Convolving a sum of this variance takes about a second.
_LARGEST_CONVOLVED_VARIANCE = 1 << 18
_LISTED_TERMS = 64
_CERTIFIES_TABLES = 256  # bits of closeness that leave room for many refinements


@dataclass(frozen=True, slots=True)
class SumOfDiscreteGaussians(NoiseLaw):
    """X₁ + … + X_count with X_i ~ N_ℤ(0, variance_parameter) independent.

    Masses and bounds are exact where the closeness theorem or a convolution settles
    them. For a small σ and a variance too large to convolve, masses are those of one
    discrete Gaussian, off by the factor e^{±closeness}; the two-sided bound includes
    that factor, so that it is never too small. Samples are exact always.
    """

    count: int
    variance_parameter: Fraction

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int):
            raise InputError("count", self.count, "a whole number of at least 1")
        if not 1 <= self.count <= 10**12:
            raise InputError("count", self.count, "1 … 10^12")
        DiscreteGaussian(self.variance_parameter)
        if self.count > 1 and self.variance_parameter < Fraction(1, 4):
            raise InputError(
                "variance", self.variance_parameter, "at least 1/4 for a sum"
            )

    @property
    def single(self) -> DiscreteGaussian:
        """The discrete Gaussian of the same total parameter."""
        return DiscreteGaussian(self.count * self.variance_parameter)

    def closeness(self) -> float:
        """Bound |ln(P_sum(x)/P_single(x))| for all x, rounded up."""
        with precision(128):
            return math.nextafter(float(self._closeness().upper()), math.inf)

    def _closeness(self) -> Ball:
        rate = 2 * arb.pi() ** 2 * ball(self.variance_parameter)
        listed = min(self.count - 1, _LISTED_TERMS)
        total = arb(0)
        for k in range(1, listed + 1):
            total += (-rate * k / (k + 1)).exp()
        # Terms fall with k: the last one listed bounds each of the others.
        others = self.count - 1 - listed
        return 10 * (total + others * (-rate * listed / (listed + 1)).exp())

    def _closeness_bits(self) -> int:
        """Return b with closeness ≤ 2^−b."""
        if self.count == 1:
            return 1 << 20
        with precision(128):
            return math.floor(
                float((-(self._closeness().log()) / arb.const_log2()).lower())
            )

    def log_mgf(self, argument: float) -> float:
        """Add up the log-MGFs of the parts; at most nσ²λ²/2."""
        return self.count * DiscreteGaussian(self.variance_parameter).log_mgf(argument)

    def variance(self) -> float:
        """Sum of the variances."""
        return self.count * DiscreteGaussian(self.variance_parameter).variance()

    def two_sided_bound(self, level: Fraction) -> int:
        """Return the smallest τ with P(|X| > τ) ≤ level; never smaller than that."""
        if self._is_settled(level):
            return NoiseLaw.two_sided_bound(self, level)
        return min(self._bound_by_closeness(level), self._sub_gaussian_bound(level))

    def _bound_by_closeness(self, level: Fraction) -> int:
        inflation = Fraction(math.nextafter(math.exp(self.closeness()), math.inf))
        return self.single.two_sided_bound(level / inflation)

    def _sub_gaussian_bound(self, level: Fraction) -> int:
        """τ + 1 ≥ √(2nσ² ln(2/level)): P(|X| ≥ t) ≤ 2 e^{−t²/(2nσ²)}."""
        with precision(128):
            square = 2 * self.count * ball(self.variance_parameter)
            reach = (square * (2 / ball(level)).log()).sqrt()
            return int(reach.upper().ceil().unique_fmpz()) - 1

    def _smallest_magnitude(self, level: Fraction) -> int:
        """Exact, or refused where the theorem leaves more than one candidate."""
        if self._is_settled(level):
            return NoiseLaw._smallest_magnitude(self, level)
        most = self._bound_by_closeness(level)
        # The theorem bounds the tail from below as well.
        inflation = Fraction(math.nextafter(math.exp(self.closeness()), math.inf))
        if level * inflation < 1 and (
            self.single.two_sided_bound(level * inflation) == most
        ):
            return most
        raise InputError("level", level, "one that the closeness theorem can settle")

    def _is_settled(self, level: Fraction) -> bool:
        tail_bits = (level.denominator // level.numerator).bit_length() + 128
        return self._closeness_bits() > tail_bits + 64 or self._convolvable

    @property
    def _convolvable(self) -> bool:
        return self.count * self.variance_parameter <= _LARGEST_CONVOLVED_VARIANCE

    def ladder(self, tail_bits: int, guard_bits: int) -> Ladder:
        """Enclose the masses by the theorem if it is tight enough, else convolve."""
        close = self._closeness_bits()
        if close > guard_bits:
            outer = self.single.ladder(tail_bits, guard_bits)
            # P_sum ≥ P_single (1 − 2^−close), and at most a little more above it.
            masses = [mass - (mass >> close) - 1 for mass in outer.masses]
            accuracy = min(outer.accuracy, close, guard_bits) - 3
            return Ladder(masses, outer.shift, accuracy)
        if self._convolvable:
            return _convolve(self.count, self.variance_parameter, tail_bits, guard_bits)
        return self.single.ladder(tail_bits, guard_bits)

    @property
    def wide(self) -> bool:
        """True where neither the theorem nor a convolution gives a table."""
        if self._closeness_bits() > _CERTIFIES_TABLES:
            return self.single.wide
        return not self._convolvable

    def sample_wide(self, count: int, bits: BitSource) -> Integers:
        """Draw by rejection where the theorem encloses the masses, else in parts."""
        if self._closeness_bits() > _CERTIFIES_TABLES:
            return _sum_sampler(self).sample(count, bits)
        largest = math.floor(_LARGEST_CONVOLVED_VARIANCE / self.variance_parameter)
        whole, rest = divmod(self.count, largest)
        values = np.zeros(count, dtype=np.int64)
        for size in [largest] * whole + [rest] * (rest > 0):
            part = SumOfDiscreteGaussians(size, self.variance_parameter)
            values += part.sample(count, bits)
        return values


@lru_cache(maxsize=64)
def _sum_sampler(law: SumOfDiscreteGaussians) -> LogConcaveSampler:
    """Sums of log-concave variables are log-concave (Prékopa)."""
    # Each of the two masses in the ratio is off by a factor within 1 ± 2^(1−bits).
    doubt = arb(0, arb(2) ** (3 - law._closeness_bits()))
    single = law.single.variance_parameter

    def ratio(offset: int) -> Ball:
        return (-(offset**2) / (2 * ball(single))).exp() * (1 + doubt)

    return LogConcaveSampler(0, ratio, math.sqrt(law.variance()))


@lru_cache(maxsize=8)
def _convolve(
    count: int, variance: Fraction, tail_bits: int, guard_bits: int
) -> Ladder:
    """Convolve lower bounds of the masses.

    All products and cuts round down, and the true masses sum to one. So whatever is
    missing from the sum of the lower bounds bounds the error of every single one.
    """
    inner = tail_bits + guard_bits + 64 + 2 * count.bit_length()
    one = DiscreteGaussian(variance).ladder(inner, inner)
    shift = one.shift
    base = [mass // 2 for mass in one.masses[:0:-1]]
    base = [*base, one.masses[0], *base[::-1]]
    total: list[int] | None = None
    remaining = count
    while True:
        if remaining & 1:
            total = base if total is None else _product(total, base, shift, inner)
        remaining >>= 1
        if not remaining:
            break
        base = _product(base, base, shift, inner)
    assert total is not None
    missing = (1 << shift) - sum(total) + 1
    centre = len(total) // 2
    masses = [total[centre], *(2 * mass for mass in total[centre + 1 :])]
    rest = (1 << shift) - masses[0]
    end = 1
    while rest > 1 << (shift - tail_bits):
        rest -= masses[end]
        end += 1
    masses = masses[:end]
    accuracy = min(masses).bit_length() - missing.bit_length() - 2
    return Ladder(masses, shift, accuracy)


def _product(
    left: list[int], right: list[int], shift: int, tail_bits: int
) -> list[int]:
    """Convolve two symmetric lists and cut tails that together weigh 2^−tail_bits."""
    product = fmpz_poly(left) * fmpz_poly(right)
    values = [int(value) >> shift for value in product.coeffs()]
    spare = 1 << max(0, shift - tail_bits - 1)
    cut = 0
    while values[cut] <= spare:
        spare -= values[cut]
        cut += 1
    return values[cut : len(values) - cut]
