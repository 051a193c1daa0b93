"""A run as typed rows: every arm after every round, every cohort, every step.

Read from the journal alone, so that pages, exports and notebooks all tell the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wallflower.results.cohort_rows import CohortRow, cohort_rows
from wallflower.results.result import RunResult, read_result
from wallflower.strategy.store import chain
from wallflower.strategy.store.journal import Journal


@dataclass(frozen=True, slots=True)
class ArmRow:
    """One arm after one round; estimate and interval in [0, 1], as they were summed.

    `users` are in its sums, of those `asked`. `fell` marks the round in which the arm
    went out; later rows repeat where it stood.
    """

    round: int
    arm: str
    users: int
    asked: int
    estimate: float | None
    lower: float
    upper: float
    active: bool
    fell: bool
    reason: str
    retired: bool  # taken out by hand, not by the sums


@dataclass(frozen=True, slots=True)
class RoundRow:
    """A round on the clock: Unix seconds, None while it is not finished."""

    round: int
    started_at: float
    finished_at: float | None
    users: int

    @property
    def seconds(self) -> float | None:
        """From the first invitation to the decision, stops in between included."""
        return None if self.finished_at is None else self.finished_at - self.started_at


@dataclass(frozen=True, slots=True)
class Step:
    """Something an operator or an outage did: resumed, waiting, paused."""

    at: float
    kind: str
    subject: str


@dataclass(frozen=True, slots=True)
class History:
    """All that a journal tells of a run; `result` sums it up."""

    result: RunResult
    created_at: float
    ended_at: float
    entries: int
    arms: tuple[ArmRow, ...]
    cohorts: tuple[CohortRow, ...]
    rounds: tuple[RoundRow, ...]
    steps: tuple[Step, ...]
    most_asked: int  # how often the busiest person was asked

    def of_arm(self, name: str) -> tuple[ArmRow, ...]:
        """One arm, round by round."""
        return tuple(row for row in self.arms if row.arm == name)


def read_history(journal: Journal) -> History:
    """Read a whole journal as rows."""
    result, entries = read_result(journal), journal.entries()
    names = result.config.experiment.arms
    cohorts = tuple(cohort_rows(journal))
    return History(
        result=result,
        created_at=journal.created_at,
        ended_at=entries[-1].at,
        entries=len(entries),
        arms=arm_rows(_views(journal), names),
        cohorts=cohorts,
        rounds=tuple(_rounds(cohorts, entries)),
        steps=tuple(
            Step(entry.at, entry.kind, entry.subject)
            for entry in entries
            if entry.kind in (chain.RESUMED, chain.WAITING, chain.PAUSED)
        ),
        most_asked=max(journal.count_participations(), default=0),
    )


def _views(journal: Journal) -> Iterable[tuple[int, Sequence[Mapping[str, Any]]]]:
    """Give the rounds' views; an arm retired by hand goes out after a round's end."""
    by_hand = {(one.arm, one.round_number - 1): one for one in journal.retired()}
    for record in journal.rounds():
        views = []
        for stored in record.views:
            view = dict(stored)
            if (one := by_hand.get((view["arm"], record.number))) is not None:
                view |= {"active": False, "retired": True, "reason": one.reason}
            views.append(view)
        yield record.number, views


def arm_rows(
    rounds: Iterable[tuple[int, Sequence[Mapping[str, Any]]]], names: Sequence[str]
) -> tuple[ArmRow, ...]:
    """Give every arm after every round, from the rounds' numbers and views."""
    out: set[int] = set()
    rows = []
    for number, views in rounds:
        for view in views:
            fell = not view["active"] and view["arm"] not in out
            if fell:
                out.add(view["arm"])
            rows.append(
                ArmRow(
                    round=number,
                    arm=names[view["arm"]],
                    users=view["users"],
                    asked=view["asked"],
                    estimate=view["estimate"],
                    lower=view["lower"],
                    upper=view["upper"],
                    active=view["active"],
                    fell=fell,
                    reason=view["reason"],
                    retired=view["retired"],
                )
            )
    return tuple(rows)


def _rounds(
    cohorts: Sequence[CohortRow], entries: Sequence[chain.Entry]
) -> Iterable[RoundRow]:
    asked_at = {e.subject: e.at for e in entries if e.kind == chain.INVITED}
    done_at = {int(e.subject): e.at for e in entries if e.kind == chain.ROUND}
    by_round: dict[int, list[CohortRow]] = {}
    for row in cohorts:
        by_round.setdefault(row.round, []).append(row)
    for number, mine in sorted(by_round.items()):
        yield RoundRow(
            number,
            min(asked_at[row.cohort] for row in mine),
            done_at.get(number),
            sum(row.invited for row in mine),
        )
