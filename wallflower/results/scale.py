"""The scale of a picture, on pages and in the terminal: from 0 to what is there.

Conversion rates of three in a hundred would be dots at the left end of [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from wallflower.protocol.rewards.reward_range import RewardRange

_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25)


@dataclass(frozen=True, slots=True)
class Scale:
    """From 0 to `top`, a tick every `step`."""

    top: float
    step: float

    @property
    def ticks(self) -> tuple[float, ...]:
        """Where the lines are."""
        count = round(self.top / self.step)
        return tuple(round(self.step * number, 6) for number in range(count + 1))

    def percent(self, value: float) -> str:
        """Say how far along a value lies."""
        return f"{100 * min(max(value / self.top, 0.0), 1.0):.2f}%"


def scale_for(values: Sequence[float]) -> Scale:
    """Choose round ends and about five steps that hold all values.

    Examples
    --------
    >>> scale_for([0.03, 0.27]).ticks
    (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
    >>> scale_for([1.0]).top, scale_for([0.034]).top, scale_for([0.0]).top
    (1.0, 0.04, 0.001)
    """
    most = min(1.0, max(values, default=1.0))
    step = next((step for step in _STEPS if most <= 6 * step), _STEPS[-1])
    return Scale(round(step * max(1, math.ceil(most / step - 1e-9)), 6), step)


def place_in_unit(place: float, measured: RewardRange) -> str:
    """Return the number in the unit at a place of [0, 1] with few decimals.

    Examples
    --------
    >>> place_in_unit(0.3, RewardRange(Fraction(-3), Fraction(7)))
    '0'
    """
    width = measured.high - measured.low
    return f"{float(measured.low + width * Fraction(str(place))):,.12g}"
