"""A run's result in the terminal, and its numbers in the unit of the outcomes.

The journal keeps numbers in [0, 1], as they were summed. They are converted here, so
that a mean, an interval and a difference read the same everywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from wallflower.marks import mark_of
from wallflower.output import console, print_text, table
from wallflower.policy_text import describe_intervals
from wallflower.protocol.numbers import counted, round_up
from wallflower.protocol.privacy.sentences import (
    NOTHING_PROMISED,
    Promise,
    odds_factor,
    percent,
    power,
)
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.protocol.rewards.seeded import TEST_MODE
from wallflower.strategy.bandit.policy import ArmView, EliminationReason
from wallflower.strategy.store.entries import DEALING
from wallflower.strategy.store.losses import describe_findings, describe_losses

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wallflower.protocol.rewards.reward_range import RewardRange
    from wallflower.results.history import ArmRow
    from wallflower.results.result import RunResult
    from wallflower.strategy.config import ExperimentConfig


def values_in_unit(view: ArmView | ArmRow, measured: RewardRange) -> dict[str, Any]:
    """Return an arm as plain values, with mean, interval and reason in the unit."""
    values = {
        **dataclasses.asdict(view),
        "estimate": None if view.estimate is None else measured.mean(view.estimate),
        "lower": measured.mean(view.lower),
        "upper": measured.mean(view.upper),
        "reason": view.note or describe_reason(view.reason, measured),
    }
    del values["note"]
    return values


def describe_reason(reason: EliminationReason | None, measured: RewardRange) -> str:
    """Return why the sums put an arm out; an empty text where they did not.

    Examples
    --------
    >>> from fractions import Fraction
    >>> euros = RewardRange(Fraction(0), Fraction(200), "€")
    >>> describe_reason(EliminationReason(1, 0.25, radius=0.125), euros)
    'trails arm 1 by 50.00 € > radius 25.00 €'
    """
    if reason is None:
        return ""
    trails = f"trails arm {reason.rival} by {describe_gap(reason.gap, measured)}"
    if reason.radius is not None:
        return f"{trails} > radius {describe_gap(reason.radius, measured)}"
    if reason.chance is None:
        return trails
    return (
        f"{trails}; the chance of such sums, were it as good as any, is at most "
        f"{reason.chance:.2g}"
    )


def describe_gap(gap: float, measured: RewardRange) -> str:
    """Return a difference of two means in the unit, in four digits without one."""
    return f"{gap:.4g}" if measured.is_default else measured.describe_difference(gap)


_BAR_WIDTHS = ((100, 30), (84, 14))  # columns of the terminal, columns of the bar
_NARROW = 72  # columns below which the table has no room to spare
_LONGEST_IN_CELLS = 4  # characters of a unit; a longer one stands above the table
_MOST_BLAMED = 10  # the latest; --format json has all


def bar_width(columns: int) -> int:
    """Give the room that a terminal has for bars; 0 where only the numbers fit.

    Examples
    --------
    >>> bar_width(200), bar_width(90), bar_width(60)
    (30, 14, 0)
    """
    return next((width for least, width in _BAR_WIDTHS if columns >= least), 0)


def bar(
    lower: float, upper: float, estimate: float | None, width: int, mark: str = "●"
) -> str:
    """Draw an interval of [0, 1] with its estimate.

    Examples
    --------
    >>> bar(0.2, 0.6, 0.4, 10)
    '··━━●━····'
    """
    last = width - 1
    cells = ["·"] * width
    start, end = round(lower * last), round(upper * last)
    cells[start : end + 1] = "━" * (end + 1 - start)
    if estimate is not None:
        cells[round(min(max(estimate, 0.0), 1.0) * last)] = mark
    return "".join(cells)


def headings(bars: int, measured: RewardRange) -> Sequence[str]:
    """Return the headings of the arms' table, with bars of this width or none."""
    low, high = measured.ends
    room = max(bars - len(low), len(high) + 1)
    drawn = (f"{low}{high:>{room}}",) if bars else ()
    return ("arm", "users", "mean", "interval", *drawn, "")


