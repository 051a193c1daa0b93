"""Ball arithmetic: numbers known to lie within proven bounds (python-flint's arb)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from flint import arb, ctx, fmpq

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


def scaled_floor(formula: Callable[[], Ball], shift: int, accuracy: int) -> int:
    """Give an integer v with v ≤ 2^shift · x ≤ v·(1 + 2^(−accuracy)).

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
