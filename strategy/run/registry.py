"""Who is asked: users never asked before, spread over nodes.

The registry knows every node's users by pseudonym and how often each was invited. A
draw marks its users at once. They are unmarked only if no invitation was sent, or if
their node said that it refused before it showed anybody the arm. Of nodes that are
away since a restart it knows how many users they have: whether anybody is left is asked
of everybody known, not of those who happen to be there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, KeysView, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from wallflower.protocol.errors import InputError, MalformedMessageError
from wallflower.protocol.identity.canonical import check_name
from wallflower.protocol.messages.describe import mark_users, unpack_left_out
from wallflower.protocol.messages.port import NodeId
from wallflower.protocol.privacy.honest_floor import SPARE, Floor, FloorRule
from wallflower.protocol.wire.node_pb2 import Accepted
from wallflower.strategy.run.node_users import NodeAvailability, NodeUsers, Pseudonym
from wallflower.strategy.run.sharing import (
    Composition,
    Counts,
    Shares,
    UsersExhaustedError,
    fullest_level,
    share_out,
)
from wallflower.strategy.store.entries import Askable, Met

Key = TypeVar("Key")
# One row a node: users, those available, invitations so far.
Columns: TypeAlias = npt.NDArray[np.int64]
LONGEST_PSEUDONYM = 128
MOST_USERS_OF_A_NODE = 10_000_000


@dataclass(frozen=True, slots=True)
class Draw:
    """The users of one cohort, by node, and what the cohort can promise."""

    users: Mapping[NodeId, tuple[Pseudonym, ...]]
    floor: Floor


class UserRegistry:
    """Every node's users, and who of them may still be invited.

    What a round asks about everybody known is kept up to date node by node: a run over
    many small nodes must not look at all of them in every round.

    Parameters
    ----------
    max_participations : int
        How often one user may be invited in this run.
    seed : int | None
        None draws from the operating system's entropy; a seed is for tests.
    """

    def __init__(self, max_participations: int, seed: int | None = None) -> None:
        self._most = max_participations
        self._random = np.random.default_rng(seed)
        self._nodes: dict[NodeId, NodeUsers] = {}
        self._earlier: dict[NodeId, Counter[Pseudonym]] = {}  # of nodes not seen yet
        self._most_invited = 0
        self._known: dict[NodeId, Met] = {}  # of every node, there or away
        self._availability: dict[NodeId, NodeAvailability] = {}
        self._alike: Counter[tuple[int, int, int]] = Counter()  # by `_as_row`
        self._busiest: Counter[int] = Counter()
        self._open: set[NodeId] = set()  # there, with users who may be invited
        self.polling_nodes: set[NodeId] = set()  # nodes that come now and then

    def __contains__(self, node_id: NodeId) -> bool:
        return node_id in self._nodes

    @property
    def nodes(self) -> KeysView[NodeId]:
        """Every node that described its users."""
        return self._nodes.keys()

    @property
    def known(self) -> Mapping[NodeId, Met]:
        """Every node that ever described its users, with how many it has."""
        return MappingProxyType(self._known)

    @property
    def population(self) -> int:
        """All users of all nodes."""
        return sum(len(node.names) for node in self._nodes.values())

    @property
    def remaining(self) -> int:
        """Users who may be invited at least once more."""
        return self.count_left(self._nodes)

    def count_askable(self) -> Askable:
        """Count who of everybody known, there or away, can be asked once more."""
        return Askable(
            people=sum(met.users for met in self._known.values()),
            left_out=sum(met.left_out for met in self._known.values()),
            able=sum(
                availability.available for availability in self._availability.values()
            ),
        )

    def count_left(self, nodes: Iterable[NodeId]) -> int:
        """Return users of these nodes who may be invited at least once more."""
        return sum(self._availability[n].available for n in nodes if n in self._open)

    @property
    def most_invited(self) -> int:
        """How often the most invited user was invited."""
        return max(self._most_invited, max(self._busiest, default=0))

    def add_node(
        self, node_id: NodeId, users: Sequence[Pseudonym], *, polls: bool = False
    ) -> None:
        """Take a node's own description of its users, and whether it only polls.

        Raises MalformedMessageError for one that cannot be true; the node is left out.
        A second description of a known node is ignored: users cannot be renamed.
        """
        if node_id in self._nodes:
            return
        check_name(node_id)
        names = tuple(users)
        if not 0 < len(names) <= MOST_USERS_OF_A_NODE:
            raise MalformedMessageError(f"node {node_id} describes {len(names)} users")
        if len(set(names)) != len(names):
            raise MalformedMessageError(f"node {node_id} names a user twice")
        if any(not 0 < len(n) <= LONGEST_PSEUDONYM for n in names):
            raise MalformedMessageError(
                f"node {node_id} has an empty or long pseudonym"
            )
        self._nodes[node_id] = NodeUsers(names, self._most)
        if polls:
            self.polling_nodes.add(node_id)
        self._add_invitations(node_id, self._earlier.pop(node_id, Counter()))

    def restore_nodes(self, nodes: Mapping[NodeId, Met]) -> None:
        """Take from the journal which nodes there were, and what each said."""
        for name, met in nodes.items():
            if name not in self._nodes:
                self._known[name] = met
                self._refresh_node(name)

    def leave_out(self, node_id: NodeId, report: Accepted) -> None:
        """Draw nobody of a node who cannot be asked, as it said last.

        What is told of other users than were described is no use; the node takes those
        out itself whom it is asked for in vain. Raises MalformedMessageError for what
        cannot be true.
        """
        node, out = self._nodes[node_id], None
        if report.left_out and report.users == mark_users(node.names):
            out = unpack_left_out(report.left_out, len(node.names))
        node.leave_out(out, self._random)
        self._refresh_node(node_id)

    def has_left_out(self, users: Mapping[NodeId, Set[Pseudonym]]) -> bool:
        """Say whether one of these users is left out by their node."""
        return any(
            self._nodes[name].has_left_out(asked) for name, asked in users.items()
        )

    def mark_invited(
        self, invited: Iterable[tuple[NodeId, Sequence[Pseudonym]]]
    ) -> None:
        """Count invitations of an earlier part of the run (from the journal).

        Nodes that are not there yet are remembered: whoever comes back later must not
        be taken for new.
        """
        by_node: defaultdict[NodeId, Counter[Pseudonym]] = defaultdict(Counter)
        for node_id, users in invited:
            by_node[node_id].update(users)
        for node_id, often in by_node.items():
            self._most_invited = max(self._most_invited, *often.values())
            if node_id in self._nodes:
                self._add_invitations(node_id, often)
                continue
            self._earlier.setdefault(node_id, Counter()).update(often)
            if node_id in self._known:
                self._refresh_node(node_id)

    def _add_invitations(self, node_id: NodeId, often: Counter[Pseudonym]) -> None:
        node = self._nodes[node_id]
        if often:
            node.counts += np.array([often[name] for name in node.names], np.uint16)
        node.refill(self._random)
        self._refresh_node(node_id)

    def _refresh_node(self, node_id: NodeId) -> None:
        """Take what became of a node into account."""
        node, before = self._nodes.get(node_id), self._availability.get(node_id)
        if node is None:
            users, left_out = self._known[node_id]
            asked = self._earlier.get(node_id, Counter()).values()
            spent = sum(often >= self._most for often in asked)
            now = NodeAvailability(users, max(0, users - spent - left_out), sum(asked))
        else:
            now = node.summarize()
            self._known[node_id] = Met(now.users, now.left_out)
        if before is not None:
            _count_down(self._alike, _as_row(before))
            _count_down(self._busiest, before.busiest)
        self._availability[node_id] = now
        self._alike[_as_row(now)] += 1
        self._busiest[now.busiest] += 1
        here = node is not None and now.available > 0
        (self._open.add if here else self._open.discard)(node_id)

    def give_back(self, users: Mapping[NodeId, Sequence[Pseudonym]]) -> None:
        """Unmark users who were drawn and never saw an arm."""
        for name, given in users.items():
            self._nodes[name].give_back(given, self._random)
            self._refresh_node(name)

    def choose_nodes(
        self, users: int, most: int, among: Iterable[NodeId]
    ) -> tuple[NodeId, ...]:
        """Pick the nodes of a round: at most `most`, or as many as `users` need.

        All arms of a round draw from the same nodes, because nodes may differ (clinics
        do) and arms must not be told apart by them. Those with the most users left
        come first, ties at random, so that nodes run dry together. Those that have run
        dry are not picked: they carry no noise.
        """
        names = [name for name in among if name in self._open]
        if not most or len(names) <= most:
            return tuple(names)
        order = self._random.permutation(len(names))
        left = np.array([self._availability[n].available for n in names])[order]
        by_left = np.argsort(-left, kind="stable")
        held = np.cumsum(left[by_left])
        enough = int(np.searchsorted(held, SPARE * users)) + 1
        picked = order[by_left[: max(most, enough)]]
        return tuple(names[index] for index in sorted(picked.tolist()))

    def draw_round(
        self,
        size: int,
        cohorts: int,
        rule: FloorRule,
        among: Iterable[NodeId],
        composition: Composition,
    ) -> list[Draw]:
        """Draw a round's people as one set and deal them to its cohorts, or nobody.

        Who is drawn, and who of a node gets into which cohort, is chance alone.

        Parameters
        ----------
        size : users whom the policy wants in each cohort.
        cohorts : how many are drawn; each gets as many users more as its floor needs.
        rule : the floor the policy planned with.
        among : nodes that can be reached now.
        composition : how many people of each node take part.

        Raises
        ------
        UsersExhaustedError
            Too few users are left; nobody was marked.
        InputError
            The users that are left cannot meet any floor (too few nodes).
        """
        names = [name for name in among if name in self._nodes]
        facts = [self._availability[name] for name in names]
        capacity = self._capacity(_stack_rows(facts), rule, composition)
        spreads = composition.spreads(names, capacity, cohorts)
        try:
            shares = share_out(
                size,
                cohorts,
                rule,
                capacity=capacity,
                spreads=spreads,
                random=self._random,
            )
        except (UsersExhaustedError, InputError):
            # Chance may fail where `find_floors` promises that all can be shared out.
            shares = share_out(
                size, cohorts, rule, capacity=capacity, spreads=spreads, random=None
            )
            shares = shares.shuffled(self._random)
        return self._take(names, shares)

    def find_floors(
        self,
        size: int,
        cohorts: int,
        rule: FloorRule,
        composition: Composition,
        without: Collection[NodeId] = (),
    ) -> Sequence[Floor] | None:
        """Return the floors of these cohorts if all nodes known were there.

        None where everybody known could not fill them.
        """
        capacity = self._capacity(self._everybody(without), rule, composition)
        spreads = composition.spreads((), capacity, cohorts)
        try:
            shares = share_out(
                size, cohorts, rule, capacity=capacity, spreads=spreads, random=None
            )
        except (UsersExhaustedError, InputError):
            return None
        return shares.floors

    def has_more_than(self, nodes: Collection[NodeId]) -> bool:
        """Say whether a node that is not among these has users left."""
        others = self._availability.keys() - nodes
        return any(self._availability[name].available > 0 for name in others)

    def count_nodes_left(self, without: Collection[NodeId] = ()) -> int:
        """Count the nodes known, there or away, with users left."""
        return len(self._everybody(without))

    def count_people_left(self, rule: FloorRule, composition: Composition) -> int:
        """Count who of everybody known may take part in one more round."""
        return int(self._capacity(self._everybody(()), rule, composition).sum())

    def _everybody(self, without: Collection[NodeId]) -> Columns:
        """Return the facts of every node that has users left, one row each."""
        alike = self._alike.copy()
        for name in self._availability.keys() & without:
            _count_down(alike, _as_row(self._availability[name]))
        # In an order that does not depend on who came when: `verify` finds the same.
        kinds = sorted(facts for facts in alike if facts[1] > 0)
        rows = np.array(kinds, np.int64).reshape(-1, 3)
        return np.repeat(rows, [alike[facts] for facts in kinds], axis=0)

    def _capacity(
        self, nodes: Columns, rule: FloorRule, composition: Composition
    ) -> Counts:
        """Return how many people of each node may take part in one round."""
        users, available, invitations = nodes.T
        if not composition.in_proportion or not len(nodes):
            return np.array(available)
        sizes = (met.users for met in self._known.values())
        everybody = np.fromiter(sizes, np.int64, len(self._known))
        level = fullest_level(everybody, rule.corrupt, rule.dropout)
        in_play = np.minimum(users, level) * self._most - invitations
        return np.asarray(np.clip(in_play, 0, available))

    def _take(self, names: Sequence[NodeId], shares: Shares) -> list[Draw]:
        """Draw each node's people and deal them, in random order, to the cohorts."""
        more: defaultdict[int, list[int]] = defaultdict(list)
        for cohort, nodes in enumerate(shares.more):
            for place in nodes.tolist():
                more[place].append(cohort)
        users: list[dict[NodeId, tuple[Pseudonym, ...]]] = [{} for _ in shares.more]
        people, each = shares.people, shares.each.tolist()
        for place in np.flatnonzero(people).tolist():
            name, node = names[place], self._nodes[names[place]]
            taken = node.take(int(people[place]), self._random)
            order = self._random.permutation(taken).tolist() if taken[1:] else taken
            start = 0
            for cohort, given in enumerate(users):
                end = start + each[place] + (cohort in more[place])
                if end > start:
                    given[name] = tuple(node.names[i] for i in order[start:end])
                start = end
            self._refresh_node(name)
        return [Draw(*pair) for pair in zip(users, shares.floors, strict=True)]


def _as_row(availability: NodeAvailability) -> tuple[int, int, int]:
    return availability.users, availability.available, availability.invitations


def _stack_rows(availabilities: Sequence[NodeAvailability]) -> Columns:
    rows = [_as_row(availability) for availability in availabilities]
    return np.array(rows, np.int64).reshape(-1, 3)


def _count_down(counter: Counter[Key], key: Key) -> None:
    """Count one down; what is counted no more is not there."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
