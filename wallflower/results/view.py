"""A run's result in the terminal, and its numbers in the unit of the outcomes.

The journal keeps numbers in [0, 1], as they were summed. They are converted here, so
that a mean, an interval and a difference read the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wallflower.marks import mark_of
from wallflower.output import console, page, print_table, print_text, table
from wallflower.policy_text import describe_intervals
from wallflower.protocol.numbers import counted
from wallflower.protocol.privacy.sentences import percent
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.protocol.rewards.seeded import TEST_MODE
from wallflower.results.arrivals import describe_seats
from wallflower.results.comparisons import describe_difference, describe_lift, judge
from wallflower.results.scale import Scale, place_in_unit, scale_for
from wallflower.strategy.bandit.policy import ArmView, Ending
from wallflower.strategy.store.entries import DEALING
from wallflower.strategy.store.losses import describe_findings, describe_losses

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wallflower.results.result import RunResult


_BAR_WIDTHS = ((100, 30), (84, 14))  # columns of the terminal, columns of the bar
_NARROW = 72  # columns below which the table has no room to spare
_LONGEST_IN_CELLS = 4  # characters of a unit; a longer one stands above the table
_MOST_BLAMED = 10  # the latest; --format json has all


def bar_width(columns: int) -> int:
    """Return the room that a terminal has for bars; 0 where only the numbers fit.

    Examples
    --------
    >>> bar_width(200), bar_width(90), bar_width(60)
    (30, 14, 0)
    """
    return next((width for least, width in _BAR_WIDTHS if columns >= least), 0)


def bar(
    lower: float, upper: float, estimate: float | None, width: int, mark: str = "●"
) -> str:
    """Draw an interval within [0, 1] with its estimate.

    Examples
    --------
    >>> bar(0.2, 0.6, 0.4, 10)
    '··━━●━····'
    """
    last = width - 1
    cells = ["·"] * width
    start, end = (round(min(max(place, 0.0), 1.0) * last) for place in (lower, upper))
    cells[start : end + 1] = "━" * (end + 1 - start)
    if estimate is not None:
        cells[round(min(max(estimate, 0.0), 1.0) * last)] = mark
    return "".join(cells)


def scale_of(views: Sequence[ArmView]) -> Scale:
    """Return the scale on which the intervals of these arms are drawn."""
    return scale_for([view.upper for view in views])


def headings(bars: int, measured: RewardRange, scale: Scale) -> Sequence[str]:
    """Return the headings of the arms' table, with bars of this width or none."""
    low, high = (place_in_unit(place, measured) for place in (0.0, scale.top))
    room = max(bars - len(low), len(high) + 1)
    drawn = (f"{low}{high:>{room}}",) if bars else ()
    return ("arm", "users", "mean", "interval", *drawn, "")


def arm_cells(
    name: str,
    view: ArmView,
    winner: bool,
    *,
    bars: int,
    measured: RewardRange,
    scale: Scale,
    racing: str = "in the race",
    kept: bool = False,
) -> Sequence[RenderableType]:
    """Return one arm's row: name, users, estimate, interval, bar, status.

    `racing` is the status of an arm that is not out; `kept` marks a control that goes
    on getting people.
    """
    from rich.text import Text

    estimate, mark = view.estimate, mark_of(view.arm)
    if winner:
        status = "best"
    elif view.active:
        status = "in the race"
    elif view.retired:
        status = f"retired after round {view.eliminated_in}"
    else:
        status = f"out in round {view.eliminated_in}{', kept' if kept else ''}"
    drawn = (
        view.lower / scale.top,
        view.upper / scale.top,
        None if estimate is None else estimate / scale.top,
    )
    return (
        Text.assemble((f"{mark.glyph} ", mark.colour), name),
        count_people(view.users, view.asked),
        "–" if estimate is None else _fit(measured.format_mean(estimate), measured),
        _fit(measured.format_interval(view.lower, view.upper), measured),
        *((Text(bar(*drawn, bars, mark.glyph), mark.colour),) if bars else ()),
        status,
    )


def count_people(users: int, asked: int) -> str:
    """Return who is in an arm's sums, and of how many where somebody is in none."""
    return f"{users:,}" if users == asked else f"{users:,} of {asked:,}"


