"""From y·G back to y, for y in a known window (baby steps, giant steps).

The table holds j·G for 1 ≤ j ≤ w by the first bytes of x; x is the same for j and −j,
so one look covers 2w + 1 numbers, and a window of m numbers takes m/(2w + 1) giant
steps. The table depends on nothing but the generator: it is made once per process and
grows when a wider window comes. Public data in, public data out: nothing here is
secret, and a sum that was never meant to be released never gets here.
"""

from __future__ import annotations

import math
from typing import Final

from wallflower.protocol.errors import InputError
from wallflower.protocol.secure_sum.sealed.group import (
    ORDER,
    DegenerateSumError,
    Point,
    base,
    plus_base,
    total,
)

LARGEST_WINDOW: Final = 2**42
_SMALLEST_TABLE = 256
_LARGEST_TABLE = 2**20
_KEY = slice(1, 9)  # 64 bits of x: a false hit is checked and costs one step


class _Table:
    """j·G by x, for j from 1; grows in place."""

    def __init__(self) -> None:
        self.reach = 1
        self._last = base(1)
        self._places = {bytes(self._last)[_KEY]: 1}

    def grow(self, reach: int) -> None:
        """Take in all j up to `reach`."""
        step, last, places = base(1), self._last, self._places
        for j in range(self.reach + 1, reach + 1):
            last = total((last, step)) if j > 2 else base(2)
            places[bytes(last)[_KEY]] = j
        if reach > self.reach:
            self.reach, self._last = reach, last

    def find(self, point: Point) -> int | None:
        """Give j with point = j·G and |j| ≤ reach, or None."""
        j = self._places.get(bytes(point)[_KEY])
        if j is None:
            return None
        return next((k for k in (j, -j) if base(k) == point), None)


_TABLE = _Table()


def table_reach(window: int) -> int:
    """Baby steps for a window: √(2m), as a table serves every sum of a run."""
    return min(max(_SMALLEST_TABLE, math.isqrt(2 * window)), _LARGEST_TABLE)


def decode(point: Point | None, low: int, high: int) -> int | None:
    """Give y with point = y·G and low ≤ y ≤ high, or None; infinity (None) is 0."""
    window = high - low + 1
    if not 1 <= window <= LARGEST_WINDOW:
        raise InputError("window of a sum", window, f"1 to 2^42 ({LARGEST_WINDOW})")
    if point is None:
        return 0 if low <= 0 <= high else None
    _TABLE.grow(table_reach(window))
    reach = _TABLE.reach
    # Look at `point` less the middle of each stretch of 2w + 1 numbers in turn.
    stride, middle = 2 * reach + 1, low + reach
    step, rest = base(-stride), _less(point, middle)
    while middle - reach <= high:
        j = 0 if rest is None else _TABLE.find(rest)
        if j is not None:
            return middle + j if middle + j <= high else None
        assert rest is not None
        middle += stride
        rest = _sum(rest, step)
    return None


def _sum(point: Point, other: Point) -> Point | None:
    """Add two points; None is infinity."""
    try:
        return total((point, other))
    except DegenerateSumError:
        return None


def _less(point: Point, number: int) -> Point | None:
    """point − number·G, or None for infinity."""
    if number % ORDER == 0:
        return point
    try:
        return plus_base(point, -number)
    except DegenerateSumError:
        return None