def arm_cells(
    name: str,
    view: ArmView,
    winner: bool,
    bars: int,
    measured: RewardRange,
) -> Sequence[RenderableType]:
    """Give one arm's row: name, users, estimate, interval, bar, status."""
    from rich.text import Text

    estimate, mark = view.estimate, mark_of(view.arm)
    if winner:
        status = "best"
    elif view.active:
        status = "in the race"
    elif view.retired:
        status = f"retired after round {view.eliminated_in}"
    else:
        status = f"out in round {view.eliminated_in}"
    interval = view.lower, view.upper, estimate
    return (
        Text.assemble((f"{mark.glyph} ", mark.colour), name),
        count_people(view.users, view.asked),
        "–" if estimate is None else _fit(measured.format_mean(estimate), measured),
        _fit(measured.format_interval(view.lower, view.upper), measured),
        *((Text(bar(*interval, bars, mark.glyph), mark.colour),) if bars else ()),
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


def interval_in_words(config: ExperimentConfig, *, missing: bool) -> str:
    """Say what the intervals of a table are; `missing`: some asked are in no sum."""
    chance = percent(config.experiment.failure_probability)
    words = describe_intervals(config.policy.name, chance, missing=missing)
    return f"interval: {words}"


def summarize_promise(promise: Promise, *, rehearsal: bool, semi_honest: bool) -> str:
    """Return a promise and its condition in at most three short sentences.

    Every figure is on the safe side: of several cohorts the strictest condition is
    stated for all. `Promise.sentence` has the details.

    Parameters
    ----------
    promise : Promise
        What one person is promised.
    rehearsal : bool
        Whether one machine held everybody's outcome.
    semi_honest : bool
        Whether the server must follow the protocol.

    Examples
    --------
    >>> from wallflower.protocol.privacy.sentences import Group
    >>> promise = Promise("pure", "distributed", 1, groups=(Group(100, 80, 10, 1),))
    >>> text = summarize_promise(promise, rehearsal=False, semi_honest=True)
    >>> for sentence in text.replace(". ", ".|").split("|"):
    ...     print(sentence)
    Not even the operator can shift the odds of a guess about a person's outcome by \
more than a factor of 2.72 (ε = 1 in all).
    This holds while at most 10 % of each cohort's nodes collude, 80 % of its people \
answer honestly and the server is semi-honest.
    """
    if promise.kind == "none":
        return NOTHING_PROMISED
    sentences = [_summarize_claim(promise, rehearsal)]
    if rehearsal:
        sentences.insert(0, "Rehearsal: this machine held every outcome.")
    if condition := _summarize_condition(promise, semi_honest):
        sentences.append(condition)
    return " ".join(sentences)


def _summarize_claim(promise: Promise, rehearsal: bool) -> str:
    factor, total = odds_factor(promise.epsilon), round_up(promise.epsilon)
    often = f" for {promise.times} participations" if promise.times > 1 else " in all"
    who = {
        "server": "nobody who sees the results",
        "nobody": "nobody who reads what leaves the device",
    }.get(promise.trust, "not even the operator")
    start = f"On people's own nodes, {who} could" if rehearsal else f"{who} can"
    start = f"{start[0].upper()}{start[1:]}"
    if not promise.privacy_delta:
        return (
            f"{start} shift the odds of a guess about a person's outcome by more than "
            f"a factor of {factor} (ε = {total}{often})."
        )
    delta = power(promise.privacy_delta)
    return (
        f"{start} come to a conclusion more than {factor} times as likely as after "
        f"another outcome, {delta} added (ε = {total}, δ = {delta}{often})."
    )


def _summarize_condition(promise: Promise, semi_honest: bool) -> str:
    """Return what must be true for the promise, or nothing where nothing must be."""
    if promise.trust == "nobody":
        return ""
    if promise.trust == "server":
        return "This holds if the server, which sees every outcome, is trusted."
    # Sealed sums share one key over the whole run; the others share in every cohort.
    whole_run = promise.keys is not None
    parts = []
    if promise.trust == "shuffler":
        parts.append("the shuffler does not help the operator")
    if promise.trust != "shuffler" or promise.privacy_delta:
        parts.append(_limit_nodes(promise, whole_run))
    people = "of its people" if parts and not whole_run else "of each cohort's people"
    if promise.trust == "shuffler" and not promise.privacy_delta:
        people = "of each cohort's people"
    parts.append(f"{_honest_part(promise)} {people} answer honestly")
    if semi_honest:
        parts.append("the server is semi-honest")
    lots = [group.drawn for group in promise.groups]
    lots += [key.drawn for key in promise.keys or ()]
    chance = f" (failure chance {power(2.0**-promise.lottery_bits)})" * any(lots)
    return f"This holds while {', '.join(parts[:-1])} and {parts[-1]}{chance}."


def _honest_part(promise: Promise) -> str:
    groups = promise.groups
    most = max((Fraction(g.honest, g.people) for g in groups), default=Fraction(1))
    return "all" if most == 1 else f"{round_up(most * 100, 1)} %"


def _limit_nodes(promise: Promise, whole_run: bool) -> str:
    pairs = [(key.colluding, key.nodes) for key in promise.keys or ()]
    if not whole_run:
        pairs = [(group.colluding, group.nodes) for group in promise.groups]
    known = [Fraction(few, nodes) for few, nodes in pairs if nodes]
    least = min(known, default=promise.corrupt)
    whose = "the run's nodes" if whole_run else "each cohort's nodes"
    if not least:
        return f"none of {whose} colludes"
    return f"at most {percent(least)} of {whose} collude"


def print_result(result: RunResult) -> None:
    """Write the final table, the numbers and the sentence to stdout."""
    out = console()
    bars = bar_width(out.width)
    if result.config.test_mode:
        print_text(out, TEST_MODE, "bold reverse")
    arms, measured = result.config.experiment.arms, result.config.reward_range
    title = f"{result.config.experiment.name} ({result.run_id})"
    title += describe_long_unit(measured)
    view = table(*headings(bars, measured), title=title, narrow=out.width < _NARROW)
    for column in (view.columns[0], view.columns[-1]):  # words may fold, numbers not
        column.no_wrap, column.overflow = False, "fold"
    for row in result.last.views if result.last else ():
        name = arms[row.arm]
        view.add_row(*arm_cells(name, row, name == result.winner, bars, measured))
    out.print(view)
    if result.last:
        missing = result.missing.missing > 0
        print_text(out, interval_in_words(result.config, missing=missing), "dim")
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
