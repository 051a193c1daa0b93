"""Cohorts that are planned alike are one group: a round costs what its arms cost.

A test weighs a cohort by its planned size alone, so cohorts of nearly one planned size
get the same exponent, and only their sum counts. Whatever the number of rounds, an arm
is then described by a few dozen groups: their sizes grow by a tenth from one to the
next. Sizes that grow by more, as they usually do, make every cohort its own group.

The exponents of a group follow from its first planned cohort. They are the same
whenever the test is made, which is what Ville's inequality needs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from wallflower.strategy.bandit.schedule import Schedule

# A planned size that is larger by this factor than a group's first begins another one.
APART = Fraction(11, 10)


@dataclass(frozen=True, slots=True, order=True)
class CohortFacts:
    """The public side of one delivered cohort of an arm: all that its noise is of.

    `absent` people count in the mean although they are in no sum (`worst_case`).
    """

    size: int
    floor: int
    survivors: int
    absent: int = 0


# Cohorts of one group: what came, and how often.
Group = tuple[tuple[CohortFacts, int], ...]
# What was heard of an arm, group by group; empty where nothing came.
History = tuple[Group, ...]


class Grouping:
    """Which planned cohorts of a schedule are one group; all are counted from 1 and 0.

    Examples
    --------
    >>> few, many = Schedule(Fraction(3, 2), 10), Schedule(Fraction(1001, 1000), 10)
    >>> [Grouping(few).group_of(place) for place in (1, 2, 3)]
    [0, 1, 2]
    >>> [Grouping(many).group_of(place) for place in (1, 2, 3, 1000)]
    [0, 1, 1, 8]
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._starts = [1]  # place of every group's first cohort
        self._seen = 1

    def group_of(self, place: int) -> int:
        """Return the group of the cohort at `place` of the plan."""
        while self._seen < place:
            self._seen += 1
            first = self._schedule.size(self._starts[-1])
            if self._schedule.size(self._seen) >= APART * first:
                self._starts.append(self._seen)
        return bisect_right(self._starts, place) - 1

    def first_place(self, group: int) -> int:
        """Return the place of a group's first cohort."""
        while len(self._starts) <= group:
            self.group_of(2 * self._seen)
        return self._starts[group]


def heard_from(groups: Mapping[int, Mapping[CohortFacts, int]]) -> History:
    """Return what was heard, in an order that does not depend on when it came."""
    last = max(groups, default=-1)
    return tuple(
        tuple(sorted(groups[group].items())) if group in groups else ()
        for group in range(last + 1)
    )


def count_cohorts(
    heard: History, more: Iterable[tuple[int, CohortFacts]]
) -> dict[int, Counter[CohortFacts]]:
    """Return the cohorts of every group, with more of them, each with its group."""
    groups = {
        number: Counter(dict(group)) for number, group in enumerate(heard) if group
    }
    for number, facts in more:
        groups.setdefault(number, Counter())[facts] += 1
    return groups
