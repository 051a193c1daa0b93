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
        """Return the smallest t with factor · P[X ≥ t] ≤ 2^-bits; at most size + 1."""
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


# --- How likely a lying server can cut the ring of secagg-plus into two sums.
#
# A node answers while t of its k neighbours are in the sum. A lying server chooses who
# seems to vanish. It cuts the ring at two gaps, each of at least k/2 places without an
# honest node in the sum. The honest node beside a gap has at most k/2 neighbours on its
# own side, so it answers only if t − k/2 colluders stand among the k/2 places of the
# gap that it knows. No two gaps overlap. A cut therefore needs two disjoint
# half-windows that hold t − k/2 colluders each, and this module bounds the chance of
# such a pair.
#
# Telling two parts of the ring different survivors needs such a pair as well: each node
# at the border wants t signatures, and honest ones come from its own side alone.


@dataclass(frozen=True, slots=True)
class HalfWindows:
    """Two disjoint half-windows of a shuffled ring.

    Attributes
    ----------
    nodes : n, the places of the ring.
    colluding : how many of them collude; every placement is equally likely.
    degree : k, even and below n − 1; a half-window has k/2 places.
    """

    nodes: int
    colluding: int
    degree: int

    @property
    def pairs(self) -> int:
        """Return an upper bound of the number of pairs of half-windows."""
        return self.nodes * (self.nodes - 1) // 2

    def both_hold(self, colluders: int) -> Fraction:
        """Return the exact chance that two given half-windows hold so many each."""
        half = self.degree // 2
        chance = Fraction(0)
        honest = self.nodes - self.colluding
        for held in range(2 * colluders, min(self.degree, self.colluding) + 1):
            splits = sum(
                math.comb(half, i) * math.comb(half, held - i)
                for i in range(max(colluders, held - half), held - colluders + 1)
            )
            placements = math.comb(self.colluding, held) * math.comb(
                honest, self.degree - held
            )
            chance += Fraction(placements * splits, math.comb(self.degree, held))
        return chance / math.comb(self.nodes, self.degree)

    def rarely_hold(self, colluders: int, bits: int) -> bool:
        """Decide pairs · P[both hold so many] ≤ 2^-bits, by floats where they do."""
        if 2 * colluders > min(self.degree, self.colluding):
            return True
        gap = self._log2_both_hold(colluders) + math.log2(self.pairs) + bits
        if abs(gap) < MARGIN:
            return bool(self.pairs * self.both_hold(colluders) * 2**bits <= 1)
        return gap < 0

    def _log2_both_hold(self, colluders: int) -> float:
        half = self.degree // 2
        ways = log2_binomials(half, half)[colluders:]
        masses = Draw(self.nodes, self.colluding, self.degree).log2_masses()
        placement = masses - log2_binomials(self.degree, self.degree)
        held = np.arange(colluders, half + 1)
        together = ways[:, None] + ways + placement[held[:, None] + held]
        return float(np.logaddexp2.reduce(together, axis=None))
