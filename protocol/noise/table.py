"""The certified-table sampler: one sampler, many laws, exact.

With U uniform on [0, 1), X = min{x : F(x) > U} has distribution function F. U is drawn
word by word, w bits at a time. The table holds c_x = ⌊2^w F(x)⌋, each floor proven. For
the first word u:  u < c_x ⇒ U < F(x),  u > c_x ⇒ U ≥ F(x).  Only u = c_x leaves X
open; then more words are drawn and F is enclosed more tightly until it is decided. The
infinite tail is the case u = 2^w − 1, so nothing is truncated: the value returned is
exactly min{x : F(x) > U}, whatever w is.

Tables are built whole, before any word is drawn, and not as far as the draws need them:
otherwise the time a user takes would tell how large their noise is. For the same reason
up to `STEADY` values are drawn *steadily*: a word each, looked up by as many steps as
the table asks for, whatever is found. More at a time, which only simulations draw, take
short cuts that depend on the values.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from itertools import accumulate
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.balls import Ladder
from wallflower.protocol.noise.bits import BitSource, Integers

_BLOCK = 1 << 15  # draws handled at once: all arrays of a block fit in a core's cache
STEADY = 1 << 12  # draws up to which neither steps nor words depend on the values
_WALK = 3  # single steps from the guide's hint before falling back on bisection


class _HalfLineLaw(Protocol):
    """A law on 0, 1, 2, … that can enclose its masses as tightly as asked."""

    def ladder(self, tail_bits: int, guard_bits: int) -> Ladder:
        """Masses until the rest weighs ≤ 2^−tail_bits, from ≥ guard_bits numbers."""
        ...


class CertifiedTable:
    """Draws from a law on 0, 1, 2, …, exactly.

    Parameters
    ----------
    law : encloses the masses.
    word_bits : w, bits of U drawn at a time, 1 … 64. Small values serve to test the
        refinement, which 64-bit words need once in 10¹³ draws.
    """

    def __init__(self, law: _HalfLineLaw, word_bits: int = 64) -> None:
        if not 1 <= word_bits <= 64:
            raise InputError("word_bits", word_bits, "1 … 64")
        self._law = law
        self._word_bits = word_bits
        self._padded = _padded(_certify_thresholds(law, word_bits))
        self._view = self._padded.data  # single entries as plain integers
        self._thresholds = self._padded[: int(np.argmax(self._padded)) + 1]
        # A word of more than 32 bits is read in two parts; the second one only if the
        # first leaves the value open, since bits of the system cost more than the rest.
        self._lead_bits = word_bits - 32 if word_bits > 32 else word_bits
        shift = np.uint64(word_bits - self._lead_bits)
        self._leads = (self._thresholds >> shift).astype(np.uint32)
        self._shift, self._guide = _guide(self._leads, self._lead_bits)
        self._deeper: dict[int, tuple[list[int], int, int]] = {}

    def __len__(self) -> int:
        """Return the number of values that one word can decide."""
        return len(self._thresholds)

    @property
    def thresholds(self) -> NDArray[np.uint64]:
        """c_x for x = 0, 1, …; the last one is 2^w − 1."""
        return self._thresholds

    @property
    def size_bytes(self) -> int:
        """Memory held."""
        arrays = (self._padded, self._leads, self._guide)
        return sum(array.nbytes for array in arrays)

    def sample(self, count: int, bits: BitSource) -> Integers:
        """Draw `count` independent values."""
        return self._sample(count, bits, signed=False)

    def sample_signed(self, count: int, bits: BitSource) -> Integers:
        """Draw magnitudes and give each a fair sign, the lowest bit of its first word.

        Needs words of at most 63 bits, so that sign and magnitude share no bit.
        """
        if self._word_bits > 63:
            raise InputError("word_bits", self._word_bits, "1 … 63 for a signed draw")
        return self._sample(count, bits, signed=True)

    def _sample(self, count: int, bits: BitSource, *, signed: bool) -> Integers:
        if count <= STEADY:
            return self._draw_steadily(count, bits, signed=signed)
        values = np.empty(count, dtype=np.int64)
        for start in range(0, count, _BLOCK):
            block = values[start : start + _BLOCK]
            halves = bits.words(-(-len(block) // 2)).view(np.uint32)[: len(block)]
            self._draw(halves >> np.uint32(32 - self._lead_bits), block, bits)
            if signed:
                # −1 and +1 from the sign bit; zero has only one sign.
                block *= 1 - ((halves & np.uint32(1)).astype(np.int64) << 1)
        return values

    def _draw_steadily(self, count: int, bits: BitSource, *, signed: bool) -> Integers:
        """Bisect with a fixed number of steps; only a tie, once in 10¹³, adds one."""
        words = bits.words(count)
        if count == 1:
            return self._draw_one(int(words[0]), bits, signed=signed)
        firsts = words >> np.uint64(64 - self._word_bits)
        values = np.zeros(count, dtype=np.int64)
        step = (len(self._padded) + 1) >> 1
        while step:
            values += step * (self._padded[values + (step - 1)] < firsts)
            step >>= 1
        for index in (self._padded[values] == firsts).nonzero()[0].tolist():
            values[index] = self._refine(int(firsts[index]), int(values[index]), bits)
        if signed:
            # −1 and +1 from the sign bit; zero has only one sign.
            values *= 1 - ((words & np.uint64(1)).astype(np.int64) << 1)
        return values

    def _draw_one(self, word: int, bits: BitSource, *, signed: bool) -> Integers:
        """Draw one value by the same steps, without arrays of one entry."""
        table, value = self._view, 0
        first = word >> (64 - self._word_bits)
        step = (len(table) + 1) >> 1
        while step:
            value += step * (table[value + (step - 1)] < first)
            step >>= 1
        if table[value] == first:
            value = self._refine(first, value, bits)
        if signed:
            value *= 1 - 2 * (word & 1)
        return np.array([value], dtype=np.int64)

    def _draw(
        self, leads: NDArray[np.uint32], values: Integers, bits: BitSource
    ) -> None:
        """Fill `values` from the leading bits of their first words."""
        zero_below = self._leads[0]
        if int(zero_below) >> (self._lead_bits - 1):
            # More than half of all draws are zero: the share of one user in many.
            values[:] = 0
            places = np.flatnonzero(leads >= zero_below)
            leads = leads[places]
            found = self._find(leads)
            values[places] = found
        else:
            places = None
            found = self._find(leads)
            values[:] = found
        ties = np.flatnonzero(self._leads[found] == leads)
        if len(ties):
            decided = self._second_part(leads[ties], bits)
            values[ties if places is None else places[ties]] = decided

    def _second_part(self, leads: NDArray[np.uint32], bits: BitSource) -> Integers:
        """Decide words whose leading bits agree with those of a threshold."""
        words = leads.astype(np.uint64)
        rest = self._word_bits - self._lead_bits
        if rest:
            words <<= np.uint64(rest)
            words |= bits.words(len(words)) >> np.uint64(64 - rest)
        values = np.searchsorted(self._thresholds, words).astype(np.int64)
        for index in np.flatnonzero(self._thresholds[values] == words).tolist():
            values[index] = self._refine(int(words[index]), int(values[index]), bits)
        return values

    def _find(self, leads: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Return the first x whose threshold's leading bits are ≥ those of the word."""
        table = self._leads
        found: NDArray[np.int64] = self._guide[leads >> self._shift]
        behind = np.flatnonzero(table[found] < leads)
        for _ in range(_WALK):
            if not len(behind):
                return found
            found[behind] += 1
            behind = behind[table[found[behind]] < leads[behind]]
        if len(behind):
            found[behind] = np.searchsorted(table, leads[behind])
        return found

    def _refine(self, value: int, candidate: int, bits: BitSource) -> int:
        """Decide min{x ≥ candidate : F(x) > U} for a U that starts with `value`."""
        known = self._word_bits
        while True:
            word = int(bits.words(1)[0]) >> (64 - self._word_bits)
            value = value << self._word_bits | word
            known += self._word_bits
            sums, scale, slack = self._sums(known)
            low = value << (scale - known)
            high = (value + 1) << (scale - known)
            while candidate < len(sums):
                if high <= sums[candidate]:
                    return candidate
                if low < sums[candidate] + slack:
                    break  # F(candidate) lies inside what is known of U
                candidate += 1

    def _sums(self, known_bits: int) -> tuple[list[int], int, int]:
        """Enclose F: sums[x] ≤ 2^scale F(x) < sums[x] + slack, tight at known_bits."""
        if known_bits not in self._deeper:
            ladder = self._law.ladder(known_bits + 32, known_bits + 96)
            slack = (1 << max(0, ladder.shift - ladder.accuracy)) + 1
            self._deeper[known_bits] = (
                list(accumulate(ladder.masses)),
                ladder.shift,
                slack,
            )
        return self._deeper[known_bits]


