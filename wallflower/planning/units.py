"""A plan's differences and means in the unit of the outcomes.

Plans are made of numbers in [0, 1]. Where a file states the range and unit of its
outcomes, people ask and read in the unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from wallflower.protocol.errors import InputError
from wallflower.protocol.numbers import exact, round_up
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.strategy.config import ExperimentConfig

USUAL_GAPS = (Fraction(1, 5), Fraction(1, 10), Fraction(1, 20))


@dataclass(frozen=True, slots=True)
class Question:
    """Gaps to be told apart and the mean of the other arms, as parts of the range."""

    gaps: tuple[Fraction, ...]
    base_rate: Fraction


def read_gaps(
    measured: RewardRange,
    gaps: Sequence[object],
    lifts: Sequence[object],
    base_rate: object | None,
    expected: Fraction | None = None,
) -> Question:
    """Read gaps, lifts and a base rate, the first and last of them in the unit.

    Without a base rate it is the `expected` one, or the middle of the range.
    """
    width = measured.high - measured.low
    usual = (measured.low + measured.high) / 2 if expected is None else expected
    mean = usual if base_rate is None else exact("base-rate", base_rate)
    if not measured.low < mean < measured.high:
        low, high = measured.ends
        allowed = measured.with_unit(f"between {low} and {high}")
        raise InputError("base-rate", base_rate, allowed)
    found = [exact("gap", text) for text in gaps]
    found += [mean * exact("lift", text) for text in lifts]
    for gap in found:
        if not 0 < gap <= width:
            allowed = f"above 0 and at most {measured.with_unit(f'{float(width):,g}')}"
            raise InputError("gap", float(gap), allowed)
    parts = tuple(gap / width for gap in found)
    return Question(parts or USUAL_GAPS, to_part(mean, measured))


def expected_base_rate(config: ExperimentConfig) -> Fraction | None:
    """Return what a file expects of control, or of its worst arm, in the unit.

    A file without means expects nothing; a mean at an end of the range leaves no room.
    """
    if config.rewards is None or not config.rewards.means:
        return None
    means, control = config.rewards.means, config.experiment.control_arm
    mean = Fraction(str(min(means) if control is None else means[control]))
    measured = config.reward_range
    return mean if measured.low < mean < measured.high else None


def to_part(mean: Fraction, measured: RewardRange) -> Fraction:
    """Return the exact place in [0, 1] of a mean in the unit."""
    return (mean - measured.low) / (measured.high - measured.low)


def lowest_lifted(measured: RewardRange) -> Fraction:
    """Return the end above which lifts make sense: they are relative to a mean above 0.

    A range that ends at 0 or below has no such means and is refused.
    """
    if measured.high <= 0:
        allowed = "one that reaches above 0, as a lift is relative to a mean above 0"
        raise InputError("range", measured, allowed)
    return max(measured.low, Fraction(0))


def describe_gap(gap: Fraction | float, measured: RewardRange) -> str:
    """Return a difference of means as it was asked for, in the unit."""
    if measured.is_default:
        return f"{float(gap):g}"
    return measured.with_unit(f"{measured.difference(float(gap)):,.12g}")


def describe_mean(part: Fraction, measured: RewardRange) -> str:
    """Return a mean as it was stated, in the unit."""
    if measured.is_default:
        return f"{float(part):g}"
    return measured.with_unit(f"{measured.mean(float(part)):,.12g}")


def round_gap_up(gap: float, measured: RewardRange) -> str:
    """Return at least two digits of a difference, rounded up, in the unit.

    What is shown is told apart, not something a little smaller.
    """
    shown = measured.difference(gap)
    digits = 1 - math.floor(math.log10(shown)) if shown > 0 else 2
    least = 2 if measured.is_default else 0
    return measured.with_unit(round_up(shown, max(least, digits)))


def describe_clipping(measured: RewardRange) -> str:
    """Say what becomes of outcomes outside the range, and what is compared then."""
    return (
        f"Outcomes count from {measured}. Where one lies outside, its node clips it to "
        "the nearer end, and the person stays in the sum. So arms are compared by the "
        f"mean of the clipped outcomes. What an arm brings beyond {measured} does not "
        "count for it. A wider range takes more people; a narrower one asks another "
        "question. Fix the range before anybody is asked (docs/scaling.md)."
    )
