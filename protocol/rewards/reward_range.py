"""The range in which outcomes are measured: part of the question, fixed beforehand.

Sums are made of numbers in [0, 1]. A node maps each outcome there, low end to 0 and
high end to 1, and clips what lies outside. Results are mapped back and printed in the
unit. Clipping changes what is compared: the mean of the clipped outcomes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from wallflower.protocol.errors import InputError
from wallflower.protocol.numbers import exact

Doubles = npt.NDArray[np.float64]

LONGEST_UNIT = 20
_SIGNIFICANT = 4  # digits of the width of a range that a mean is printed with


@dataclass(frozen=True, slots=True)
class RewardRange:
    """Lowest and highest outcome that count in full, and the unit of both.

    Examples
    --------
    >>> euros = RewardRange(Fraction(0), Fraction(200), "€")
    >>> euros.to_fraction(50), euros.to_fraction(-3), euros.to_fraction(1e9)
    (0.25, 0.0, 1.0)
    >>> euros.describe(0.25), euros.describe_difference(0.01), str(euros)
    ('50.00 €', '2.00 €', '0 to 200 €')
    """

    low: Fraction = Fraction(0)
    high: Fraction = Fraction(1)
    unit: str = ""

    def __post_init__(self) -> None:
        low, high = exact("range", self.low), exact("range", self.high)
        if not float(low) < float(high):
            given = f"[{_number(low)}, {_number(high)}]"
            raise InputError("range", given, "two numbers, the lower one first")
        unit = self.unit
        if len(unit) > LONGEST_UNIT or not unit.isprintable() or unit != unit.strip():
            allowed = f"at most {LONGEST_UNIT} printable characters, no space around"
            raise InputError("unit", repr(unit[: 2 * LONGEST_UNIT]), allowed)

    @property
    def is_default(self) -> bool:
        """Whether outcomes are plain numbers from 0 to 1."""
        return self == DEFAULT_RANGE

    @property
    def width(self) -> float:
        """The distance between the ends, in the unit."""
        return float(self.high) - float(self.low)

    def contains(self, outcome: float) -> bool:
        """Return whether an outcome counts as it is; not a number does not."""
        return float(self.low) <= outcome <= float(self.high)

    def clip(self, outcome: float) -> float:
        """Return the nearest outcome within the range."""
        return min(max(outcome, float(self.low)), float(self.high))

    def to_fraction(self, outcome: float) -> float:
        """Return the place of an outcome in [0, 1], clipped."""
        return (self.clip(outcome) - float(self.low)) / self.width

    def to_fractions(self, outcomes: Doubles) -> Doubles:
        """Return the place of every outcome in [0, 1], clipped; NaN stays NaN."""
        low = float(self.low)
        clipped = np.clip(outcomes, low, float(self.high))
        return np.asarray((clipped - low) / self.width)

    def mean(self, fraction: float) -> float:
        """Return a mean of numbers in [0, 1] in the unit."""
        return float(self.low) + self.width * fraction

    def means(self, fractions: Doubles) -> Doubles:
        """Return many means of numbers in [0, 1] in the unit."""
        return np.asarray(float(self.low) + self.width * fractions)

    def difference(self, fraction: float) -> float:
        """Return a difference of two means, or a deviation, in the unit."""
        return self.width * fraction

    @property
    def decimals(self) -> int:
        """How many decimals a mean is printed with: the same for all of a run."""
        if self.is_default:
            return 3
        return max(0, _SIGNIFICANT - math.floor(math.log10(self.width)))

    def describe(self, fraction: float) -> str:
        """Return a mean of numbers in [0, 1] as text with its unit."""
        return self.with_unit(self.format_mean(fraction))

    def describe_interval(self, lower: float, upper: float) -> str:
        """Return two ends of an interval in [0, 1] as text with their unit."""
        return self.with_unit(self.format_interval(lower, upper))

    def format_interval(self, lower: float, upper: float) -> str:
        """Return two ends of an interval as text in the unit, without its name."""
        return f"{self.format_mean(lower)} – {self.format_mean(upper)}"

    def format_mean(self, fraction: float) -> str:
        """Return a mean of numbers in [0, 1] as text in the unit, without its name."""
        return f"{self.mean(fraction):,.{self.decimals}f}"

    def describe_difference(self, fraction: float) -> str:
        """Return a difference of two means as text with its unit."""
        return self.with_unit(f"{self.difference(fraction):,.{self.decimals}f}")

    def with_unit(self, text: str) -> str:
        """Return a number's text followed by the unit, if there is one."""
        return f"{text} {self.unit}" if self.unit else text

    @property
    def ends(self) -> tuple[str, str]:
        """The text of both ends, without the unit."""
        return _number(self.low), _number(self.high)

    def as_json(self) -> dict[str, Any]:
        """Return range and unit of what is shown; nothing where none is stated."""
        if self.is_default:
            return {}
        return {"range": [float(self.low), float(self.high)], "unit": self.unit}

    def __str__(self) -> str:
        """Return both ends and the unit, as people agree to them."""
        return self.with_unit(" to ".join(self.ends))


def _number(value: Fraction) -> str:
    """Write an end of the range as a decimal where that is short, else exactly."""
    text = f"{float(value):,.12g}"
    return text if Fraction(text.replace(",", "")) == value else str(value)


DEFAULT_RANGE = RewardRange()
