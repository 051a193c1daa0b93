"""Ball arithmetic: numbers known to lie within proven bounds (python-flint's arb)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
from flint import arb, ctx, fmpq
from numpy.typing import NDArray

# python-flint's working precision belongs to the process, not to the thread.
_LOCK = threading.RLock()
Ball = Any  # flint ships no types; every value of this alias is a flint.arb


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Compute with `bits` bits inside the block; no other thread interferes."""
    with _LOCK:
        before = ctx.prec
        ctx.prec = bits
        try:
            yield
        finally:
            ctx.prec = before


def ball(value: Fraction | int) -> Ball:
    """Enclose a rational at the working precision."""
    number = Fraction(value)
    return arb(fmpq(number.numerator, number.denominator))


def one_minus_exp(rate: Ball) -> Ball:
    """Enclose 1 − e^{−rate} without cancellation."""
    return -(-rate).expm1()


def scaled_floor(formula: Callable[[], Ball], shift: int, accuracy: int) -> int:
    """Return an integer v with v ≤ 2^shift · x ≤ v·(1 + 2^(−accuracy)).

    `formula` computes an enclosure of x > 0 at the working precision; it is called
    with ever more bits until the enclosure is tight enough. v must come out at least
    2^(accuracy+1), else the shift is too small for such an accuracy and 0 is returned.
    """
    bits = accuracy + 64
    while True:
        with precision(bits):
            value = formula() * arb(2) ** shift
            if value.is_finite():
                lower, upper = _floor(value.lower()), _floor(value.upper())
                if upper < 2 ** (accuracy + 1):
                    return 0
                # +1: the floor of the upper end lies below it by less than one.
                if lower > 0 and (upper + 1 - lower) << accuracy <= lower:
                    return lower
        bits *= 2
        _limit(bits)


def _floor(exact: Ball) -> int:
    return int(exact.floor().unique_fmpz())


def nearest_double(formula: Callable[[], Ball]) -> float:
    """Round an enclosed number to the nearest double (ties aside)."""
    bits = 128
    while True:
        with precision(bits):
            value = formula()
            low, high = float(value.lower()), float(value.upper())
            if low == high:
                return low
            # Two neighbours remain when x sits at a rounding boundary; either is
            # within half a unit in the last place plus 2^-60 of it.
            if value.rel_accuracy_bits() > 113:
                return float(value.mid())
        bits *= 2
        _limit(bits)


def certainly_at_most(formula: Callable[[], Ball], bound: Fraction) -> bool:
    """Decide x ≤ bound by enclosures, refining until the answer is certain."""
    bits = 128
    while True:
        with precision(bits):
            value, limit = formula(), ball(bound)
            if value <= limit:
                return True
            if value > limit:
                return False
        bits *= 2
        _limit(bits)


def _limit(bits: int) -> None:
    if bits > 1 << 16:
        raise ArithmeticError("an enclosure did not become tight enough")


# --- Masses of a law on 0, 1, 2, … as integers with a proven relative error.
#
# Every law here follows a recurrence whose terms are positive (where it is not, the law
# says so and pays with guard bits). Then rounding down at every step keeps a lower
# bound, and the relative errors only add up: after `steps` steps of at most `ROUNDINGS`
# floors of numbers ≥ 2^guard, the true mass lies in [m, m·(1 + 2^(−accuracy))] for
#
#     accuracy = guard − ⌈log₂(steps · ROUNDINGS)⌉ − 2.
#
# Big integers do this five times faster than balls, and a reader can check it by hand.


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
        """Return c_k = ⌊2^w F(k)⌋ for k = 0 … first k with c_k = 2^w − 1.

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
        if lower[-1] < last or lower != _cap(upper, last):
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


def _cap(values: list[int], last: int) -> list[int]:
    """Replace what exceeds `last`: F < 1, so its floor is at most 2^w − 1."""
    end = len(values)
    while end and values[end - 1] > last:
        end -= 1
    return values[:end] + [last] * (len(values) - end)


def accuracy_after(steps: int, guard: int) -> int:
    """Return the proven accuracy in bits after a number of steps."""
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
