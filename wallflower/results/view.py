"""A run's result as a table with interval bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wallflower.output import console, table
from wallflower.protocol.rewards.seeded import TEST_MODE
from wallflower.strategy.record import blame
from wallflower.strategy.record.entries import DEALING
from wallflower.strategy.record.losses import in_words

if TYPE_CHECKING:
    from wallflower.results.result import RunResult

BAR_WIDTH = 30
_MOST_BLAMED = 10  # the latest; --format json has all


def bar(lower: float, upper: float, estimate: float | None, width: int) -> str:
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
        cells[round(min(max(estimate, 0.0), 1.0) * last)] = "●"
    return "".join(cells)


def counted(number: int, thing: str) -> str:
    """Count things, one of them in the singular.

    Examples
    --------
    >>> counted(1, "arm"), counted(2000, "arm")
    ('1 arm', '2,000 arms')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def arm_cells(name: str, view: Mapping[str, Any], winner: bool) -> Sequence[str]:
    """Give one arm's row: name, users, estimate, interval, bar, status."""
    estimate = view["estimate"]
    if winner:
        status = "best"
    elif view["active"]:
        status = "in the race"
    elif view["retired"]:
        status = f"retired after batch {view['eliminated_in']}"
    else:
        status = f"out in batch {view['eliminated_in']}"
    return (
        name,
        f"{view['users']:,}",
        "–" if estimate is None else f"{estimate:.3f}",
        f"{view['lower']:.3f} – {view['upper']:.3f}",
        bar(view["lower"], view["upper"], estimate, BAR_WIDTH),
        status,
    )


HEADINGS = ("arm", "users", "mean", "interval", "0" + " " * (BAR_WIDTH - 2) + "1", "")


def print_result(result: RunResult) -> None:
    """Write the final table, the numbers and the sentence to stdout."""
    out = console()
    if result.config.test_mode:
        out.print(TEST_MODE, style="bold reverse")
    arms = result.config.experiment.arms
    view = table(*HEADINGS, title=f"{result.config.experiment.name} ({result.run_id})")
    for row in result.last.views if result.last else ():
        name = arms[row["arm"]]
        view.add_row(*arm_cells(name, row, name == result.winner))
    out.print(view)
    lost = result.invited - result.answered
    out.print(
        f"{counted(result.rounds, 'round')}, {counted(result.cohorts, 'cohort')} "
        f"({result.void} void, {result.open} under way); users "
        f"invited {result.invited:,}, answered {result.answered:,}, lost {lost:,}"
        f"{': ' + in_words(result.losses) if lost else ''}"
    )
    for cohort_id, reason, findings in result.blame[-_MOST_BLAMED:]:
        done = "dealt" if cohort_id.startswith(DEALING) else "summed"
        how = f"void, {reason}" if reason else done
        out.print(f"{cohort_id} ({how}): {blame.in_words(findings)}")
    out.print()
    out.print(result.sentence())
    out.print(f"Head of the record: {result.head}")
