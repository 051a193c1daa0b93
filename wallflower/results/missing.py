"""Whom a verdict holds for: everybody asked, or those who answered.

Nobody can know the outcomes of people who are in no sum. But it can be known whether
they matter: `strategy.bandit.worst_case` repeats every decision with the outcomes that
speak most against it. What it finds qualifies the headline, wherever a result is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wallflower.protocol.numbers import counted
from wallflower.results.cohorts import ALARM, AnswerRates, CohortRow, answer_rates
from wallflower.results.endings import join_words
from wallflower.strategy.bandit.policy import Arm, ArmView, Ending
from wallflower.strategy.bandit.worst_case import Interval, WorstCase
from wallflower.strategy.policy_names import ELIMINATION
from wallflower.strategy.run.common_nodes import find_unlike_rounds
from wallflower.strategy.store.entries import SUMMED, VOID, RoundRecord
from wallflower.strategy.store.journal import Journal

# Whom a verdict holds for.
EVERYBODY = "everybody-asked"
REPLACED = "everybody-asked-but-void-cohorts"
ANSWERED = "those-who-answered"


@dataclass(frozen=True, slots=True)
class MissingPeople:
    """Who is in no sum of the finished rounds, and what it means for the verdict.

    Attributes
    ----------
    asked : people asked in the finished rounds, void cohorts included.
    absent : asked in cohorts with a sum, and not in it.
    void : asked in cohorts that gave no sum; `void_cohorts` counts these.
    holds_for : EVERYBODY, REPLACED or ANSWERED; None where nothing is decided.
    doubtful : names of arms out that the absent people might have kept in.
    intervals : of every arm's mean over everybody asked, whatever the missing people's
        outcomes were; empty where nobody is, or the policy does not decide.
    unlike_rounds : finished rounds whose sums are over different nodes.
    by_margin : the run ended as equal or futile; `goes_on` says that the absent people
        might have kept it from ending.
    worst_case : compares arms, void cohorts included; None where no policy decides.
    """

    asked: int
    absent: int
    void: int
    void_cohorts: int
    holds_for: str | None
    doubtful: tuple[str, ...]
    intervals: Mapping[Arm, Interval]
    rates: AnswerRates
    unlike_rounds: int
    by_margin: bool = False
    goes_on: bool = False
    worst_case: WorstCase | None = None

    @property
    def missing(self) -> int:
        """People asked who are in no sum."""
        return self.absent + self.void

    @property
    def qualification(self) -> str:
        """What a headline must add before its full stop, or nothing."""
        if self.holds_for is None:
            return ""
        among = " among those who answered" if self.holds_for == ANSWERED else ""
        return among + " (answer rates differ by arm)" * self.rates.differ

    def qualify(self, headline: str) -> str:
        """Return a headline that says whom it holds for."""
        return f"{headline.removesuffix('.')}{self.qualification}."

    def describe(self, winner: str | None, marks: str = '""') -> str:
        """Say whom the verdict holds for; nothing where there is no verdict.

        `marks` are the two quotation marks of where it is said.
        """
        if self.holds_for is None:
            return ""
        known = winner is not None or self.by_margin
        subject = "It" if known else "That arms are out"
        parts = self._who(f"{subject} holds", marks), self._rates(marks)
        return " ".join(part for part in parts if part)

    def interval_of_all(self, view: ArmView) -> Interval | None:
        """Return the interval of an arm's mean over everybody asked, if it is known."""
        if not self.missing:
            return Interval(view.lower, view.upper)
        return self.intervals.get(view.arm)

    def as_json(self, winner: str | None) -> dict[str, Any]:
        """Return JSON types."""
        return {
            "asked": self.asked,
            "in_no_sum": self.missing,
            "in_void_cohorts": self.void,
            "holds_for": self.holds_for,
            "doubtful_arms": list(self.doubtful),
            "rounds_with_unlike_nodes": self.unlike_rounds,
            "answer_rates_differ": self.rates.differ,
            "answer_rates_p_value": self.rates.p_value,
            "answer_rates_level": ALARM,
            "sentence": self.describe(winner),
        }

    def _who(self, holds: str, marks: str) -> str:
        if not self.missing:
            return f"Nobody is missing. {holds} for all {_people(self.asked)} asked."
        if self.holds_for == EVERYBODY:
            return f"{holds} whatever {_whose_outcomes(self.missing)} were."
        if self.holds_for == REPLACED:
            first = (
                f"{holds} whatever {_whose_outcomes(self.absent)} were"
                if self.absent
                else "Nobody is missing from a sum"
            )
            return (
                f"{first}. {counted(self.void_cohorts, 'cohort')} of "
                f"{_people(self.void)} gave no sum; others replaced them. This assumes "
                "that no cohort failed because of its people's outcomes."
            )
        arms = join_words([name.join(marks) for name in self.doubtful])
        then = f"{arms} would still be in the race" if arms else "it would go on"
        return (
            f"{holds} among those who answered: {self.missing:,} of "
            f"{_people(self.asked)} asked are missing. If their outcomes were the "
            f"worst possible, {then}."
        )

    def _rates(self, marks: str) -> str:
        if not self.rates.differ:
            return ""
        worst = self.rates.worst
        return (
            f"Answer rates differ by arm: {str(worst.arm).join(marks)} lost "
            f"{worst.arm_lost:,} {worst.unit} where {worst.expected:,.1f} were "
            "expected."
        )