def describe_long_unit(measured: RewardRange) -> str:
    """Return the unit where it is too long for the cells of a table, else nothing."""
    long = len(measured.unit) > _LONGEST_IN_CELLS
    return f"; means in {measured.unit}" if long else ""


def _fit(number: str, measured: RewardRange) -> str:
    """Return the text of a cell: with the unit, if that is short."""
    return number if describe_long_unit(measured) else measured.with_unit(number)


def print_differences(result: RunResult) -> None:
    """Write every arm's difference to control and to the leader, and the lifts."""
    out, compared = page(), result.comparisons()
    if compared is None:
        return
    measured, names = compared.measured, result.config.experiment.arms
    unit = f", in {measured.unit}" * bool(measured.unit)
    tables = []
    if compared.control is not None:
        tables.append(("control", compared.control, compared.to_control))
    if compared.leader != compared.control:
        best = "best" if result.winner else "highest estimate"
        tables.append((best, compared.leader, compared.to_leader))
    for role, other, rows in tables:
        headings = (f'less "{other}" ({role}){unit}', "difference", "lift", "")
        cells = [
            (
                one.arm,
                describe_difference(one, measured),
                describe_lift(one),
                judge(one, compared.margin, to_leader=role != "control"),
            )
            for one in rows
        ]
        print_table(out, headings, cells, [names.index(one.arm) for one in rows])
    print_text(out, f"differences: {compared.describe_level()}", "dim")


def print_result(result: RunResult) -> None:
    """Write the final table, the numbers and the sentence to stdout."""
    out = console()
    bars = bar_width(out.width)
    if result.config.test_mode:
        print_text(out, TEST_MODE, "bold reverse")
    arms, measured = result.config.experiment.arms, result.config.reward_range
    title = f"{result.config.experiment.name} ({result.run_id})"
    title += describe_long_unit(measured)
    views = result.last.views if result.last else ()
    scale = scale_of(views)
    columns = headings(bars, measured, scale)
    view = table(*columns, title=title, narrow=out.width < _NARROW)
    for column in (view.columns[0], view.columns[-1]):  # words may fold, numbers not
        column.no_wrap, column.overflow = False, "fold"
    for row in views:
        name = arms[row.arm]
        stated, equal = result.config.experiment, result.finished == Ending.EQUAL
        cells = arm_cells(
            name,
            row,
            name == result.winner,
            bars=bars,
            measured=measured,
            scale=scale,
            racing="equal" if equal else "in the race",
            kept=stated.keep_control and name == stated.control,
        )
        view.add_row(*cells)
    out.print(view)
    print_differences(result)
    if result.last:
        chance = percent(result.config.experiment.failure_probability)
        policy, missing = result.config.policy.name, result.missing.missing > 0
        words = describe_intervals(
            policy, chance, missing=missing, arriving=bool(result.seats)
        )
        print_text(out, f"interval: {words}", "dim")
        if any(row.users != row.asked for row in result.last.views):
            text = "users: people in the arm's sums, of those who were asked."
            print_text(out, text, "dim")
    lost = sum(result.lost.values())
    asked = f", under way {result.under_way:,}" if result.under_way else ""
    print_text(
        out,
        f"{counted(result.rounds, 'round')}, {counted(result.cohorts, 'cohort')} "
        f"({result.void} void, {result.open} under way); users "
        f"invited {result.invited:,}, answered {result.answered:,}{asked}, lost "
        f"{lost:,}{': ' + describe_losses(result.lost) if lost else ''}",
    )
    if result.seats:
        print_text(out, describe_seats(result.seats, result.missing.rates))
    for cohort_id, reason, findings in result.blame[-_MOST_BLAMED:]:
        done = "dealt" if cohort_id.startswith(DEALING) else "summed"
        how = "void" if reason else done
        if reason and all(one.word != reason for one in findings):
            how = f"void, {reason}"  # where nothing else gives it
        print_text(out, f"{cohort_id} ({how}): {describe_findings(findings)}")
    out.print()
    print_text(out, result.outcome())
    print_text(out, result.summary())
    print_text(out, f"Head of the record: {result.head}")
