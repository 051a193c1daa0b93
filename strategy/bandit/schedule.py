"""How many users per arm each batch asks for, and which cohorts are one group.

Algorithm 1 of the paper uses l(b) = 2^b. Any rational ratio above 1 keeps the same
regret up to a constant; a first size skips the batches that cannot separate anything.

A test weighs a cohort by its planned size alone. So cohorts of nearly one planned size
get the same exponent, only their sum counts, and they are one group. Sizes grow by a
tenth from one group to the next: an arm has a few dozen groups after any number of
rounds. Sizes that grow by more, as they usually do, make every cohort its own group.

The exponents of a group follow from its first planned cohort. They are the same
whenever the test is made, which is what Ville's inequality needs.

Every cohort brings noise of its own, and a long step asks people who are no longer
needed. So a plan begins with a cohort that noise does not drown, and grows slowly where
noise is small against sampling. Where a round takes time, because outcomes do or people
arrive, it doubles. The constants were chosen by ``benchmarks/schedules.py``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from wallflower.protocol.errors import InputError
from wallflower.protocol.privacy.mechanism import USUAL_SMALLEST_COHORT

_BITS = 256  # behind the point
# A planned size that is larger by this factor than a group's first begins another one.
APART = Fraction(11, 10)
# Planned users of an arm from one aim of the test to the next.
AIMS_APART = Fraction(5, 4)

# The first cohort is so many times the smallest that could tell 0 from 1 …
_TELLING = 8
_TELLING_FEW = 16  # where rounds are to be few
# … but the horizon holds so many first rounds of all arms.
_FIRST_ROUNDS = 16
_SLOWEST, _FASTEST = Fraction(11, 10), Fraction(3, 2)
_FEW_ROUNDS = Fraction(2)
_STEPS = 20  # a ratio is a multiple of a twentieth


@dataclass(frozen=True, slots=True)
class Schedule:
    """Batch sizes ⌈ratio^b⌉, or ⌈first · ratio^(b−1)⌉ where a first size is given.

    Examples
    --------
    >>> [Schedule(Fraction(2)).size(b) for b in (1, 2, 3)]
    [2, 4, 8]
    >>> [Schedule(Fraction(3, 2), first=10).size(b) for b in (1, 2, 3)]
    [10, 15, 23]
    """

    ratio: Fraction
    first: int | None = None

    def __post_init__(self) -> None:
        if not 1 < self.ratio <= 100:
            raise InputError("ratio", self.ratio, "greater than 1 and at most 100")
        if self.first is not None and self.first < 1:
            raise InputError("first-batch", self.first, "a whole number of at least 1")

    def size(self, batch: int) -> int:
        """Return users per active arm in batch `batch`, counted from 1."""
        if batch < 1:
            raise InputError("batch", batch, "a whole number of at least 1")
        return _size(self.ratio, self.first, batch)

    def batches_within(self, users: int) -> int:
        """How many whole batches one arm can be in before `users` users are gone."""
        return _batches_within(self, users)


def first_size(least: int, arms: int, horizon: int, *, few_rounds: bool) -> int:
    """Return the size of the first cohorts; `least` could tell 0 from 1.

    Nodes with the default policy refuse fewer than `USUAL_SMALLEST_COHORT` people.
    """
    enough = least * (_TELLING_FEW if few_rounds else _TELLING)
    size = max(min(enough, horizon // (_FIRST_ROUNDS * arms)), USUAL_SMALLEST_COHORT)
    return max(min(size, horizon // arms), least)


def growth(splitting: float, *, few_rounds: bool) -> Fraction:
    """Return the ratio of cohorts; `splitting` says what smaller ones would cost.

    It is the part of a first cohort's variance that its noise adds once it is split
    into two cohorts.
    """
    if few_rounds:
        return _FEW_ROUNDS
    wanted = Fraction(round(_STEPS * (1 + splitting)), _STEPS)
    return min(max(wanted, _SLOWEST), _FASTEST)


def last_size(fitting: int) -> int:
    """Return users per arm of a last batch for which only `fitting` are left.

    Six significant bits: at most 3 % are left over, and experiments that end so share
    their calibrations.
    """
    spare = max(fitting.bit_length() - 6, 0)
    return fitting >> spare << spare


@lru_cache(maxsize=256)
def _batches_within(schedule: Schedule, users: int) -> int:
    batch, left = 0, users
    while (size := schedule.size(batch + 1)) <= left:
        left -= size
        batch += 1
    return batch


@lru_cache(maxsize=4096)
def _size(ratio: Fraction, first: int | None, batch: int) -> int:
    factor, power = (1, batch) if first is None else (first, batch - 1)
    low, high = _power_bounds(ratio, power)
    least, most = (-(-(factor * bound) >> _BITS) for bound in (low, high))
    # Where the bounds leave open which whole number it is, all digits decide.
    return least if least == most else _ceiling(factor * ratio**power)


def _power_bounds(ratio: Fraction, power: int) -> tuple[int, int]:
    """Enclose ratio^power in whole multiples of 2^−256, by squaring.

    The exact fraction has as many digits as the power is large.
    """
    low, high = 1 << _BITS, 1 << _BITS
    scaled = ratio.numerator << _BITS
    base_low = scaled // ratio.denominator
    base_high = -(-scaled // ratio.denominator)
    while power:
        if power & 1:
            low, high = low * base_low >> _BITS, -(-high * base_high >> _BITS)
        base_low = base_low * base_low >> _BITS
        base_high = -(-base_high * base_high >> _BITS)
        power >>= 1
    return low, high


def _ceiling(number: Fraction) -> int:
    return -(-number.numerator // number.denominator)


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


class Milestones:
    """Places of the plan, each with a quarter more users than the one before.

    Users are those of one arm so far. Places are counted from 1, milestones from 0.

    Examples
    --------
    >>> slow = Milestones(Schedule(Fraction(11, 10), 100))
    >>> [slow.place_of(number) for number in range(8)]
    [1, 2, 3, 4, 5, 6, 8, 10]
    >>> [slow.reached_at(place) for place in (1, 6, 7)]
    [0, 5, 5]
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._places = [1]
        self._newest = self._users = schedule.size(1)
        self._seen = 1

    def reached_at(self, place: int) -> int:
        """Return the last milestone up to a place."""
        while self._seen < place:
            self._look_further()
        return bisect_right(self._places, place) - 1

    def place_of(self, number: int) -> int:
        """Return the place of a milestone."""
        while len(self._places) <= number:
            self._look_further()
        return self._places[number]

    def _look_further(self) -> None:
        self._seen += 1
        self._users += self._schedule.size(self._seen)
        if self._users >= AIMS_APART * self._newest:
            self._places.append(self._seen)
            self._newest = self._users


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
