"""Masses of a law on 0, 1, 2, … as integers with a proven relative error.

Every law here follows a recurrence whose terms are positive (where it is not, the law
says so and pays with guard bits). Then rounding down at every step keeps a lower bound,
and the relative errors only add up: after `steps` steps of at most `ROUNDINGS` floors
of numbers ≥ 2^guard, the true mass lies in [m, m·(1 + 2^(−accuracy))] for

    accuracy = guard − ⌈log₂(steps · ROUNDINGS)⌉ − 2.

Big integers do this five times faster than balls, and a reader can check it by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

ROUNDINGS = 8  # an upper bound on floors and rounded constants in one step


@dataclass(frozen=True, slots=True)
class Ladder:
    """Masses of 0 … length−1, scaled by 2^shift.

    ``masses[k] ≤ 2^shift · P(X = k) ≤ masses[k] · (1 + 2^(−accuracy))``.
    """

    masses: list[int]
    shift: int
    accuracy: int

    def thresholds(self, word_bits: int) -> NDArray[np.uint64] | None:
        """Give c_k = ⌊2^w F(k)⌋ for k = 0 … first k with c_k = 2^w − 1.

        None if a floor is not certain, or the ladder is too short: build a longer or
        a more accurate one.
        """
        down = self.shift - word_bits
        # F ≤ 1, so the sum of all errors is below 2^(shift − accuracy).
        slack = (1 << max(0, self.shift - self.accuracy)) + 1
        sums = list(accumulate(self.masses))
        lower = [total >> down for total in sums]
        upper = [(total + slack) >> down for total in sums]
        last = (1 << word_bits) - 1
        if lower[-1] < last or lower != _capped(upper, last):
            return None
        table = np.array(lower, dtype=np.uint64)
        return table[: int(np.searchsorted(table, np.uint64(last))) + 1]

    def head(self, index: int) -> tuple[Fraction, Fraction]:
        """Enclose F(index) = P(X ≤ index)."""
        total = sum(self.masses[: index + 1])
        unit = 1 << self.shift
        return (
            Fraction(total, unit),
            Fraction(total, unit) * (1 + Fraction(1, 1 << self.accuracy)),
        )


def _capped(values: list[int], last: int) -> list[int]:
    """Replace what exceeds `last`: F < 1, so its floor is at most 2^w − 1."""
    end = len(values)
    while end and values[end - 1] > last:
        end -= 1
    return values[:end] + [last] * (len(values) - end)


def accuracy_after(steps: int, guard: int) -> int:
    """Give the proven accuracy in bits after a number of steps."""
    return guard - (steps * ROUNDINGS).bit_length() - 2


def climb(
    attempt: Callable[[int], tuple[list[int], int] | None], guard: int, shift: int
) -> Ladder:
    """Run a recurrence with ever larger shifts until no mass falls below 2^guard.

    `attempt(shift)` gives masses and the guard bits lost to cancellation, or None if
    its first value was too small for the shift.
    """
    while True:
        outcome = attempt(shift)
        if outcome is not None:
            masses, lost = outcome
            missing = guard - min(masses).bit_length() + 1
            if missing <= 0:
                accuracy = accuracy_after(len(masses), guard) - lost
                return Ladder(masses, shift, accuracy)
            shift += missing + 8
        else:
            shift *= 2
