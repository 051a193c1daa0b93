"""What a policy says of an arm, in the unit of the outcomes.

The journal keeps numbers in [0, 1], as they were summed. Whoever shows them maps them
here, so that a mean, an interval and a difference read the same everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from wallflower.protocol.rewards.reward_range import RewardRange

_DIFFERENCE = re.compile(r"(?<=^trails arm )(\d+ by )([^\s;]+)( > radius )?(\S+$)?")


def view_in_unit(view: Mapping[str, Any], measured: RewardRange) -> dict[str, Any]:
    """Return an arm's view with means, interval and reason in the unit."""
    if measured.is_default:
        return dict(view)
    estimate = view["estimate"]
    reason = view["reason"]
    return {
        **view,
        "estimate": None if estimate is None else measured.mean(estimate),
        "lower": measured.mean(view["lower"]),
        "upper": measured.mean(view["upper"]),
        "reason": reason if view["retired"] else reason_in_unit(reason, measured),
    }


def reason_in_unit(reason: str, measured: RewardRange) -> str:
    """Return a policy's reason to drop an arm with its differences in the unit.

    Examples
    --------
    >>> from fractions import Fraction
    >>> euros = RewardRange(Fraction(0), Fraction(200), "€")
    >>> reason_in_unit("trails arm 1 by 0.25 > radius 0.125", euros)
    'trails arm 1 by 50.00 € > radius 25.00 €'
    """
    if measured.is_default:
        return reason

    def describe(found: re.Match[str]) -> str:
        start, gap, between, radius = found.groups()
        shown = f"{start}{measured.describe_difference(float(gap))}"
        if not between:
            return shown
        return f"{shown}{between}{measured.describe_difference(float(radius))}"

    return _DIFFERENCE.sub(describe, reason)
