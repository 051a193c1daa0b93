"""The page a person reads: one HTML file, no script, no network.

Three readers, in this order: who decides (which one, may I stop?), who answers for the
people (what was promised, is it true?), who runs it (is it healthy?). Words stand
before numbers before pictures, and every picture beside a table of the same.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from wallflower.marks import mark_of
from wallflower.protocol.numbers import counted, round_up
from wallflower.protocol.privacy.sentences import percent, small
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.results import drawing
from wallflower.results.annex import annex_of
from wallflower.results.by_hand import RetiredArm, listed, winner_meaning
from wallflower.results.cohort_rows import UNDER_WAY
from wallflower.results.history import ArmRow, History, read_history
from wallflower.results.hosted_ledger import ledger_checks
from wallflower.results.missing import MissingPeople
from wallflower.results.result import ENDINGS, RunResult
from wallflower.results.undecided import index_outcome
from wallflower.results.units import reason_in_unit
from wallflower.results.view import count_people
from wallflower.strategy.bandit.spec import intervals_in_words, purpose
from wallflower.strategy.run.checks import Check
from wallflower.strategy.run.common_nodes import LEFT_OUT
from wallflower.strategy.run.verify import verify
from wallflower.strategy.store import blame
from wallflower.strategy.store.entries import VOID
from wallflower.strategy.store.journal import Journal
from wallflower.version import __version__

LARGEST_BYTES = 300_000
_TRAILS = re.compile(r"trails arm (\d+) by (.+?) > radius (.+)")
_UNLIKELY = re.compile(
    r"trails arm (\d+) by (.+?); the chance of such sums, (.+) (\S+)"
)
_MOST_VOID = 50  # the latest; `wallflower export` has all
_STEPS = {
    "resumed": "The run was resumed in round {}.",
    "paused": "The run was paused before round {}.",
    "waiting": "Round {} waited for nodes in vain; the run stopped.",
}
REASONS = {
    "no-answer": "did not answer in time",
    "cohort-void": "answered, but the group gave no sum",
    "budget-exceeded": "had no budget left, and saw no arm",
    "node-failed": "the node failed",
    UNDER_WAY: "the round is not finished",
    "unstated": "the node did not say why",
    LEFT_OUT: "the node vanished in another arm’s group of the round",
    "server-stopped": "the server was stopped in between",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came out, in a headline, a label and sentences."""

    headline: str
    label: str
    tone: str  # good, open or bad
    sentences: tuple[str, ...]


def render(shown: Mapping[str, Any]) -> str:
    """Write the whole page of what `content` gathered."""
    return fragment("report.html", shown)


