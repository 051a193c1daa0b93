"""The number of heads among so many fair coins, less its mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.balls import Ball, ball
from wallflower.protocol.noise.law import BitSource, Integers
from wallflower.protocol.noise.masses import Ladder
from wallflower.protocol.noise.tabulated import LadderLaw

_MOST_COINS = 1 << 20
_WORD = 64


@dataclass(frozen=True)
class CentredBinomial(LadderLaw):
    """X + coins/2 ~ Binomial(coins, ½); `coins` is even."""

    coins: int
    symmetric: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.coins % 2 or not 2 <= self.coins <= _MOST_COINS:
            allowed = f"an even number from 2 to {_MOST_COINS}"
            raise InputError("coins", self.coins, allowed)

    def mass(self, x: int) -> Ball:
        """Enclose P(X = x)."""
        half = self.coins // 2
        if x > half:
            return ball(0)
        return ball(math.comb(self.coins, half + x)) / ball(1 << self.coins)

    def ladder(self, tail_bits: int, guard_bits: int) -> Ladder:
        """Give all masses, which are whole multiples of 2^−coins."""
        half, more = self.coins // 2, tail_bits + guard_bits
        mass = math.comb(self.coins, half)
        masses = [mass << more]
        for x in range(1, half + 1):
            mass = mass * (half - x + 1) // (half + x)
            masses.append(mass << (more + 1))
        return Ladder(masses, self.coins + more, self.coins + more)

    def log_mgf(self, argument: float) -> float:
        """ln cosh(λ/2) of each coin."""
        half = abs(argument) / 2
        return self.coins * (half + math.log1p(math.exp(-2 * half)) - math.log(2))

    def variance(self) -> float:
        """A quarter of each coin."""
        return self.coins / 4

    def sample(self, count: int, bits: BitSource) -> Integers:
        """Toss the coins."""
        if count < 0:
            raise InputError("count", count, "at least 0")
        whole, rest = divmod(self.coins, _WORD)
        words = bits.words(count * (whole + bool(rest))).reshape(count, -1)
        if rest:
            words = words.copy()
            words[:, -1] &= np.uint64((1 << rest) - 1)
        heads = np.bitwise_count(words).sum(axis=1, dtype=np.int64)
        return np.asarray(heads - self.coins // 2, dtype=np.int64)