def _certify_thresholds(law: _HalfLineLaw, word_bits: int) -> NDArray[np.uint64]:
    tail_bits, guard_bits = word_bits, word_bits + 60
    while True:
        thresholds = law.ladder(tail_bits, guard_bits).thresholds(word_bits)
        if thresholds is not None:
            return thresholds
        tail_bits += 8
        guard_bits += 64


def _padded(thresholds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Repeat the largest threshold up to a length of 2^d − 1, for d steps."""
    length = (1 << len(thresholds).bit_length()) - 1
    return np.pad(thresholds, (0, length - len(thresholds)), mode="edge")


def _guide(
    leads: NDArray[np.uint32], lead_bits: int
) -> tuple[np.uint32, NDArray[np.int64]]:
    """Give, for each beginning of a word, the first x that it may lead to.

    A beginning weighs an eighth of the largest mass, so that most draws need no step.
    """
    steps = np.diff(leads.astype(np.int64), prepend=0)
    rarity = lead_bits + 1 - int(steps.max()).bit_length()
    leading = min(lead_bits, max(8, min(20, rarity + 3)))
    shift = np.uint32(lead_bits - leading)
    starts = np.arange(1 << leading, dtype=np.uint32) << shift
    return shift, np.searchsorted(leads, starts).astype(np.int64)


class _TableCache:
    """Tables most recently used, up to a number of bytes; safe between threads."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._tables: OrderedDict[tuple[_HalfLineLaw, int], CertifiedTable] = (
            OrderedDict()
        )
        self._lock = threading.RLock()

    def table(self, law: _HalfLineLaw, word_bits: int) -> CertifiedTable:
        """Return the table of a law, built at most once while it is remembered."""
        key = (law, word_bits)
        with self._lock:
            table = self._tables.get(key)
            if table is not None:
                self._tables.move_to_end(key)
                return table
            table = self._tables[key] = CertifiedTable(law, word_bits)
            while len(self._tables) > 1 and self.size_bytes > self._budget_bytes:
                self._tables.popitem(last=False)
            return table

    @property
    def size_bytes(self) -> int:
        """Memory held by all tables."""
        return sum(table.size_bytes for table in self._tables.values())

    def __len__(self) -> int:
        """Return the number of tables held."""
        return len(self._tables)


TABLES = _TableCache(budget_bytes=256 << 20)
