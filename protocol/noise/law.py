"""What a noise law is: a distribution on the integers that knows itself exactly.

Concrete laws (discrete Laplace, NB-difference, Skellam, discrete Gaussian and sums of
it) implement this; samplers, mechanisms, accountant, radii and simulator read it. What
all share, tables, bounds and tails, is read from one ladder.
"""

from __future__ import annotations

import abc
import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.balls import Ladder
from wallflower.protocol.noise.bits import BitSource, Integers
from wallflower.protocol.noise.table import TABLES

# Laws up to this scale or deviation are drawn from tables (about 10⁶ entries, a
# second to build), wider ones by rejection.
WIDEST_TABLE = 20_000
WIDEST_LIST = 500_000
# Doubles end at 2^−1074; no tail beyond that can be told from zero.
_LISTED_TAIL_BITS = (128, 256, 512, 1216)
# Each round of a run asks for a bound at a level of its own: they share one ladder.
_LADDER_STEP = 32  # bits
_LONGEST_KEPT = 1 << 14  # masses: one to two megabytes
_LARGEST_LIST = 1 << 30  # entries times bits: a few seconds


def positive_rational(
    parameter: str, value: object, *, at_most: int = 10**18, at_least: Fraction
) -> Fraction:
    """Check an exact parameter; floats are refused, since none may decide noise."""
    allowed = f"an int or Fraction, at least {at_least} and at most {at_most}"
    if isinstance(value, bool) or not isinstance(value, int | Fraction):
        raise InputError(parameter, f"{value!r} ({type(value).__name__})", allowed)
    if not at_least <= value <= at_most:
        raise InputError(parameter, value, allowed)
    return Fraction(value)


def check_listable(parameter: str, value: object, width: Fraction | float) -> None:
    """Refuse to list masses that would take minutes; a request may be hostile."""
    if width > WIDEST_LIST:
        allowed = f"a width of at most {WIDEST_LIST} to list all masses"
        raise InputError(parameter, value, allowed)