def fragment(template: str, shown: Mapping[str, Any]) -> str:
    """Write one template: the page, or a part of it."""
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
    return {
        "history": history,
        "result": history.result,
        "config": history.result.config,
        "canonical": history.result.config.canonical(),
        "checks": checks,
        "holds": holds,
        "verdict": verdict(history, checks),
        "arms": arms_of(
            history.arms,
            history.result.config.experiment.arms,
            history.result.winner if holds else None,
            history.result.config.reward_range,
        ),
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


def verdict(history: History, checks: Sequence[Check]) -> Verdict:
    """Say which arm is best, or what is known instead; never a winner so far."""
    if not all(check.holds for check in checks):
        return Verdict(
            "This record does not hold.",
            "not verified",
            "bad",
            (
                "What it says does not follow from what was written down, so nothing "
                "is concluded from it and nothing is promised. The checks that fail "
                "are listed at the end.",
            ),
        )
    result = history.result
    names = result.config.experiment.arms
    chance = f"{round_up(100 * result.risk, 2)}\N{NO-BREAK SPACE}%"
    risk = f"The chance that a better one was dropped is at most {chance}."
    if result.retired:
        risk = (
            f"For each, the chance that it fell to one that is no better is at most "
            f"{chance}."
        )
    by_hand = tuple(_by_hand(one) for one in result.retired)
    missing = result.missing
    holds = tuple(filter(None, [missing.describe(result.winner, "“”")]))
    if not history.arms:
        return _without_a_round(result, by_hand)
    fallen = [row for row in history.arms if row.fell and not row.retired]
    if result.winner is not None and result.retired and result.last is not None:
        headline, meaning = winner_meaning(
            f"“{result.winner}”", result.last.views, chance
        )
        headline = missing.qualify(headline)
        return Verdict(headline, *_decided(missing), (*holds, *by_hand, meaning))
    if result.winner is not None:
        measured = result.config.reward_range
        sentences = [_fall(row, names, measured) for row in fallen[-1:]]
        return Verdict(
            missing.qualify(f"“{result.winner}” is the best of {len(names)} arms."),
            *_decided(missing),
            (*holds, *sentences, risk, "Decided arms never come back."),
        )
    last = history.arms[-len(names) :]
    left = [f"“{row.arm}”" for row in last if row.active]
    stand = f"{len(left)} of {len(names)} arms are left."
    learnt = (
        f"Out {'is' if len(fallen) == 1 else 'are'} "
        f"{listed([f'“{row.arm}”' for row in fallen])}: {risk[0].lower()}{risk[1:]}"
        if fallen
        else "No arm could be ruled out."
        if result.decides
        else purpose(result.config.policy.name)
    )
    if result.finished is None:
        return Verdict(
            missing.qualify(
                f"Not finished: {len(left)} of {len(names)} arms are left."
            ),
            "waits for nodes" if result.waiting else "not finished",
            "open",
            (learnt, *holds, *by_hand),
        )
    if not result.decides and result.last is not None:
        headline, meaning = index_outcome(result.config, result.last.views, "“”")
        return Verdict(headline, "finished", "good", (meaning, *by_hand))
    why = ENDINGS.get(result.finished, result.finished)
    needed, stranded = result.still_needed(), result.stranded()
    return Verdict(
        missing.qualify(f"Undecided: {stand}"),
        "undecided",
        "open",
        (
            f"{listed(left)} cannot be told apart by what the people asked have "
            f"shown; the run ended because {why}.",
            *(() if stranded is None else (stranded.describe_end(),)),
            learnt,
            *holds,
            *by_hand,
            *(() if needed is None else (needed.sentence,)),
        ),
    )


def _decided(missing: MissingPeople) -> tuple[str, str]:
    """Return label and tone of a verdict; a qualified one is no plain success."""
    return ("decided", "open" if missing.qualification else "good")


def _without_a_round(result: RunResult, by_hand: tuple[str, ...]) -> Verdict:
    """Say that nothing is known yet and, where sums failed, why."""
    headline = "No round is finished yet."
    if not result.void:
        return Verdict(headline, "not finished", "open", by_hand)
    why = [f"{REASONS.get(word, word)} ({n:,})" for word, n in result.losses.items()]
    return Verdict(
        headline,
        "no sum so far",
        "bad",
        (
            f"{result.void} of {counted(result.cohorts, 'cohort')} gave no sum. Of "
            f"{result.invited:,} people asked {result.invited - result.answered:,} are "
            f"in none: {listed(why)}. Who was asked is not asked again.",
            *by_hand,
        ),
    )


def in_words(reason: str, names: Sequence[str]) -> str:
    """Put a policy's reason to drop an arm in words, with names for numbers.

    Examples
    --------
    >>> in_words("trails arm 1 by 0.1359 > radius 0.121", ["a", "b"])
    '0.1359 behind “b”, where 0.121 decides'
    """
    if found := _UNLIKELY.fullmatch(reason):
        rival = names[int(found[1])]
        chance = small(float(found[4]))
        return (
            f"{found[2]} behind “{rival}”; the chance of such sums, {found[3]} {chance}"
        )
    found = _TRAILS.fullmatch(reason)
    if found is None:
        return reason
    return f"{found[2]} behind “{names[int(found[1])]}”, where {found[3]} decides"


def _why(row: ArmRow, names: Sequence[str], measured: RewardRange) -> str:
    """Return why an arm is out; the words of a person stay as they are."""
    if row.retired:
        return row.reason
    return in_words(reason_in_unit(row.reason, measured), names)


def _fall(row: ArmRow, names: Sequence[str], measured: RewardRange) -> str:
    why = _why(row, names, measured)
    return f"The last rival, “{row.arm}”, fell in round {row.round}: {why}."


def _by_hand(one: RetiredArm) -> str:
    return f"“{one.arm}” was retired by hand before round {one.before_round}."


def arms_of(
    every: Sequence[ArmRow],
    names: Sequence[str],
    winner: str | None,
    measured: RewardRange,
) -> list[dict[str, Any]]:
    """Give every arm with its rows and pictures, the highest estimate first."""
    rounds = len({row.round for row in every})
    scale = drawing.scale_for([row.upper for row in every[-len(names) :]])
    whole = drawing.scale_for([row.upper for row in every])
    arms: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        rows = [row for row in every if row.arm == name]
        if not rows:
            continue
        mark, last = mark_of(number), rows[-1]
        best = name == winner
        fell = next((row for row in rows if row.fell), None)
        arms.append(
            {
                "name": name,
                "last": last,
                "rows": [row for row in rows if row.active or row.fell],
                "best": best,
                "fell": fell,
                "missing": last.asked - last.users,
                "why": _why(last, names, measured),
                "mark": drawing.legend(mark),
                "interval": drawing.interval(scale, last, mark, best=best),
                "shrinking": drawing.shrinking(whole, rows, mark, rounds),
                "axis": drawing.axis(scale, measured),
                "drawn": measured.with_unit(
                    f"from {drawing.place_in_unit(0.0, measured)} to "
                    f"{drawing.place_in_unit(whole.top, measured)}"
                ),
                "rounds": rounds,
            }
        )
    return sorted(
        arms, key=lambda arm: (not arm["best"], -(arm["last"].estimate or 0.0))
    )


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
        blamed=blame.in_words,
        chance=_chance,
        percent=_percent,
    )
    environment.globals["intervals_in_words"] = intervals_in_words
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
