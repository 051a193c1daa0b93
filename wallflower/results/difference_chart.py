"""Differences as pictures: an interval about a line at zero, and the margin as a band.

Beside every picture stands a table row that says the same (`results.drawing`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from wallflower.marks import mark_of
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.results import drawing
from wallflower.results.comparisons import (
    Comparison,
    Comparisons,
    describe_difference,
    describe_ends,
    describe_lift,
    judge,
)

_MOST_TICKS = 5
_STEPS = (1.0, 2.0, 2.5, 5.0)


@dataclass(frozen=True, slots=True)
class SignedScale:
    """From `low`, at most 0, to `high`, at least 0, with a tick every `step`."""

    low: float
    high: float
    step: float

    @property
    def ticks(self) -> tuple[float, ...]:
        """Where the lines are."""
        count = round((self.high - self.low) / self.step)
        return tuple(self.low + self.step * number for number in range(count + 1))

    def percent(self, value: float) -> str:
        """Say how far along a value lies."""
        part = (value - self.low) / (self.high - self.low)
        return f"{100 * min(max(part, 0.0), 1.0):.2f}%"


def signed_scale(values: Sequence[float]) -> SignedScale:
    """Choose round ends that hold all values and 0.

    Examples
    --------
    >>> [round(tick, 2) for tick in signed_scale([-0.031, 0.12]).ticks]
    [-0.05, 0.0, 0.05, 0.1, 0.15]
    """
    low, high = min(0.0, *values), max(0.0, *values)
    size = 10.0 ** math.floor(math.log10(max(high - low, 1e-9) / _MOST_TICKS))
    for step in (size * factor for factor in (*_STEPS, 10.0, 20.0)):
        start = step * math.floor(low / step + 1e-9)
        end = step * math.ceil(high / step - 1e-9)
        if round((end - start) / step) <= _MOST_TICKS:
            break
    return SignedScale(start, end, step)


def charts_of(
    compared: Comparisons | None, names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return a chart of differences to control and one to the leader, each once."""
    if compared is None:
        return []
    charts = []
    if compared.to_control:
        charts.append(_chart(compared, compared.to_control, names, control=True))
    if compared.leader != compared.control:
        charts.append(_chart(compared, compared.to_leader, names, control=False))
    return charts


def _chart(
    compared: Comparisons,
    comparisons: Sequence[Comparison],
    names: Sequence[str],
    *,
    control: bool,
) -> dict[str, Any]:
    measured, margin = compared.measured, compared.margin
    ends = [end for one in comparisons for end in (one.lower, one.upper)]
    scale = signed_scale(ends if margin is None else [*ends, -margin, margin])
    rows = sorted(comparisons, key=lambda one: -(one.difference or 0.0))
    return {
        "other": compared.control if control else compared.leader,
        "control": control,
        "axis": _axis(scale, measured),
        "rows": [
            {
                "name": one.arm,
                "mark": drawing.legend(mark_of(names.index(one.arm))),
                "picture": _interval(scale, one, names.index(one.arm), margin),
                "difference": describe_difference(one, measured),
                "lift": describe_lift(one),
                "everybody": describe_ends(
                    one.lower_all_asked, one.upper_all_asked, measured
                ),
                "verdict": judge(one, margin, to_leader=not control),
            }
            for one in rows
        ],
    }


def _axis(scale: SignedScale, measured: RewardRange) -> Markup:
    parts = [
        f'<text x="{scale.percent(tick)}" y="11" text-anchor="middle">'
        f"{_number(tick)}</text>"
        for tick in scale.ticks
    ]
    return drawing.picture("axis signed", 14, parts)


def _number(tick: float) -> str:
    text = f"{tick:+,.6g}" if abs(tick) > 1e-12 else "0"
    return text.replace("-", "−")


def _interval(
    scale: SignedScale, one: Comparison, arm: int, margin: float | None
) -> Markup:
    mark, parts = mark_of(arm), []
    if margin is not None:
        low, high = -margin, margin
        width = 100 * (high - low) / (scale.high - scale.low)
        parts.append(
            f'<rect class="band" x="{scale.percent(low)}" y="0" '
            f'width="{width:.2f}%" height="26"/>'
        )
    for tick in scale.ticks:
        kind, place = "zero" if abs(tick) < 1e-12 else "grid", scale.percent(tick)
        parts.append(f'<line class="{kind}" x1="{place}" x2="{place}" y1="0" y2="26"/>')
    low_end, high_end = scale.percent(one.lower), scale.percent(one.upper)
    parts.append(
        f'<g stroke="{mark.colour}" stroke-width="2.5" stroke-linecap="round">'
        f'<line x1="{low_end}" x2="{high_end}" y1="13" y2="13"/></g>'
        f'<g stroke="{mark.colour}" stroke-width="2">'
        f'<line x1="{low_end}" x2="{low_end}" y1="8" y2="18"/>'
        f'<line x1="{high_end}" x2="{high_end}" y1="8" y2="18"/></g>'
    )
    if one.difference is not None:
        parts.append(drawing.point(scale.percent(one.difference), "13", mark, 5))
    return drawing.picture("interval", 26, parts)