class NoiseLaw(abc.ABC):
    """A symmetric law on ℤ with rational parameters, known by the masses of |X|."""

    @abc.abstractmethod
    def ladder(self, tail_bits: int, guard_bits: int) -> Ladder:
        """Enclose P(|X| = k), k = 0, 1, … until the rest is ≤ 2^−tail_bits."""

    @abc.abstractmethod
    def log_mgf(self, argument: float) -> float:
        """ln E exp(argument · X); +inf outside the domain."""

    @abc.abstractmethod
    def variance(self) -> float:
        """Var X."""

    def pmf_range(self, low: int, high: int) -> NDArray[np.float64]:
        """P(X = x) for x = low … high, each correct to the last digits."""
        masses = self.list_beyond(max(abs(low), abs(high)))[0]
        result = np.zeros(high - low + 1)
        places = np.abs(np.arange(low, high + 1))
        inside = places < len(masses)
        result[inside] = masses[places[inside]]
        result[places != 0] /= 2
        return result

    def list_beyond(
        self, magnitude: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """List P(|X| = k) and P(|X| > k) far enough for a last digit at `magnitude`.

        Beyond the deepest list everything is below the smallest double.
        """
        for tail_bits in _LISTED_TAIL_BITS:
            masses, tails = _doubles(self, tail_bits)
            if magnitude < len(tails) and tails[magnitude] > 2.0 ** (64 - tail_bits):
                break
        return masses, tails

    def two_sided_bound(self, level: Fraction) -> int:
        """Return the smallest τ ≥ 0 with P(|X| > τ) ≤ level, decided by enclosures."""
        if not isinstance(level, Fraction) or not 0 < level < 1:
            raise InputError("level", level, "a Fraction strictly between 0 and 1")
        return self._smallest_magnitude(level)

    def _smallest_magnitude(self, level: Fraction) -> int:
        """Return the smallest k ≥ 0 with P(|X| > k) ≤ level; may use a closed form."""
        return _smallest_magnitude(self, level)

    @property
    def wide(self) -> bool:
        """True if a table would take too long: then `sample_wide` draws."""
        return False

    def sample_wide(self, count: int, bits: BitSource) -> Integers:
        """Draw without a table; only laws that can be wide have such a way."""
        raise InputError("law", self, "one that is narrow enough for a table")

    def sample(self, count: int, bits: BitSource) -> Integers:
        """Draw `count` independent values, exactly from this law."""
        if count < 0:
            raise InputError("count", count, "at least 0")
        if self.wide:
            return self.sample_wide(count, bits)
        return TABLES.table(self, 63).sample_signed(count, bits)


def _ladder(law: NoiseLaw, tail_bits: int) -> Ladder:
    """Return a ladder, a short one perhaps that was made before."""
    short = far_out(law, tail_bits) <= _LONGEST_KEPT
    return (
        _keep_ladder(law, tail_bits) if short else law.ladder(tail_bits, tail_bits + 64)
    )


@lru_cache(maxsize=8)
def _keep_ladder(law: NoiseLaw, tail_bits: int) -> Ladder:
    return law.ladder(tail_bits, tail_bits + 64)


@lru_cache(maxsize=1024)
def _smallest_magnitude(law: NoiseLaw, level: Fraction) -> int:
    extra = 64
    while True:
        tail_bits = (level.denominator // level.numerator).bit_length() + extra
        # A longer ladder decides the same; levels that are near each other share one.
        tail_bits += -tail_bits % _LADDER_STEP
        ladder = _ladder(law, tail_bits)
        unit = 1 << ladder.shift
        beyond = unit >> (tail_bits - 1)
        limit_low = unit * level.numerator // level.denominator
        tail = 0
        index = len(ladder.masses) - 1
        while index >= 0 and tail + ladder.masses[index] <= limit_low:
            tail += ladder.masses[index]
            index -= 1
        # P(|X| > index) lies in [tail, tail·(1 + 2^−accuracy) + beyond] / unit, and
        # one mass more certainly exceeds the limit.
        certain = tail + (tail >> ladder.accuracy) + 1 + beyond <= limit_low
        exceeds = index < 0 or tail + ladder.masses[index] > limit_low + 1
        if certain and exceeds:
            return max(index, 0)
        extra += 64


@lru_cache(maxsize=16)
def _doubles(
    law: NoiseLaw, tail_bits: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """P(|X| = k) and P(|X| > k) as doubles, k = 0, 1, …"""
    if far_out(law, tail_bits) * tail_bits > _LARGEST_LIST:
        raise InputError("x", f"beyond 2^-{tail_bits} of the tail", "nearer the centre")
    ladder = law.ladder(tail_bits, tail_bits + 64)
    unit = 1 << ladder.shift
    masses = np.array([mass / unit for mass in ladder.masses])
    tails = np.empty(len(masses))
    tail = 0
    for index in range(len(masses) - 1, -1, -1):
        tails[index] = tail / unit
        tail += ladder.masses[index]
    return masses, tails


def far_out(law: NoiseLaw, tail_bits: int) -> int:
    """Guess k with P(|X| > k) ≤ 2^−tail_bits from Chernoff's bound.

    Only a starting point: whoever uses it checks the mass that is missing.
    """
    argument = far_out_argument(law, tail_bits)
    wanted = (tail_bits + 1) * math.log(2)
    return math.ceil((wanted + law.log_mgf(argument)) / argument) + 1


def far_out_argument(law: NoiseLaw, tail_bits: int) -> float:
    """Return a λ that nearly minimises the bound (ln 2^{tail_bits+1} + ln M)/λ."""
    wanted = (tail_bits + 1) * math.log(2)

    def bound(argument: float) -> float:
        return (wanted + law.log_mgf(argument)) / argument

    low, high = 0.0, 1.0
    while law.log_mgf(high) < wanted:
        high *= 2
    # Unimodal in its argument, and infinite outside the domain of the MGF.
    for _ in range(80):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if bound(left) <= bound(right):
            high = right
        else:
            low = left
    return low
