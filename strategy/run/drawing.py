"""Who is asked: users never asked before, spread over nodes.

The registry knows every node's users by pseudonym and how often each was invited. A
draw marks its users at once. They are unmarked only if no invitation was sent, or if
their node said that it refused before it showed anybody the arm. Of nodes that are
away since a restart it knows how many users they have: whether anybody is left is asked
of everybody known, not of those who happen to be there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from wallflower.protocol.errors import InputError, MalformedMessageError
from wallflower.protocol.identity.canonical import check_name
from wallflower.protocol.messages.port import NodeId
from wallflower.protocol.privacy.honest_floor import SPARE, Floor, FloorRule
from wallflower.strategy.run.node_users import NodeUsers, Pseudonym, Standing
from wallflower.strategy.run.sharing import UsersExhaustedError, fitting, largest_first

Key = TypeVar("Key")
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
        self._known: dict[NodeId, int] = {}  # users of every node, there or away
        self._standing: dict[NodeId, Standing] = {}
        self._alike: Counter[tuple[int, int]] = Counter()  # by users and invitations
        self._busiest: Counter[int] = Counter()
        self._open: set[NodeId] = set()  # there, with users who may be invited
        self.visitors: set[NodeId] = set()  # nodes that come now and then

    def __contains__(self, node_id: NodeId) -> bool:
        return node_id in self._nodes

    @property
    def nodes(self) -> KeysView[NodeId]:
        """Every node that described its users."""
        return self._nodes.keys()

    @property
    def known(self) -> Mapping[NodeId, int]:
        """Every node that ever described its users, with their number."""
        return MappingProxyType(self._known)

    @property
    def population(self) -> int:
        """All users of all nodes."""
        return sum(len(node.names) for node in self._nodes.values())

    @property
    def remaining(self) -> int:
        """Users who may be invited at least once more."""
        return self.left_on(self._nodes)

    def left_on(self, nodes: Iterable[NodeId]) -> int:
        """Users of these nodes who may be invited at least once more."""
        return sum(self._standing[n].available for n in nodes if n in self._open)

    @property
    def most_invited(self) -> int:
        """How often the most invited user was invited."""
        return max(self._most_invited, max(self._busiest, default=0))

    def add_node(
        self, node_id: NodeId, users: Sequence[Pseudonym], *, visits: bool = False
    ) -> None:
        """Take a node's own description of its users, and whether it only visits.

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
        if visits:
            self.visitors.add(node_id)
        self._count(node_id, self._earlier.pop(node_id, Counter()))

    def know(self, nodes: Mapping[NodeId, int]) -> None:
        """Take from the journal which nodes there were, and how many users each had."""
        for name, users in nodes.items():
            if name not in self._nodes:
                self._known[name] = users
                self._look_at(name)

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
                self._count(node_id, often)
                continue
            self._earlier.setdefault(node_id, Counter()).update(often)
            if node_id in self._known:
                self._look_at(node_id)

    def _count(self, node_id: NodeId, often: Counter[Pseudonym]) -> None:
        node = self._nodes[node_id]
        if often:
            node.counts += np.array([often[name] for name in node.names], np.uint16)
        node.fill(self._random)
        self._look_at(node_id)

    def _look_at(self, node_id: NodeId) -> None:
        """Take what became of a node into account."""
        node, before = self._nodes.get(node_id), self._standing.get(node_id)
        if node is None:
            users = self._known[node_id]
            asked = self._earlier.get(node_id, Counter()).values()
            sent = sum(min(often, self._most) for often in asked)
            now = Standing(users, 0, users * self._most - sent)
        else:
            now = node.standing()
            self._known[node_id] = now.users
        if before is not None:
            _less(self._alike, (before.users, before.invitations))
            _less(self._busiest, before.busiest)
        self._standing[node_id] = now
        self._alike[now.users, now.invitations] += 1
        self._busiest[now.busiest] += 1
        (self._open.add if now.available else self._open.discard)(node_id)

    def give_back(self, users: Mapping[NodeId, Sequence[Pseudonym]]) -> None:
        """Unmark users who were drawn and never saw an arm."""
        for name, given in users.items():
            self._nodes[name].give_back(given, self._random)
            self._look_at(name)

    def choose(
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
        left = np.array([self._standing[n].available for n in names])[order]
        by_left = np.argsort(-left, kind="stable")
        held = np.cumsum(left[by_left])
        enough = int(np.searchsorted(held, SPARE * users)) + 1
        picked = order[by_left[: max(most, enough)]]
        return tuple(names[index] for index in sorted(picked.tolist()))

    def draw_all(
        self, sizes: Sequence[int], rule: FloorRule, among: Iterable[NodeId]
    ) -> list[Draw]:
        """Draw several cohorts, or nobody: what was never sent may be undone.

        Where chance shares the first cohorts out so that the last one fails, they are
        shared out as `suffices` does it.
        """
        names = [name for name in among if name in self._nodes]
        before = [self._nodes[name].copy() for name in names]

        def undo() -> None:
            for name, node in zip(names, before, strict=True):
                self._nodes[name] = node.copy()
                self._look_at(name)

        try:
            return [self.draw(size, rule, names) for size in sizes]
        except (UsersExhaustedError, InputError):
            undo()
        try:
            return [self.draw(size, rule, names, by_chance=False) for size in sizes]
        except (UsersExhaustedError, InputError):
            undo()
            raise

    def suffices(
        self,
        sizes: Sequence[int],
        rule: FloorRule,
        without: Collection[NodeId] = (),
    ) -> bool:
        """Say whether everybody known, there or away, could fill these cohorts."""
        users, left = self._everybody(without)
        try:
            for size in sizes:
                share, _ = fitting(size, rule, np.minimum(users, left), largest_first)
                left = left - share
        except (UsersExhaustedError, InputError):
            return False
        return True

    def everybody_left(self, without: Collection[NodeId] = ()) -> tuple[int, int]:
        """Count the nodes known, there or away, with users left, and invitations."""
        users, left = self._everybody(without)
        return len(users), int(left.sum())

    def _everybody(
        self, without: Collection[NodeId]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Give users and invitations left, of every node that has some."""
        alike = self._alike.copy()
        for name in self._standing.keys() & without:
            standing = self._standing[name]
            _less(alike, (standing.users, standing.invitations))
        # In an order that does not depend on who came when: `verify` finds the same.
        kinds = sorted(pair for pair in alike if pair[1] > 0)
        both = np.array(kinds, np.int64).reshape(-1, 2)
        each = np.repeat(both, [alike[pair] for pair in kinds], axis=0)
        return each[:, 0], each[:, 1]

    def draw(
        self,
        size: int,
        rule: FloorRule,
        among: Iterable[NodeId] | None = None,
        *,
        by_chance: bool = True,
    ) -> Draw:
        """Draw `size` users, or as many more as the planned floor needs.

        Parameters
        ----------
        size : users the policy wants.
        rule : the floor the policy planned with.
        among : nodes that can be reached now; None means all.
        by_chance : who gets one user more is drawn; else nodes with most users left do.

        Raises
        ------
        UsersExhaustedError
            Too few users are left; nobody was marked.
        InputError
            The users that are left cannot meet any floor (too few nodes).
        """
        names = [n for n in (among if among is not None else self._nodes) if n in self]
        capacity = np.array([self._standing[n].available for n in names])
        order = self._random_order if by_chance else largest_first
        share, floor = fitting(size, rule, capacity, order)
        return Draw(self._take(names, share), floor)

    def _random_order(
        self, nodes: npt.NDArray[np.int64], _: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        return self._random.permutation(nodes)

    def _take(
        self, names: Sequence[NodeId], share: npt.NDArray[np.int64]
    ) -> dict[NodeId, tuple[Pseudonym, ...]]:
        users: dict[NodeId, tuple[Pseudonym, ...]] = {}
        for name, count in zip(names, share.tolist(), strict=True):
            if count:
                node = self._nodes[name]
                taken = node.take(count, self._random)
                users[name] = tuple(node.names[i] for i in taken)
                self._look_at(name)
        return users


def _less(counter: Counter[Key], key: Key) -> None:
    """Count one down; what is counted no more is not there."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