def find_missing(
    journal: Journal, cohorts: Sequence[CohortRow], last: RoundRecord | None
) -> MissingPeople:
    """Count who is missing from the rounds up to `last` and weigh what it means."""
    config, done = journal.config, 0 if last is None else last.number
    names = config.experiment.arms
    rows = [row for row in cohorts if row.round <= done]
    void: Counter[tuple[Arm, int]] = Counter()
    for row in rows:
        if row.state == VOID:
            void[names.index(row.arm), row.batch] += row.drawn
    summed = [row for row in rows if row.state == SUMMED]
    absent = sum(row.drawn - row.answered for row in summed)
    holds_for: str | None = None
    doubtful: Sequence[Arm] = ()
    intervals: Mapping[Arm, Interval] = {}
    by_margin = goes_on = False
    strict: WorstCase | None = None
    if last is not None and config.policy.name == ELIMINATION:
        state, states = last.policy_state, journal.states(_falls(last.views))
        strict = WorstCase(state, void, states)
        lenient = WorstCase(state, earlier=states)
        doubtful, goes_on = lenient.doubtful(), lenient.ends_otherwise()
        by_margin = last.finished in (Ending.EQUAL, Ending.FUTILE)
        if by_margin or any(not (one.active or one.retired) for one in last.views):
            doubts = bool(doubtful) or goes_on
            with_void = bool(strict.doubtful()) or strict.ends_otherwise()
            holds_for = ANSWERED if doubts else REPLACED if with_void else EVERYBODY
        if strict.missing:
            intervals = {arm: strict.interval(arm) for arm in range(len(names))}
    return MissingPeople(
        asked=sum(row.drawn for row in rows),
        absent=absent,
        void=void.total(),
        void_cohorts=sum(row.state == VOID for row in rows),
        holds_for=holds_for,
        doubtful=tuple(names[arm] for arm in doubtful),
        intervals=intervals,
        rates=answer_rates(rows, done, len(names)),
        unlike_rounds=sum(number <= done for number in find_unlike_rounds(journal)),
        by_margin=by_margin,
        goes_on=goes_on,
        worst_case=strict if config.policy.radius == "tight" else None,
    )


def _falls(views: Sequence[ArmView]) -> set[int]:
    """Return the rounds in which an arm fell."""
    return {view.eliminated_in for view in views if view.eliminated_in is not None}


def _people(number: int) -> str:
    return "1 person" if number == 1 else f"{number:,} people"


def _whose_outcomes(people: int) -> str:
    if people == 1:
        return "the missing person's outcome"
    return f"the {people:,} missing people's outcomes"
