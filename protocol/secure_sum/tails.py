"""Exact tails of the hypergeometric and binomial laws against a power of two.

Sizes of committees and graphs hang on inequalities such as P[X ≥ t] ≤ 2^-σ. A table of
logarithms in double precision finds where the inequality turns; its error is below
1e-9 bits, so wherever it is within `MARGIN` bits of the turning point — and for the
value finally chosen — integers decide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

MARGIN = 1e-6  # bits; closer calls are decided by integers


@lru_cache(maxsize=64)
def log2_binomials(top: int, longest: int) -> NDArray[np.float64]:
    """log2 of C(top, i) for i = 0..longest; −∞ where i > top."""
    i = np.arange(1, longest + 1, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.log2(np.maximum(top - i + 1, 0.0)) - np.log2(i)
    table = np.concatenate([[0.0], np.cumsum(steps)])
    table[top + 1 :] = -np.inf
    return table


@dataclass(frozen=True, slots=True)
class Draw:
    """`size` draws from a population; `marked` of `population` carry a mark.

    Without replacement (hypergeometric) when `population` is given as an integer; the
    limit of a huge population (binomial) when `population` is None and `marked` is the
    fraction of marks.
    """

    population: int | None
    marked: int | Fraction
    size: int

    def log2_masses(self) -> NDArray[np.float64]:
        """log2 P[X = i] for i = 0..size."""
        size = self.size
        longest = _table_length(size)
        i = np.arange(size + 1)
        if self.population is None:
            chance = Fraction(self.marked)
            with np.errstate(divide="ignore", invalid="ignore"):
                yes = _times(i, _log2_fraction(chance))
                no = _times(size - i, _log2_fraction(1 - chance))
            return log2_binomials(size, size) + yes + no
        marked = int(self.marked)
        chosen = log2_binomials(marked, longest)[: size + 1]
        others = log2_binomials(self.population - marked, longest)[: size + 1]
        whole = log2_binomials(self.population, longest)[size]
        masses: NDArray[np.float64] = chosen + others[::-1] - whole
        return masses

    def _weights(self, low: int, high: int) -> tuple[int, int]:
        """P[low ≤ X ≤ high] as exact numerator and denominator."""
        if self.population is None:
            chance = Fraction(self.marked)
            top, bottom = chance.numerator, chance.denominator
            total = sum(
                math.comb(self.size, i) * top**i * (bottom - top) ** (self.size - i)
                for i in range(low, high + 1)
            )
            return total, bottom**self.size
        marked, rest = int(self.marked), self.population - int(self.marked)
        low = max(low, 0, self.size - rest)
        high = min(high, self.size, marked)
        if low > high:
            return 0, 1
        term = math.comb(marked, low) * math.comb(rest, self.size - low)
        total = term
        for i in range(low, high):
            # C(K,i+1)·C(R,s−i−1) from C(K,i)·C(R,s−i), both divisions exact in turn.
            term = term * (marked - i) * (self.size - i)
            term //= (i + 1) * (rest - self.size + i + 1)
            total += term
        return total, math.comb(self.population, self.size)

    def at_least(self, threshold: int, factor: Fraction, bits: int) -> bool:
        """Decide factor · P[X ≥ threshold] ≤ 2^-bits exactly."""
        numerator, denominator = self._weights(threshold, self.size)
        return bool(factor * numerator * 2**bits <= denominator)

    def below(self, threshold: int, factor: Fraction, bits: int) -> bool:
        """Decide factor · P[X < threshold] ≤ 2^-bits exactly."""
        numerator, denominator = self._weights(0, threshold - 1)
        return bool(factor * numerator * 2**bits <= denominator)

    def smallest_safe_threshold(self, factor: Fraction, bits: int) -> int:
        """Smallest t with factor · P[X ≥ t] ≤ 2^-bits; at most size + 1."""
        tails = _upper_tails(self.log2_masses()) + _log2_fraction(factor)
        threshold = int(np.argmax(tails <= -bits - MARGIN))
        while threshold > 0 and tails[threshold - 1] <= -bits + MARGIN:
            if not self.at_least(threshold - 1, factor, bits):
                break
            threshold -= 1
        return threshold

    def rarely_all(self, factor: Fraction, bits: int) -> bool:
        """Decide factor · P[X = size] ≤ 2^-bits, by floats where they suffice."""
        mass = self.log2_masses()[self.size]
        gap = float(mass + _log2_fraction(factor)) + bits
        if abs(gap) < MARGIN:
            return self.at_least(self.size, factor, bits)
        return gap < 0

    def rarely_below(self, threshold: int, factor: Fraction, bits: int) -> bool:
        """Decide factor · P[X < threshold] ≤ 2^-bits, by floats where they suffice."""
        if threshold <= 0:
            return True
        if threshold > self.size:
            return False
        lower = _upper_tails(self.log2_masses()[::-1])
        gap = float(lower[self.size - threshold + 1] + _log2_fraction(factor)) + bits
        if abs(gap) < MARGIN:
            return self.below(threshold, factor, bits)
        return gap < 0


def _table_length(size: int) -> int:
    """Round up, so that a search over sizes shares a few cached tables."""
    return max(64, 1 << (size - 1).bit_length())


def _times(
    counts: NDArray[np.int64], log2_chance: float
) -> NDArray[np.float64] | float:
    """Count times log2, with 0 · −∞ = 0 (a certain event has no weight)."""
    return np.where(counts == 0, 0.0, counts * log2_chance)


def _log2_fraction(value: Fraction) -> float:
    if value == 0:
        return -math.inf
    return math.log2(value.numerator) - math.log2(value.denominator)


def _upper_tails(masses: NDArray[np.float64]) -> NDArray[np.float64]:
    """log2 Σ_{j ≥ i} 2^masses[j] for every i, and −∞ past the end."""
    tails = np.logaddexp2.accumulate(masses[::-1])[::-1]
    return np.append(tails, -np.inf)
