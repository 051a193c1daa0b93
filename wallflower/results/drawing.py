"""The few pictures of a page, as SVG that stretches: places are percentages.

A picture is as wide as its place and its lines, marks and letters stay as they are, so
that it reads on a phone as on paper. Every picture is beside a table that says the same
and is hidden from screen readers.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from wallflower.marks import Mark
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.results.history import ArmRow, RoundRow
from wallflower.results.scale import Scale, place_in_unit

_SHAPES = {
    "circle": '<circle r="{r}"/>',
    "square": '<rect x="-{r}" y="-{r}" width="{d}" height="{d}"/>',
    "diamond": '<path d="M0 -{w}L{w} 0L0 {w}L-{w} 0Z"/>',
    "triangle": '<path d="M0 -{w}L{w} {r}L-{w} {r}Z"/>',
}


def axis(scale: Scale, measured: RewardRange) -> Markup:
    """Write the numbers of a scale in the unit of the outcomes."""
    parts = [
        f'<text x="{scale.percent(tick)}" y="11" text-anchor="middle">'
        f"{place_in_unit(tick, measured)}</text>"
        for tick in scale.ticks
    ]
    return picture("axis", 14, parts)


def interval(scale: Scale, row: ArmRow, mark: Mark, *, best: bool) -> Markup:
    """Draw one arm's interval and estimate."""
    parts = [_tick(scale, tick) for tick in scale.ticks]
    low, high = scale.percent(row.lower), scale.percent(row.upper)
    parts.append(
        f'<g stroke="{mark.colour}" stroke-width="2.5" stroke-linecap="round"'
        f"{'' if row.active else ' stroke-dasharray=' + chr(34) + '1 5' + chr(34)}>"
        f'<line x1="{low}" x2="{high}" y1="13" y2="13"/></g>'
        f'<g stroke="{mark.colour}" stroke-width="2">'
        f'<line x1="{low}" x2="{low}" y1="8" y2="18"/>'
        f'<line x1="{high}" x2="{high}" y1="8" y2="18"/></g>'
    )
    if row.estimate is not None:
        place = scale.percent(row.estimate)
        if best:
            parts.append(f'<circle class="halo" cx="{place}" cy="13" r="9"/>')
        parts.append(point(place, "13", mark, 5))
    return picture("interval", 26, parts)


def shrinking(scale: Scale, rows: Sequence[ArmRow], mark: Mark, rounds: int) -> Markup:
    """Draw one arm's interval after each of these rounds, and a cross where it fell."""

    def height(value: float) -> str:
        return f"{100 - 92 * min(max(value / scale.top, 0.0), 1.0) - 4:.2f}%"

    parts = [
        f'<line class="grid" x1="0" x2="100%" y1="{height(t)}" y2="{height(t)}"/>'
        for t in (0.0, scale.top)
    ]
    for row in rows:
        x = f"{100 * (row.round - 0.5) / max(1, rounds):.2f}%"
        parts.append(
            f'<line class="span" x1="{x}" x2="{x}" y1="{height(row.lower)}" '
            f'y2="{height(row.upper)}" stroke="{mark.colour}"/>'
        )
        if row.estimate is None:
            continue
        place = height(row.estimate)
        parts.append(_cross(x, place) if row.fell else point(x, place, mark, 3.5))
    return picture("shrinking", 76, parts)


def durations(rows: Sequence[RoundRow]) -> dict[int, Markup]:
    """Draw every finished round's time as a bar of one scale."""
    longest = max((row.seconds or 0.0 for row in rows), default=0.0) or 1.0
    return {
        row.round: picture(
            "bar", 10, [_bar(0.0, (row.seconds or 0.0) / longest, "time")]
        )
        for row in rows
    }


def parts_of(whole: int, parts: Sequence[tuple[str, int]]) -> Markup:
    """Draw how a number is made up, as one bar of classes and counts."""
    drawn, start = [], 0.0
    for kind, count in parts:
        share = count / whole if whole else 0.0
        drawn.append(_bar(start, share, kind))
        start += share
    return picture("bar", 10, drawn)


def legend(mark: Mark) -> Markup:
    """Draw an arm's mark beside its name."""
    return Markup(  # noqa: S704 (numbers and our own words only)
        '<svg class="mark" width="14" height="14" aria-hidden="true" '
        f'focusable="false">{point("7", "7", mark, 5)}</svg>'
    )


def picture(kind: str, height: int, parts: Sequence[str]) -> Markup:
    """Put parts together as a picture of a height."""
    return Markup(  # noqa: S704 (numbers and our own words only)
        f'<svg class="{kind}" width="100%" height="{height}" aria-hidden="true" '
        f'focusable="false">{"".join(parts)}</svg>'
    )


def _tick(scale: Scale, tick: float) -> str:
    place = scale.percent(tick)
    kind = "zero" if tick == 0 else "grid"
    return f'<line class="{kind}" x1="{place}" x2="{place}" y1="0" y2="26"/>'


def _bar(start: float, share: float, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{100 * start:.2f}%" y="0" '
        f'width="{100 * share:.2f}%" height="10" rx="1.5"/>'
    )


def point(x: str, y: str, mark: Mark, size: float) -> str:
    """Draw an arm's mark at a place."""
    shape = _SHAPES[mark.shape].format(r=size, d=2 * size, w=size * 1.3)
    return (
        f'<svg x="{x}" y="{y}" overflow="visible"><g class="point" '
        f'fill="{mark.colour}">{shape}</g></svg>'
    )


def _cross(x: str, y: str) -> str:
    return (
        f'<svg x="{x}" y="{y}" overflow="visible">'
        '<path class="cross" d="M-4.5 -4.5L4.5 4.5M4.5 -4.5L-4.5 4.5"/></svg>'
    )
