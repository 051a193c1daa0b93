"""The page a person reads: one HTML file, no script, no network.

Three readers, in this order: who decides (which one, may I stop?), who answers for the
people (what was promised, is it true?), who runs it (is it healthy?). Words stand
before numbers before pictures, and every picture beside a table of the same.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from wallflower.marks import mark_of
from wallflower.output import data_frame
from wallflower.policy_text import describe_intervals
from wallflower.protocol.files.sections import one_of
from wallflower.protocol.numbers import counted
from wallflower.protocol.privacy.sentences import percent
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.results import drawing
from wallflower.results.cohorts import UNDER_WAY, CohortRow
from wallflower.results.comparisons import Comparisons
from wallflower.results.difference_chart import charts_of
from wallflower.results.history import (
    TABLES,
    ArmRow,
    History,
    flat_table,
    read_history,
)
from wallflower.results.result import RunResult
from wallflower.results.run_folder import find_run, ledger_checks
from wallflower.results.scale import Scale, place_in_unit, scale_for
from wallflower.results.statements import REASONS, annex_of, describe_end, verdict
from wallflower.results.view import count_people
from wallflower.strategy.run.verify import verify
from wallflower.strategy.store.entries import VOID
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.losses import describe_findings
from wallflower.strategy.store.run_store import is_held
from wallflower.version import __version__

if TYPE_CHECKING:
    import pandas

_ROOM = 2.0  # for the intervals of earlier rounds, in those of the last
_MOST_VOID = 50  # the latest; `wallflower export` has all
_STEPS = {
    "resumed": "The run was resumed in round {}.",
    "paused": "The run was paused before round {}.",
    "waiting": "Round {} waited for nodes in vain; the run stopped.",
}


def fragment(template: str, shown: Mapping[str, Any]) -> str:
    """Write one template: the whole page (``report.html``), or a part of it."""
    return _environment().get_template(template).render(**shown)


def content(journal: Journal) -> dict[str, Any]:
    """Gather all that is shown; a record that does not verify gets no verdict.

    Raise JournalError for an altered record of which nothing can be drawn.
    """
    try:
        return _gather(journal)
    except (LookupError, ValueError, TypeError, ArithmeticError):
        journal.check_chain()
        raise


def _gather(journal: Journal) -> dict[str, Any]:
    history = read_history(journal)
    checks = (*verify(journal), *ledger_checks(journal))
    holds = all(check.holds for check in checks)
    compared = history.result.comparisons() if holds else None
    return {
        "history": history,
        "result": history.result,
        "config": history.result.config,
        "canonical": history.result.config.canonical(),
        "checks": checks,
        "holds": holds,
        "verdict": verdict(history, checks, running=is_held(journal.run_dir)),
        "arms": arms_of(
            history.arms,
            history.result.config.experiment.arms,
            history.result.winner if holds else None,
            history.result.config.reward_range,
        ),
        "compared": compared,
        "charts": charts_of(compared, history.result.config.experiment.arms),
        "measured": history.result.config.reward_range,
        "annex": annex_of(journal, history.result),
        "rates": history.result.missing.rates,
        "by_arm": _by_arm(history),
        "void": [row for row in history.cohorts if row.state == VOID][-_MOST_VOID:],
        "steps": [
            (step.at, _STEPS[step.kind].format(step.subject)) for step in history.steps
        ],
        "version": __version__,
        "style": _style(),
        "drawing": drawing,
    }


def arms_of(
    every: Sequence[ArmRow],
    names: Sequence[str],
    winner: str | None,
    measured: RewardRange,
) -> list[dict[str, Any]]:
    """Return every arm with its rows and pictures, the highest estimate first."""
    rounds = len({row.round for row in every})
    scale = scale_for([row.upper for row in every[-len(names) :]])
    whole = _scale_of_rounds(every[-len(names) :])
    arms: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        rows = [row for row in every if row.arm == name]
        if not rows:
            continue
        mark, last = mark_of(number), rows[-1]
        best = name == winner
        fell = next((row for row in rows if row.fell), None)
        shown = _rows_with_people(rows)
        arms.append(
            {
                "name": name,
                "last": last,
                "rows": shown,
                "best": best,
                "fell": fell,
                "missing": last.asked - last.users,
                "why": describe_end(last, names, measured),
                "mark": drawing.legend(mark),
                "interval": drawing.interval(scale, last, mark, best=best),
                "shrinking": drawing.shrinking(whole, shown, mark, rounds),
                "axis": drawing.axis(scale, measured),
                "drawn": measured.with_unit(
                    f"from {place_in_unit(0.0, measured)} to "
                    f"{place_in_unit(whole.top, measured)}"
                ),
                "cut": any(row.upper > whole.top for row in every),
                "rounds": rounds,
            }
        )
    return sorted(
        arms, key=lambda arm: (not arm["best"], -(arm["last"].estimate or 0.0))
    )


def _rows_with_people(rows: Sequence[ArmRow]) -> list[ArmRow]:
    """Return the rounds until an arm fell, and those in which it was asked later.

    A control that is kept is asked until the end.
    """
    before = [0, *(row.asked for row in rows)]
    return [
        row
        for row, asked in zip(rows, before, strict=False)
        if row.active or row.fell or row.asked > asked
    ]


def _scale_of_rounds(last: Sequence[ArmRow]) -> Scale:
    """Choose the scale of all rounds by where they led, not by the widest interval.

    The first intervals hold nearly everything; on their scale no later one is seen.
    """
    seen = [row.estimate or 0.0 for row in last]
    return scale_for([*seen, *(_ROOM * row.upper for row in last if row.active)])


def _by_arm(history: History) -> list[dict[str, Any]]:
    """Count people by arm: invited, answered, lost and why."""
    counted = []
    for number, name in enumerate(history.result.config.experiment.arms):
        rows = [row for row in history.cohorts if row.arm == name]
        invited = sum(row.invited for row in rows)
        answered = sum(row.answered for row in rows)
        losses: Counter[str] = Counter()
        for row in rows:
            losses.update(row.losses)
        under_way = losses.pop(UNDER_WAY, 0)
        counted.append(
            {
                "name": name,
                "mark": drawing.legend(mark_of(number)),
                "invited": invited,
                "answered": answered,
                "lost": losses.total(),
                "ended": invited - under_way,
                "losses": losses.most_common(),
                "bar": drawing.parts_of(
                    invited, [("answered", answered), ("lost", losses.total())]
                ),
            }
        )
    return counted


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("wallflower.results", "templates"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        count=lambda number: "–" if number is None else f"{number:,}",
        mean=lambda value, measured: "–" if value is None else measured.describe(value),
        moment=_moment,
        clock=_clock,
        duration=_duration,
        reason=lambda word: REASONS.get(word, word.replace("-", " ")),
        blamed=describe_findings,
        chance=_chance,
        percent=_percent,
    )
    environment.globals["describe_intervals"] = describe_intervals
    environment.globals["count_people"] = count_people
    return environment


def _percent(part: Fraction) -> str:
    """Keep the sign on the line of its number."""
    return percent(part).replace(" ", "\N{NO-BREAK SPACE}")


def _style() -> Markup:
    sheet = resources.files("wallflower.results") / "templates" / "page.css"
    return Markup(sheet.read_text(encoding="utf-8"))  # noqa: S704 (our own file)


def _moment(at: float) -> str:
    """Write a time so that it means the same everywhere."""
    when = datetime.datetime.fromtimestamp(at, datetime.UTC)
    return f"{when.day} {when:%b %Y, %H:%M} UTC"


def _clock(at: float) -> str:
    return f"{datetime.datetime.fromtimestamp(at, datetime.UTC):%H:%M:%S} UTC"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "not finished"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _chance(p_value: float) -> str:
    return f"{p_value:.2f}" if p_value >= 0.01 else f"{p_value:.1g}"


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A run for notebooks: typed rows, pandas where it is there, the page as a cell.

    Attributes
    ----------
    path : its directory.
    history : everything the journal tells, as typed rows.
    """

    path: Path
    history: History

    @property
    def result(self) -> RunResult:
        """What it has come to."""
        return self.history.result

    @property
    def rounds(self) -> tuple[ArmRow, ...]:
        """Every arm after every round, in the unit of the outcomes."""
        measured = self.result.config.reward_range
        return tuple(
            dataclasses.replace(
                row,
                estimate=None if row.estimate is None else measured.mean(row.estimate),
                lower=measured.mean(row.lower),
                upper=measured.mean(row.upper),
            )
            for row in self.history.arms
        )

    @property
    def differences(self) -> Comparisons | None:
        """Every arm beside control and beside the leader, in the unit; see there."""
        return self.result.comparisons()

    @property
    def cohorts(self) -> tuple[CohortRow, ...]:
        """Every attempt at a sum."""
        return self.history.cohorts

    def to_pandas(self, table: str = "rounds") -> pandas.DataFrame:
        """Return ``rounds``, ``cohorts`` or ``differences`` as a data frame."""
        one_of("table", table, TABLES)
        return data_frame(flat_table(self.history, table))

    def __repr__(self) -> str:
        result = self.result
        state = result.finished or "not finished"
        if result.winner is not None:
            arms = counted(len(result.config.experiment.arms), "arm")
            state = f'"{result.winner}" is the best of {arms}'
        return (
            f"Run({str(self.path)!r}: {state}, {counted(result.rounds, 'round')}, "
            f"{counted(result.answered, 'user')})"
        )

    def _repr_html_(self) -> str:
        """Show the report in a notebook's cell, apart from the notebook's styles."""
        with Journal.read(self.path) as journal:
            page = fragment("report.html", content(journal))
        return (
            f'<iframe srcdoc="{html.escape(page)}" sandbox title="Wallflower report" '
            'style="width: 100%; height: 42rem; border: 0"></iframe>'
        )


def load_run(path: Path | str) -> Run:
    """Read a run; an altered record is refused.

    Parameters
    ----------
    path : Path or str
        The run's directory, or its id below ``runs/``.
    """
    directory = find_run(str(path))
    with Journal.read(directory) as journal:
        journal.check_whole()
        return Run(directory, read_history(journal))
