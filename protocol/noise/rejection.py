"""Exact draws from laws too wide for a table, by rejection, without a float.

For a log-concave law with mode m, let B satisfy P(m ± B) ≤ P(m)/2 (proven by an
enclosure). Log-concavity gives P(m ± k) ≤ P(m)·2^{−⌊k/B⌋}. So: draw a sign, a block j
with probability 2^{−j−1} (tosses of a fair coin), an offset uniform within the block,
and accept with probability 2^j · P(m ± k)/P(m) ≤ 1. Every value is then proposed and
accepted with probability P(m ± k)/(4B·P(m)); zero is proposed with both signs, so one
of them is thrown away. About half of all proposals are accepted.

The last step compares bits of a uniform number with an enclosure, drawing more of one
or tightening the other until they differ: the same exactness as the certified table's,
at a cost that does not grow with the width of the law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from flint import arb

from wallflower.protocol.noise.balls import Ball, ball, certainly_at_most, precision
from wallflower.protocol.noise.bits import BitSource, Integers, uniform_integer


class LogConcaveSampler:
    """Draws from a log-concave law on the integers.

    Parameters
    ----------
    mode : m, where the mass is largest.
    ratio : encloses P(m + offset)/P(m) at the working precision; zero outside the
        support.
    deviation : roughly the standard deviation; decides the speed, not the law.
    """

    def __init__(
        self, mode: int, ratio: Callable[[int], Ball], deviation: float
    ) -> None:
        self._mode = mode
        self._ratio = ratio
        self._block = self._certify_block(max(1, math.ceil(1.2 * deviation)))

    def _certify_block(self, block: int) -> int:
        for sign in (1, -1):
            while not self._does_halve(sign * block):
                block += block // 8 + 1
        return block

    def _does_halve(self, offset: int) -> bool:
        return certainly_at_most(lambda: self._ratio(offset), Fraction(1, 2))

    def sample(self, count: int, bits: BitSource) -> Integers:
        """Draw `count` independent values."""
        return np.array([self._draw(bits) for _ in range(count)], dtype=np.int64)

    def _draw(self, bits: BitSource) -> int:
        while True:
            negative, block = _sign_and_block(bits)
            offset = block * self._block + uniform_integer(self._block, bits)
            if negative:
                if offset == 0:
                    continue
                offset = -offset
            if self._accept(offset, block, bits):
                return self._mode + offset

    def _accept(self, offset: int, block: int, bits: BitSource) -> bool:
        """Be true with probability 2^block · P(m + offset)/P(m)."""
        known = 64
        uniform = int(bits.words(1)[0])
        working = 128
        while True:
            with precision(working):
                chance = self._ratio(offset) * arb(2) ** (block + known)
                if chance >= uniform + 1:
                    return True
                if chance <= uniform:
                    return False
                vague = chance.rad() > 0.25
            if vague:
                working *= 2
            else:
                uniform = uniform << 64 | int(bits.words(1)[0])
                known += 64


def _sign_and_block(bits: BitSource) -> tuple[bool, int]:
    """Toss for a sign, then count tails before the first head."""
    word = int(bits.words(1)[0])
    negative, word = bool(word & 1), word >> 1
    block, width = 0, 63
    while word == 0:
        block += width
        word, width = int(bits.words(1)[0]), 64
    return negative, block + (word & -word).bit_length() - 1


# --- Counts, on 0, 1, 2, …, whose differences are the laws of noise.


@lru_cache(maxsize=256)
def polya_sampler(shape: Fraction, rate: Fraction) -> LogConcaveSampler:
    """Draw from Pólya(r, q), q = e^{−rate}: P(x) = Γ(x+r)/(x! Γ(r)) · q^x (1−q)^r.

    Log-concave for shapes r from one on.
    """
    mode = _polya_mode(shape, rate)

    def ratio(offset: int) -> Ball:
        if mode + offset < 0:
            return arb(0)
        parts = ball(shape)
        weight = (mode + offset + parts).lgamma() - (mode + parts).lgamma()
        weight += arb(mode + 1).lgamma() - arb(mode + offset + 1).lgamma()
        return (weight - ball(rate) * offset).exp()

    return LogConcaveSampler(mode, ratio, math.sqrt(polya_variance(shape, rate)))


def polya_variance(shape: Fraction, rate: Fraction) -> float:
    """R q/(1−q)²."""
    return float(shape) * math.exp(-float(rate)) / math.expm1(-float(rate)) ** 2


def _polya_mode(shape: Fraction, rate: Fraction) -> int:
    """⌊(r−1)q/(1−q)⌋: P(x) ≥ P(x−1) iff x ≤ (r−1)q/(1−q)."""
    bits = 256
    while True:
        with precision(bits):
            place = ball(shape - 1) / ball(rate).expm1()
            whole = place.floor().unique_fmpz()
        if whole is not None:
            return int(whole)
        bits *= 2


@lru_cache(maxsize=256)
def poisson_sampler(mean: Fraction) -> LogConcaveSampler:
    """Draw from Poisson(mean): P(x) = e^{−mean} mean^x / x!, which is log-concave."""
    mode = math.floor(mean)

    def ratio(offset: int) -> Ball:
        if mode + offset < 0:
            return arb(0)
        weight = arb(mode + 1).lgamma() - arb(mode + offset + 1).lgamma()
        return (weight + offset * ball(mean).log()).exp()

    return LogConcaveSampler(mode, ratio, math.sqrt(mean))
