"""What a watched run is doing, in a label and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from wallflower.marks import mark_of
from wallflower.protocol.numbers import counted
from wallflower.results import drawing
from wallflower.results.result import ENDINGS, RunResult
from wallflower.results.under_way import OpenCohort, UnderWay

_MOST_COHORTS = 60
_UNSOUND = " Its record does not hold, so it cannot go on as it is."


@dataclass(frozen=True, slots=True)
class CohortLine:
    """One cohort under way, as it is shown."""

    name: str
    mark: Markup
    heard: int
    nodes: int
    words: str


@dataclass(frozen=True, slots=True)
class State:
    """What a run is doing now.

    Attributes
    ----------
    askable : how many people can still be asked, once nodes have said so.
    command : what to type to go on, where that is needed.
    told : events seen so far.
    seen : Unix seconds of the last sign of life, if there was one.
    """

    label: str
    tone: str  # good, open or bad
    sentence: str
    people: str
    askable: str
    command: str
    cohorts: tuple[CohortLine, ...]
    told: int
    seen: float | None


def state_of(
    now: UnderWay,
    arms: Sequence[str],
    directory: Path,
    *,
    served: bool,
    pausing: bool,
    seen: float | None,
    result: RunResult | None,
    holds: bool,
) -> State:
    """Say it; the record knows the end of a run whose events are gone.

    Of a run whose record does not hold it is not said how to go on: that is refused.
    """
    finished = now.finished or (result.finished if result is not None else None)
    label, tone, sentence = _words(now, finished, arms, served=served, pausing=pausing)
    stopped = finished is None and not served
    if stopped:
        sentence += " It goes on where it was by:" if holds else _UNSOUND
    people = now.users()
    # While a server works the events are ahead of the record; else they may lack some.
    if result is not None and not (served and now.told):
        people = (
            f"invited {result.invited:,}, answered {result.answered:,}, "
            f"lost {sum(result.lost.values()):,}"
        )
    return State(
        label=label,
        tone=tone,
        sentence=sentence,
        people=f"People {people}",
        askable=_describe_askable(result),
        command=f"wallflower resume {directory}" if stopped and holds else "",
        cohorts=()
        if stopped or finished
        else tuple(
            _line(cohort, arms) for cohort in list(now.cohorts.values())[:_MOST_COHORTS]
        ),
        told=now.told,
        seen=seen,
    )


def _describe_askable(result: RunResult | None) -> str:
    """Say how many people can still be asked by the record, or nothing."""
    if result is None or not result.askable.people:
        return ""
    return result.askable.sentence()


def _words(
    now: UnderWay,
    finished: str | None,
    arms: Sequence[str],
    *,
    served: bool,
    pausing: bool,
) -> tuple[str, str, str]:
    if finished is not None:
        why = "one arm is left" if finished == "winner" else ENDINGS.get(finished)
        return "over", "good", f"The run is over: {why or finished}."
    if not served:
        return (
            "stopped",
            "bad",
            "No server works on this run. What is finished is kept.",
        )
    if now.waiting is not None:
        wait = now.waiting
        return (
            "waits",
            "open",
            f"Waiting for nodes: {wait.present} of {wait.known} are there"
            f"{wait.why and f' ({wait.why})'}, with {wait.available:,} people "
            f"for {wait.wanted:,} wanted; the run stops after {wait.patience_s:g} s.",
        )
    stops = " It stops after this round, as it was asked." if pausing else ""
    if not now.users_of_round:
        between = f"Round {now.round} is finished." if now.round else "Nodes come in."
        return "under way", "open", f"{between}{stops}"
    active = {cohort.arm for cohort in now.cohorts.values()}
    about = f" about {counted(len(active), 'arm')}" if active else ""
    estimate = now.estimate()
    return (
        "under way",
        "open",
        f"Round {now.round}: {now.users_of_round:,} people are asked{about}"
        f"{'; ' + estimate if estimate else ''}.{stops}",
    )


def _line(cohort: OpenCohort, arms: Sequence[str]) -> CohortLine:
    stage = f"{cohort.stage}: " if cohort.stage else ""
    return CohortLine(
        arms[cohort.arm],
        drawing.legend(mark_of(cohort.arm)),
        cohort.heard,
        cohort.nodes,
        f"{stage}{cohort.heard} of {counted(cohort.nodes, 'node')} heard",
    )
