"""Draw the people of a round, and find how many can be asked at all.

A cohort must have enough people who are surely honest and present, although its largest
nodes collude or vanish. So a node that holds many more people than the others cannot
give them all. How many can be asked is found by drawing: the same rounds, by the same
code as in a run, with numbers in place of names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from wallflower.protocol.errors import InputError
from wallflower.protocol.messages.port import NodeId
from wallflower.protocol.privacy.honest_floor import Floor, FloorRule
from wallflower.strategy.bandit.policies import (
    nodes_of_a_round,
    policy_for,
    policy_from_state,
)
from wallflower.strategy.bandit.policy import (
    USERS_EXHAUSTED,
    CohortRequest,
    CohortSum,
    Policy,
)
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.policy_names import INDEX_POLICIES
from wallflower.strategy.run.node_users import CountedUsers, NodeAvailability
from wallflower.strategy.run.registry import Draw, UserRegistry
from wallflower.strategy.run.sharing import Composition, Shares, UsersExhaustedError
from wallflower.strategy.store.journal import Journal

_SEED = 0  # the same question has the same answer
_SMALLER = (Fraction(1, 2), Fraction(0))  # parts of a stated fraction that are tried
_LEAST_GAIN = Fraction(21, 20)  # a change that reaches fewer than 5 % more is not told


@dataclass(frozen=True, slots=True)
class Reach:
    """Whom a run can ask if no arm falls early.

    Attributes
    ----------
    people : on all nodes.
    wanted : of them, as far as the horizon goes.
    asked : of them, at least once.
    invitations : of them all, each time counted.
    rounds : whole rounds of the planned sizes.
    largest : people of the largest node.
    nodes : how many there are.
    ended : why the rounds end, as in a run's record.
    """

    people: int
    wanted: int
    asked: int
    invitations: int
    rounds: int
    largest: int
    nodes: int
    ended: str


@dataclass(frozen=True, slots=True)
class Stranded:
    """People whom no round can ask because nodes are too unequal.

    Attributes
    ----------
    reach : whom the nodes as they are can give.
    changes : what would help, each with the people who could then be asked.
    """

    reach: Reach
    changes: tuple[tuple[str, int], ...]

    def describe(self) -> str:
        """Say how many can be asked, why not all, and what would help."""
        reach = self.reach
        return (
            f"{reach.asked:,} of {reach.wanted:,} people can be asked if no arm falls "
            f"early. {self.reason} {self.advice}"
        )

    def describe_end(self) -> str:
        """Say the same of a run that ended because of it."""
        reach = self.reach
        return (
            f"Only {reach.asked:,} of {reach.wanted:,} people could be asked. "
            f"{self.reason} {self.advice}"
        )

    @property
    def reason(self) -> str:
        """Why the others cannot be asked."""
        reach = self.reach
        return (
            f"The largest of {reach.nodes:,} nodes holds {reach.largest:,} people. A "
            "group must keep enough surely honest people although its largest nodes "
            "collude or vanish. So such a node can give only a part of its people."
        )

    @property
    def advice(self) -> str:
        """What would help, with the people who could then be asked."""
        parts = [f"{change} ({asked:,} people)" for change, asked in self.changes]
        return f"What would help: {', '.join(parts)}."

    def as_json(self) -> dict[str, Any]:
        """Return JSON types."""
        return {
            "people": self.reach.people,
            "wanted": self.reach.wanted,
            "can_be_asked": self.reach.asked,
            "nodes": self.reach.nodes,
            "largest_node": self.reach.largest,
            "what_would_help": [
                {"change": change, "can_be_asked": asked}
                for change, asked in self.changes
            ],
        }


@lru_cache(maxsize=64)
def count_reach(config: ExperimentConfig, sizes: tuple[int, ...]) -> Reach:
    """Draw round after round from nodes of these sizes until nobody can be drawn.

    No arm falls. Which people a run draws is chance, so a run may ask a few more or
    fewer.
    """
    registry = _CountedRegistry(config.privacy.max_participations, _SEED)
    names = [f"node-{number}" for number in range(len(sizes))]
    for name, users in zip(names, sizes, strict=True):
        registry.add_count(name, users)
    policy, rounds, ended = policy_for(config), 0, ""
    while not ended:
        whole = can_fill_round(registry, config, policy.next_cohorts())
        if not whole:
            limit = find_largest_limit(registry, config, policy)
            if limit is None:
                ended = USERS_EXHAUSTED
                break
            policy.limit(limit)
        next_cohorts = policy.next_cohorts()
        draws = draw_round(registry, config, next_cohorts, names)
        policy.observe(
            [_even_sum(*pair) for pair in zip(next_cohorts, draws, strict=True)]
        )
        rounds += whole
        ended = policy.finished or ""
    asked = [min(one.users, one.invitations) for one in registry.availabilities]
    return Reach(
        people=sum(sizes),
        wanted=min(sum(sizes), config.horizon),
        asked=sum(asked),  # nobody comes twice before everybody came once
        invitations=sum(one.invitations for one in registry.availabilities),
        rounds=rounds,
        largest=max(sizes),
        nodes=len(sizes),
        ended=ended,
    )


def read_reach(journal: Journal) -> Reach | None:
    """Count who was asked of all people on the nodes that a run has met.

    Whom their nodes leave out for want of budget is not counted.
    """
    met, last = journal.read_met(), journal.last_round()
    sizes = [one.users - one.left_out for one in met.values()]
    if not sizes or last is None:
        return None
    often = journal.count_participations()
    return Reach(
        people=sum(sizes),
        wanted=min(sum(sizes), journal.config.horizon),
        asked=sum(often.values()),
        invitations=sum(times * people for times, people in often.items()),
        rounds=last.number,
        largest=max(sizes),
        nodes=len(met),
        ended=last.finished or "",
    )


def find_stranded(config: ExperimentConfig, sizes: tuple[int, ...]) -> Stranded | None:
    """Return whom unequal nodes keep from being asked, and what would help.

    None where as many could be asked if the nodes had equally many people.
    """
    reach = count_reach(config, sizes)
    found = compare_with_equal_nodes(config, reach)
    if found is None:
        return None
    milder = [
        (text, count_reach(changed, sizes).asked) for text, changed in _milder(config)
    ]
    helpful = tuple(one for one in milder if _helps(one, reach))
    return Stranded(reach, found.changes + helpful)


def compare_with_equal_nodes(config: ExperimentConfig, reach: Reach) -> Stranded | None:
    """Return the same of nodes that were drawn from; only equal nodes are tried."""
    most = "everybody", min(reach.people, reach.wanted)
    if not _helps(most, reach):
        return None  # found without drawing round after round
    each, more = divmod(reach.people, reach.nodes)
    sizes = (each + 1,) * more + (each,) * (reach.nodes - more)
    equal = "nodes of equal size", count_reach(config, sizes).asked
    return Stranded(reach, (equal,)) if _helps(equal, reach) else None


def _helps(change: tuple[str, int], reach: Reach) -> bool:
    return change[1] > _LEAST_GAIN * reach.asked


def _milder(config: ExperimentConfig) -> Iterator[tuple[str, ExperimentConfig]]:
    """Return settings under which a group needs fewer people beyond its largest nodes.

    A smaller stated fraction is a weaker promise: it must be true of the nodes.
    """
    stated = config.secure_sum
    for key in ("dropout", "corrupt"):
        for part in _SMALLER:
            value = getattr(stated, key)
            if not value:
                continue
            changed = dataclasses.replace(stated, **{key: value * part})
            text = f"secure-sum.{key} = {float(value * part):g}"
            yield text, dataclasses.replace(config, secure_sum=changed)


def _even_sum(cohort_request: CohortRequest, draw: Draw) -> CohortSum:
    """Return a sum of which no arm falls: everybody answers ½ about every arm."""
    people = draw.floor.cohort_size
    return CohortSum(
        batch=cohort_request.batch,
        arm=cohort_request.arm,
        cohort_size=people,
        honest_floor=draw.floor.honest_floor,
        survivors=people,
        precision=2,
        total=people,
    )


class _CountedRegistry(UserRegistry):
    """A registry of nodes whose people have no names."""

    def add_count(self, node_id: NodeId, users: int) -> None:
        """Take a node with so many people."""
        self._nodes[node_id] = CountedUsers((), self._most, users=users)
        self._refresh_node(node_id)

    @property
    def availabilities(self) -> Collection[NodeAvailability]:
        """Where every node stands."""
        return self._availability.values()

    def _take(self, names: Sequence[NodeId], shares: Shares) -> list[Draw]:
        people = shares.people
        for place in np.flatnonzero(people).tolist():
            self._nodes[names[place]].take(int(people[place]), self._random)
            self._refresh_node(names[place])
        return [Draw({}, floor) for floor in shares.floors]


def make_floor_rule(config: ExperimentConfig, nodes: int) -> FloorRule:
    """Return the floor to plan with when cohorts are spread over `nodes` nodes."""
    stated = config.secure_sum
    return FloorRule(nodes, stated.corrupt, stated.dropout)


def choose_composition(
    config: ExperimentConfig, like: Mapping[NodeId, int] | None = None
) -> Composition:
    """Return how many people of each node a round of this experiment takes.

    Elimination compares the arms of a round with each other. Index policies compare
    cohorts of different rounds, which must all be drawn from the same mixture.
    """
    in_proportion = config.policy.name in INDEX_POLICIES
    return Composition(in_proportion, None if in_proportion else like)


def draw_round(
    registry: UserRegistry,
    config: ExperimentConfig,
    next_cohorts: Sequence[CohortRequest],
    present: Collection[NodeId],
    like: Mapping[NodeId, int] | None = None,
) -> list[Draw]:
    """Draw the users of a round's cohorts as one set; all or nobody.

    Where the nodes picked first do not suffice after all, everyone present is drawn
    from. `like` has the people of each node in a cohort of the same round: its nodes
    are picked first, and where its composition cannot be had, another is.
    """
    size, cohorts = _size_of(next_cohorts), len(next_cohorts)
    everyone = registry.choose_nodes(0, 0, present)
    tries = [(everyone, choose_composition(config))]
    most = nodes_of_a_round(config)
    chosen = registry.choose_nodes(size * cohorts, most, present)
    if len(chosen) < len(everyone):
        tries.insert(0, (chosen, choose_composition(config)))
    if like is not None:
        alike = choose_composition(config, like)
        same = tuple(name for name in everyone if name in like)
        tries = [(same, alike), (everyone, alike), *tries]
    for names, composition in tries[:-1]:
        rule = make_floor_rule(config, len(names))
        try:
            return registry.draw_round(size, cohorts, rule, names, composition)
        except (UsersExhaustedError, InputError):
            continue
    names, composition = tries[-1]
    rule = make_floor_rule(config, len(names))
    return registry.draw_round(size, cohorts, rule, names, composition)


def can_fill_round(
    registry: UserRegistry,
    config: ExperimentConfig,
    next_cohorts: Sequence[CohortRequest],
    without: Collection[NodeId] = (),
) -> bool:
    """Say whether a round could be drawn if all nodes ever known were there."""
    return find_floors(registry, config, next_cohorts, without) is not None


def find_floors(
    registry: UserRegistry,
    config: ExperimentConfig,
    next_cohorts: Sequence[CohortRequest],
    without: Collection[NodeId] = (),
) -> Sequence[Floor] | None:
    """Return what a round's cohorts could promise if all nodes known were there.

    None where everybody known does not suffice for the round.
    """
    rule = make_floor_rule(config, registry.count_nodes_left(without))
    return registry.find_floors(
        _size_of(next_cohorts),
        len(next_cohorts),
        rule,
        composition=choose_composition(config),
        without=without,
    )


def find_largest_limit(
    registry: UserRegistry, config: ExperimentConfig, policy: Policy
) -> int | None:
    """Return the largest limit under which everybody known fills the next round.

    Smaller rounds are tried in steps of 2 %, so up to so many may be left out.
    None where even the smallest round that the policy would ask cannot be filled.
    """
    limited = policy_from_state(policy.state())
    rule = make_floor_rule(config, registry.count_nodes_left())
    users = registry.count_people_left(rule, choose_composition(config))
    while True:
        limited.limit(users)
        next_cohorts = limited.next_cohorts()
        if not next_cohorts:
            return None
        if can_fill_round(registry, config, next_cohorts):
            return users
        size = next_cohorts[0].size
        users = min(users - 1, len(next_cohorts) * (size - max(1, size // 50)))


def can_go_on(registry: UserRegistry, config: ExperimentConfig, policy: Policy) -> bool:
    """Say whether everybody known fills the next round, as planned or a smaller one."""
    if can_fill_round(registry, config, policy.next_cohorts()):
        return True
    return find_largest_limit(registry, config, policy) is not None


def _size_of(next_cohorts: Sequence[CohortRequest]) -> int:
    """Return how many users each cohort of a round wants: all want as many."""
    sizes = {cohort_request.size for cohort_request in next_cohorts}
    if len(sizes) != 1:
        raise InputError("cohorts of a round", sorted(sizes), "of one size")
    return sizes.pop()
