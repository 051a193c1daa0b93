"""How many people of given nodes can be asked at all, before anybody is.

A group must have enough people who are surely honest and present, although its largest
nodes collude or vanish. So a node that holds many more people than the others cannot
give them all. How many can be asked is found by drawing: the same rounds, by the same
code as in a run, with numbers in place of names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from wallflower.protocol.messages.port import NodeId
from wallflower.strategy.bandit.policies import policy_for
from wallflower.strategy.bandit.policy import (
    USERS_EXHAUSTED,
    CohortRequest,
    CohortSum,
)
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.cohort_spec import (
    draw_round,
    everybody_suffices,
    who_is_left,
)
from wallflower.strategy.run.drawing import Draw, UserRegistry
from wallflower.strategy.run.node_users import CountedUsers, NodeAvailability
from wallflower.strategy.run.sharing import Shares
from wallflower.strategy.store.journal_reader import JournalReader

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

    @property
    def never_asked(self) -> int:
        """People whom no round can ask."""
        return self.people - self.asked


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
        whole = everybody_suffices(registry, config, policy.next_cohorts())
        if not whole:
            limit = who_is_left(registry, config, policy)
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
    asked = [min(one.users, one.invitations) for one in registry.standings]
    return Reach(
        people=sum(sizes),
        wanted=min(sum(sizes), config.horizon),
        asked=sum(asked),  # nobody comes twice before everybody came once
        invitations=sum(one.invitations for one in registry.standings),
        rounds=rounds,
        largest=max(sizes),
        nodes=len(sizes),
        ended=ended,
    )


def read_reach(journal: JournalReader) -> Reach | None:
    """Count who was asked of all people on the nodes that a run has met.

    Whom their nodes leave out for want of budget is not counted.
    """
    met, last = journal.met(), journal.last_round()
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
    found = stranded_by(config, reach)
    if found is None:
        return None
    milder = [
        (text, count_reach(changed, sizes).asked) for text, changed in _milder(config)
    ]
    helpful = tuple(one for one in milder if _helps(one, reach))
    return Stranded(reach, found.changes + helpful)


def stranded_by(config: ExperimentConfig, reach: Reach) -> Stranded | None:
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
        self._look_at(node_id)

    @property
    def standings(self) -> Collection[NodeAvailability]:
        """Where every node stands."""
        return self._standing.values()

    def _take(self, names: Sequence[NodeId], shares: Shares) -> list[Draw]:
        people = shares.people
        for place in np.flatnonzero(people).tolist():
            self._nodes[names[place]].take(int(people[place]), self._random)
            self._look_at(names[place])
        return [Draw({}, floor) for floor in shares.floors]
