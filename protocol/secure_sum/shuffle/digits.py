"""Writing an integer in radix-2 messages, and reading the sum from a heap of them.

A message is a number below 2L: twice the level, plus the bit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

from wallflower.protocol.errors import InputError, MalformedMessageError
from wallflower.protocol.noise.bits import BitSource, uniform_integer
from wallflower.protocol.noise.radix import RadixPlan, certified_tables


def write(value: int, plan: RadixPlan, bits: BitSource) -> list[int]:
    """Draw a party's messages for its integer; in order, so shuffle before sending.

    On every level both laws are drawn from and a number to go on with, and one of them
    is used: what is drawn, and how much of it, does not tell of junk.
    """
    if not 0 <= value < plan.modulus:
        raise InputError("value", "outside the range", f"0 … 2^{plan.levels} − 1")
    tables, messages = certified_tables(plan), list[int]()
    sums = [list(accumulate(law)) for law in (tables.even, tables.odd)]
    junk_sums = list(accumulate(tables.any_parity))
    for level in range(plan.levels):
        above = 1 << (plan.levels - level - 1)
        is_junk = uniform_integer(tables.whole, bits) < tables.junk
        fitting = bisect_right(sums[value & 1], uniform_integer(tables.whole, bits))
        any_number = bisect_right(junk_sums, uniform_integer(tables.whole, bits))
        anything = uniform_integer(above, bits)
        ones = any_number if is_junk else fitting
        value = anything if is_junk else (value - ones) // 2 % above
        messages += [2 * level + 1] * ones
        messages += [2 * level] * (plan.width - ones)
    return messages


def read(heap: Iterable[int], contributors: int, plan: RadixPlan) -> int:
    """Give Σ 2^l K_l mod 2^L of the messages of so many parties.

    Raises
    ------
    MalformedMessageError
        If the heap has not exactly d messages of each level a party. Whose fault it is
        cannot be known; no sum can be believed.
    """
    counts = [0] * (2 * plan.levels)
    for message in heap:
        if not 0 <= message < len(counts):
            raise MalformedMessageError(f"a message of no level among {plan.levels}")
        counts[message] += 1
    total, expected = 0, plan.width * contributors
    for level in range(plan.levels):
        zeros, ones = counts[2 * level], counts[2 * level + 1]
        if zeros + ones != expected:
            raise MalformedMessageError(
                f"level {level} has {zeros + ones} messages; {contributors} parties "
                f"send {expected}"
            )
        total += ones << level
    return total % plan.modulus
