"""How many people of each node take part in a round, and how many get which arm.

A round is shared out over nodes as one set of people; only then are its people dealt to
the arms. So nodes that run dry within a round give every arm the same number of people,
up to one, and arms differ by nothing but the arm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from wallflower.protocol.errors import CohortVoidError, InputError
from wallflower.protocol.messages.port import NodeId
from wallflower.protocol.privacy.honest_floor import Floor, FloorRule, cohort_floor

Counts: TypeAlias = npt.NDArray[np.int64]  # people, by node
Random: TypeAlias = np.random.Generator


class UsersExhaustedError(CohortVoidError):
    """Not enough users are left who may still be invited."""

    def __init__(self, wanted: int, left: int) -> None:
        super().__init__(
            "users-exhausted", f"{wanted} users wanted, {left} may still be invited"
        )


class Spread(Protocol):
    """Shares people out over nodes."""

    def __call__(
        self, people: int, capacity: Counts, cohorts: int, random: Random | None
    ) -> Counts:
        """Return how many of `people` each node gives, at most its capacity.

        Without `random` the result depends on the capacities alone, in any order.
        Raises UsersExhaustedError where it finds too few.
        """
        ...


@dataclass(frozen=True, slots=True)
class Shares:
    """The people of a round by node and arm.

    Attributes
    ----------
    each : people that every node gives to every cohort.
    more : for each cohort, the nodes that give it one more.
    floors : what each cohort can promise.
    """

    each: Counts
    more: tuple[Counts, ...]
    floors: tuple[Floor, ...]

    @property
    def people(self) -> Counts:
        """People that each node gives to the whole round."""
        total = self.each * len(self.more)
        for nodes in self.more:
            total[nodes] += 1
        return total

    def shuffled(self, random: Random) -> Shares:
        """Return the same shares with their cohorts in random order."""
        order = random.permutation(len(self.more)).tolist()
        return Shares(
            self.each,
            tuple(self.more[cohort] for cohort in order),
            tuple(self.floors[cohort] for cohort in order),
        )


def share_out(
    size: int,
    cohorts: int,
    rule: FloorRule,
    capacity: Counts,
    spreads: Sequence[Spread],
    random: Random | None,
) -> Shares:
    """Share out `size` people a cohort, or as many more as the planned floor needs.

    The first of `spreads` is taken by which as few people as possible meet it. All
    cohorts get the same number of people. Without `random` the shares depend on the
    capacities alone: who uses them shuffles the cohorts.

    Raises
    ------
    UsersExhaustedError
        Too few people are left.
    InputError
        The people who are left cannot meet the floor (too few nodes).
    """
    left, wanted = int(capacity.sum()), rule(size)
    for invited in _growing(size):
        if cohorts * invited > left:
            raise UsersExhaustedError(cohorts * invited, left)
        for spread in spreads:
            try:
                people = spread(cohorts * invited, capacity, cohorts, random)
                each, more = deal(people, cohorts, random)
                floors = _floors(each, more, rule)
            except (UsersExhaustedError, InputError):
                continue
            if min(floor.honest_floor for floor in floors) >= wanted:
                return Shares(each, more, floors)
    raise InputError(
        "cohort", f"{size} users", f"a draw with {wanted} surely honest users"
    )


def deal(
    people: Counts, cohorts: int, random: Random | None
) -> tuple[Counts, tuple[Counts, ...]]:
    """Deal a round's people to its cohorts: each node's evenly, the rest by lot.

    The rest comes from a shuffled deck of cohorts that goes round and on from node to
    node, nodes in random order. Every cohort gets the same number where it is a whole
    one, and each person is equally likely to be in each cohort.

    Returns
    -------
    each : people that a node gives to every cohort.
    more : for each cohort, the nodes that give it one person more.
    """
    each, rest = np.divmod(people, cohorts)
    nodes = np.flatnonzero(rest)
    if random is None:
        nodes = nodes[np.argsort(people[nodes], kind="stable")]
        deck = np.arange(cohorts)
    else:
        nodes, deck = random.permutation(nodes), random.permutation(cohorts)
    giving = np.repeat(nodes, rest[nodes])
    getting = deck[np.arange(len(giving)) % cohorts]
    return each, tuple(giving[getting == cohort] for cohort in range(cohorts))


def spread_evenly(
    people: int, capacity: Counts, cohorts: int, random: Random | None
) -> Counts:
    """Share people over nodes as evenly as their capacities allow.

    Nodes with people to spare give a multiple of `cohorts`: as many to every arm.
    """
    low, high = 0, -(-int(capacity.max(initial=0)) // cohorts)
    while low < high:  # the highest level that does not overshoot
        middle = (low + high + 1) // 2
        if int(np.minimum(capacity, middle * cohorts).sum()) <= people:
            low = middle
        else:
            high = middle - 1
    share = np.minimum(capacity, low * cohorts)
    nodes = np.flatnonzero(capacity > share)
    if random is None:
        nodes = nodes[np.argsort(-capacity[nodes], kind="stable")]
    else:
        nodes = random.permutation(nodes)
    room = np.minimum(capacity[nodes] - share[nodes], cohorts)
    before = np.cumsum(room) - room
    share[nodes] += np.clip(people - int(share.sum()) - before, 0, room)
    return share


@dataclass(frozen=True, slots=True)
class SpreadOverFullest:
    """Share people evenly over nodes with at least so many for each cohort.

    A few people on each of many small nodes make the other nodes' parts large, and then
    too few of a cohort are surely honest. The large nodes alone may do.
    """

    least: int

    def __call__(
        self, people: int, capacity: Counts, cohorts: int, random: Random | None
    ) -> Counts:
        """See `Spread`."""
        full = np.where(capacity >= self.least * cohorts, capacity, 0)
        if people > (left := int(full.sum())):
            raise UsersExhaustedError(people, left)
        return spread_evenly(people, full, cohorts, random)


def spread_in_proportion(
    people: int, capacity: Counts, cohorts: int, random: Random | None
) -> Counts:
    """Share people over nodes in proportion to their capacities, up to one.

    Everybody is equally likely to be among them. So is everybody in the next draw, and
    cohorts that are drawn one after another are alike.
    """
    total = int(capacity.sum())
    if random is None:
        nodes, start = np.argsort(capacity, kind="stable"), total // 2
    else:
        nodes, start = random.permutation(len(capacity)), int(random.integers(total))
    share = np.zeros_like(capacity)
    ends = (np.cumsum(capacity[nodes]) * people + start) // total
    share[nodes] = np.diff(ends, prepend=0)
    return share


@dataclass(frozen=True, slots=True)
class SpreadAlike:
    """Share people over nodes as another cohort of the round had them.

    Where a node has fewer left, the others stand in as evenly as they can.
    """

    like: Counts  # people of that cohort, by node

    def __call__(
        self, people: int, capacity: Counts, cohorts: int, random: Random | None
    ) -> Counts:
        """See `Spread`."""
        kept = np.minimum(self.like * cohorts, capacity)
        room = capacity - kept
        more = people - int(kept.sum())
        if more < 0:
            return spread_in_proportion(people, kept, cohorts, random)
        return kept + spread_evenly(more, room, cohorts, random)


def even_spreads(capacity: Counts, cohorts: int) -> Sequence[Spread]:
    """Return ways to share people out evenly: over all nodes, and over fuller ones."""
    each = int(capacity.max(initial=0)) // cohorts
    bounds = [2**power for power in range(each.bit_length())]
    full = [int((capacity >= bound * cohorts).sum()) for bound in bounds]
    fewer = len(capacity)
    spreads: list[Spread] = [spread_evenly]
    for bound, nodes in zip(bounds, full, strict=True):
        if nodes < fewer:
            spreads.append(SpreadOverFullest(bound))
        fewer = nodes
    return spreads


def fullest_level(users: Counts, corrupt: Fraction, dropout: Fraction) -> int:
    """Return how many users of a node may be in play where draws are in proportion.

    Nodes that hold most of the users hold most of every cohort, and then few of it are
    surely honest. All in play are looked at as one cohort: the level gives it the
    highest honest floor (`cohort_floor`). It depends on nothing but the nodes, so the
    mixture that cohorts are drawn from does not change with time.
    """
    sizes = np.sort(users)[::-1]
    before = np.concatenate([[0], np.cumsum(sizes)])
    levels = np.unique(sizes)
    above = len(sizes) - np.searchsorted(sizes[::-1], levels, side="right")

    def largest(nodes: int) -> Counts:
        """Sum the largest nodes, each cut at the level."""
        cut = np.minimum(above, nodes)
        return np.asarray(levels * cut + before[nodes] - before[cut])

    people = largest(len(sizes))
    vanished = [
        max(nodes, dropout.numerator * total // dropout.denominator)
        for nodes, total in zip(
            largest(dropout.numerator * len(sizes) // dropout.denominator).tolist(),
            people.tolist(),
            strict=True,
        )
    ]
    colluding = largest(-(-corrupt.numerator * len(sizes) // corrupt.denominator))
    return int(levels[np.argmax(people - np.array(vanished) - colluding)])


def _floors(each: Counts, more: Sequence[Counts], rule: FloorRule) -> tuple[Floor, ...]:
    known: dict[bytes, Floor] = {}
    floors = []
    for nodes in more:
        share = _with_more(each, nodes)
        sizes = np.sort(share[share > 0])
        key = sizes.tobytes()
        if key not in known:
            known[key] = cohort_floor(sizes.tolist(), rule.corrupt, rule.dropout)
        floors.append(known[key])
    return tuple(floors)


def _with_more(each: Counts, nodes: Counts) -> Counts:
    share = each.copy()
    share[nodes] += 1
    return share


def _growing(size: int) -> Iterator[int]:
    """Try size, then about 2 % more each time, up to four times as many."""
    invited = size
    while invited <= 4 * size + 8:
        yield invited
        invited += max(1, invited // 50)


@dataclass(frozen=True, slots=True)
class Composition:
    """How many people of each node a round takes.

    Attributes
    ----------
    in_proportion : as many as the node has in play, for cohorts that are compared over
        time. Otherwise evenly over the nodes, for cohorts that are compared within
        their round.
    like : people of each node in a cohort of the same round, which new ones replace or
        join: they get the same as far as people are left.
    """

    in_proportion: bool = False
    like: Mapping[NodeId, int] | None = None

    def spreads(
        self, names: Sequence[NodeId], capacity: Counts, cohorts: int
    ) -> Sequence[Spread]:
        """Return how people may be shared out over the nodes of these names."""
        if self.in_proportion:
            return (spread_in_proportion,)
        if self.like is None:
            return even_spreads(capacity, cohorts)
        people = [self.like.get(name, 0) for name in names]
        return (SpreadAlike(np.array(people, np.int64)),)
