"""How the failure probability p is shared out, in exact fractions.

Where the number of batches is bounded by the horizon (the `tight` test), batch b of B
gets p/((b + 5) H) with H = Σ 1/(k + 5), k = 1..B: nearly even, a little more for early
batches, which small experiments end in. Otherwise batch b gets 6p/(π² b²); since
Σ 1/b² = π²/6 all batches together spend at most p. (Deviation: the paper gives every
batch p/b², which sums to 1.64 p per bound and to 4.11 p over its three bounds.)

Within a batch a hundredth pays for wrap-around, split over the K cohorts, and the rest
for deviations: rarer wraps cost a few units of noise bound, while every share a
deviation loses asks for more users. 607/1000 < 6/π² keeps it rational.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

SIX_OVER_PI_SQUARED = Fraction(607, 1000)
WRAP_PART = Fraction(1, 100)
_UNPLANNED = Fraction(1, 100)  # of p, for batches beyond the planned ones
# Chosen with the exponents of the test, on the same instances (benchmarks/decide.py).
_FLATTENING = 5
_MILLION = 10**6


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of one policy; `batches` is the most it can play, None: unknown."""

    failure_probability: Fraction
    batches: int | None = None

    def weight(self, batch: int) -> Fraction:
        """Return the part of p for batch `batch`; all of them sum to one at most."""
        if self.batches is None:
            return SIX_OVER_PI_SQUARED / batch**2
        if batch > self.batches:
            # Users given back after a refusal make more batches than were planned.
            return _UNPLANNED * SIX_OVER_PI_SQUARED / (batch - self.batches) ** 2
        return (1 - _UNPLANNED) * _nearly_even(batch, self.batches)

    def batch(self, batch: int) -> Fraction:
        """Return what batch `batch` may spend."""
        return self.failure_probability * self.weight(batch)

    def wrap(self, batch: int, arms: int) -> Fraction:
        """Level of the modulus of one cohort: a hundredth of its part of the share.

        Rounded down to a unit fraction: it travels in every cohort's public
        description, where numerator and denominator must stay small.
        """
        level = WRAP_PART * self.batch(batch) / arms
        return Fraction(1, -(-level.denominator // level.numerator))

    def pair(self, batch: int, arms: int) -> Fraction:
        """Level of one comparison with the best of `arms` arms; each has arms − 1."""
        return self.weight(batch) * self.ever(arms)

    def ever(self, arms: int) -> Fraction:
        """Return the level of one pair over all batches."""
        return (1 - WRAP_PART) * self.failure_probability / max(arms - 1, 1)

    def difference(self, arms: int) -> Fraction:
        """Return the level of one side of one pair's difference, over all batches.

        Every ordered pair has one: all differences hold together.
        """
        return self.ever(arms) / arms

    def side(self, batch: int, arms: int) -> Fraction:
        """Return the level of one side of one arm's own interval."""
        return (1 - WRAP_PART) * self.batch(batch) / (2 * arms)


@lru_cache(maxsize=4096)
def _nearly_even(batch: int, batches: int) -> Fraction:
    """1/((b + 5) H), rounded down to millionths."""
    part = 1 / ((batch + _FLATTENING) * _harmonic(batches))
    return Fraction(math.floor(part * _MILLION), _MILLION)


@lru_cache(maxsize=256)
def _harmonic(batches: int) -> Fraction:
    return sum(
        (Fraction(1, k + _FLATTENING) for k in range(1, batches + 1)), Fraction(0)
    )
