"""Who is asked: users never asked before, spread over nodes.

The registry knows every node's users by pseudonym and how often each was invited. A
draw marks its users at once. They are unmarked only if no invitation was sent, or if
their node said that it refused before it showed anybody the arm. Of nodes that are
away since a restart it knows how many users they have: whether anybody is left is asked
of everybody known, not of those who happen to be there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from wallflower.protocol.errors import InputError, MalformedMessageError
from wallflower.protocol.identity.canonical import check_name
from wallflower.protocol.messages.port import NodeId
from wallflower.protocol.privacy.honest_floor import SPARE, Floor, FloorRule
from wallflower.strategy.run.sharing import UsersExhaustedError, fitting, largest_first

Pseudonym: TypeAlias = str
LONGEST_PSEUDONYM = 128
MOST_USERS_OF_A_NODE = 10_000_000


@dataclass(frozen=True, slots=True)
class Draw:
    """The users of one cohort, by node, and what the cohort can promise."""

    users: Mapping[NodeId, tuple[Pseudonym, ...]]
    floor: Floor


@dataclass(slots=True)
class _Node:
    """A node's users and how often each was invited.

    `pool` holds, in random order, the users whose count is `level`, the lowest.
    """

    names: tuple[Pseudonym, ...]
    counts: npt.NDArray[np.uint16]
    pool: list[int]
    level: int = 0

    def available(self, most: int) -> int:
        """Count the users who may be invited once more."""
        if self.level == 0 and most == 1:
            return len(self.pool)
        return int((self.counts < most).sum())

    def invitations(self, most: int) -> int:
        """Count how often users may still be invited, each time counted."""
        if self.level == 0 and most == 1:
            return len(self.pool)
        return int((most - np.minimum(self.counts, most).astype(np.int64)).sum())

    def take(self, count: int, most: int, random: np.random.Generator) -> list[int]:
        """Take `count` different users, the least invited first."""
        start = max(0, len(self.pool) - count)
        taken = self.pool[start:]
        del self.pool[start:]
        if len(taken) < count:  # everyone was asked `level` times: begin anew
            self.level += 1
            assert self.level < most, "more users taken than available"
            others = np.setdiff1d(np.flatnonzero(self.counts == self.level), taken)
            order = random.permutation(others).tolist()
            missing = count - len(taken)
            # Whoever is in this cohort already may come again, but not into it.
            self.pool = random.permutation(order[missing:] + taken).tolist()
            taken = taken + order[:missing]
        if len(taken) < count:  # a user given back lags more than one time behind
            others = np.setdiff1d(np.flatnonzero(self.counts < most), taken)
            lagging = others[np.argsort(self.counts[others], kind="stable")]
            taken += [int(place) for place in lagging[: count - len(taken)]]
            self.counts[taken] += 1
            self.fill(random, most)
            return taken
        self.counts[taken] += 1
        return taken

    def fill(self, random: np.random.Generator, most: int) -> None:
        """Find the least invited users anew."""
        self.level = int(self.counts.min())
        least = np.flatnonzero(self.counts == self.level)
        may = least if self.level < most else least[:0]
        self.pool = random.permutation(may).tolist()


class UserRegistry:
    """Every node's users, and who of them may still be invited.

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
        self._nodes: dict[NodeId, _Node] = {}
        self._away: dict[NodeId, int] = {}  # users of nodes known, not seen yet
        self._earlier: dict[NodeId, Counter[Pseudonym]] = {}  # their invitations
        self._most_invited = 0
        self.visitors: set[NodeId] = set()  # nodes that come now and then

    def __contains__(self, node_id: NodeId) -> bool:
        return node_id in self._nodes

    @property
    def nodes(self) -> Sequence[NodeId]:
        """Every node that described its users."""
        return tuple(self._nodes)

    @property
    def known(self) -> Mapping[NodeId, int]:
        """Every node that ever described its users, with their number."""
        return self._away | {name: len(n.names) for name, n in self._nodes.items()}

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
        return sum(self._nodes[n].available(self._most) for n in nodes if n in self)

    @property
    def most_invited(self) -> int:
        """How often the most invited user was invited."""
        here = (int(node.counts.max()) for node in self._nodes.values())
        return max(self._most_invited, max(here, default=0))

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
        node = _Node(names, np.zeros(len(names), np.uint16), [])
        self._nodes[node_id] = node
        if visits:
            self.visitors.add(node_id)
        self._away.pop(node_id, None)
        self._count(node, self._earlier.pop(node_id, Counter()))

    def know(self, nodes: Mapping[NodeId, int]) -> None:
        """Take from the journal which nodes there were, and how many users each had."""
        self._away |= {n: users for n, users in nodes.items() if n not in self._nodes}

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
                self._count(self._nodes[node_id], often)
            else:
                self._earlier.setdefault(node_id, Counter()).update(often)

    def _count(self, node: _Node, often: Counter[Pseudonym]) -> None:
        if often:
            node.counts += np.array([often[name] for name in node.names], np.uint16)
        node.fill(self._random, self._most)

    def give_back(self, users: Mapping[NodeId, Sequence[Pseudonym]]) -> None:
        """Unmark users who were drawn and never saw an arm."""
        for name, given in users.items():
            node = self._nodes[name]
            places = {user: place for place, user in enumerate(node.names)}
            node.counts[[places[user] for user in given]] -= 1
            node.fill(self._random, self._most)

    def choose(
        self, users: int, most: int, among: Iterable[NodeId]
    ) -> tuple[NodeId, ...]:
        """Pick the nodes of a round: at most `most`, or as many as `users` need.

        All arms of a round draw from the same nodes, because nodes may differ (clinics
        do) and arms must not be told apart by them. Those with the most users left
        come first, ties at random, so that nodes run dry together. Those that have run
        dry are not picked: they carry no noise.
        """
        names = [name for name in among if self.left_on([name])]
        if not most or len(names) <= most:
            return tuple(names)
        order = self._random.permutation(len(names))
        left = np.array([self._nodes[n].available(self._most) for n in names])[order]
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
        nodes = [self._nodes[name] for name in names]
        before = [(node.counts.copy(), list(node.pool), node.level) for node in nodes]

        def undo() -> None:
            for node, (counts, pool, level) in zip(nodes, before, strict=True):
                node.counts, node.pool, node.level = counts.copy(), list(pool), level

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
        pairs = [
            (len(node.names), node.invitations(self._most))
            for name, node in self._nodes.items()
            if name not in without
        ]
        for name, users in self._away.items():
            if name in without:
                continue
            asked = self._earlier.get(name, Counter()).values()
            sent = sum(min(often, self._most) for often in asked)
            pairs.append((users, users * self._most - sent))
        # In an order that does not depend on who came when: `verify` finds the same.
        with_some = sorted(pair for pair in pairs if pair[1] > 0)
        both = np.array(with_some, np.int64).reshape(-1, 2)
        return both[:, 0], both[:, 1]

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
        capacity = np.array([self._nodes[n].available(self._most) for n in names])
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
                taken = node.take(count, self._most, self._random)
                users[name] = tuple(node.names[i] for i in taken)
        return users
