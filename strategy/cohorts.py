"""Who is asked: users never asked before, spread over nodes.

The registry knows every node's users by pseudonym and how often each was invited. A
draw marks its users at once; nothing ever unmarks one, because an invitation that was
sent cannot be taken back.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from protocol.encoding import check_name
from protocol.errors import CohortVoidError, InputError, MalformedMessageError
from protocol.floor import Floor, FloorRule, cohort_floor
from protocol.port import NodeId

Pseudonym: TypeAlias = str
LONGEST_PSEUDONYM = 128
MOST_USERS_OF_A_NODE = 10_000_000


class UsersExhaustedError(CohortVoidError):
    """Not enough users are left who may still be invited."""

    def __init__(self, wanted: int, left: int) -> None:
        super().__init__(
            "users-exhausted", f"{wanted} users wanted, {left} may still be invited"
        )


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
        self.counts[taken] += 1
        return taken


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
        self._earlier: dict[NodeId, Counter[Pseudonym]] = {}  # of nodes not seen yet
        self._most_invited = 0

    def __contains__(self, node_id: NodeId) -> bool:
        return node_id in self._nodes

    @property
    def nodes(self) -> Sequence[NodeId]:
        """Every node that described its users."""
        return tuple(self._nodes)

    @property
    def population(self) -> int:
        """All users of all nodes."""
        return sum(len(node.names) for node in self._nodes.values())

    @property
    def remaining(self) -> int:
        """Users who may be invited at least once more."""
        return sum(node.available(self._most) for node in self._nodes.values())

    @property
    def most_invited(self) -> int:
        """How often the most invited user was invited."""
        here = (int(node.counts.max()) for node in self._nodes.values())
        return max(self._most_invited, max(here, default=0))

    def add_node(self, node_id: NodeId, users: Sequence[Pseudonym]) -> None:
        """Take a node's own description of its users.

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
        self._count(node, self._earlier.pop(node_id, Counter()))

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
        node.level = int(node.counts.min())
        least = np.flatnonzero(node.counts == node.level)
        may = least if node.level < self._most else least[:0]
        node.pool = self._random.permutation(may).tolist()

    def choose(
        self, users: int, most: int, among: Iterable[NodeId]
    ) -> tuple[NodeId, ...]:
        """Pick the nodes of a round: at most `most`, or as many as `users` need.

        All arms of a round draw from the same nodes, because nodes may differ (clinics
        do) and arms must not be told apart by them. Those with the most users left
        come first, ties at random, so that nodes run dry together.
        """
        names = [name for name in among if name in self._nodes]
        if not most or len(names) <= most:
            return tuple(names)
        order = self._random.permutation(len(names))
        left = np.array([self._nodes[n].available(self._most) for n in names])[order]
        by_left = np.argsort(-left, kind="stable")
        # A quarter more than needed: uneven nodes make draws larger.
        enough = int(np.searchsorted(np.cumsum(left[by_left]), 1.25 * users)) + 1
        picked = order[by_left[: max(most, enough)]]
        return tuple(names[index] for index in sorted(picked.tolist()))

    def draw_all(
        self, sizes: Sequence[int], rule: FloorRule, among: Iterable[NodeId]
    ) -> list[Draw]:
        """Draw several cohorts, or nobody: what was never sent may be undone."""
        names = [name for name in among if name in self._nodes]
        nodes = [self._nodes[name] for name in names]
        before = [(node.counts.copy(), list(node.pool), node.level) for node in nodes]
        try:
            return [self.draw(size, rule, names) for size in sizes]
        except (UsersExhaustedError, InputError):
            for node, (counts, pool, level) in zip(nodes, before, strict=True):
                node.counts, node.pool, node.level = counts, pool, level
            raise

    def draw(
        self, size: int, rule: FloorRule, among: Iterable[NodeId] | None = None
    ) -> Draw:
        """Draw `size` users, or as many more as the planned floor needs.

        Parameters
        ----------
        size : users the policy wants.
        rule : the floor the policy planned with.
        among : nodes that can be reached now; None means all.

        Raises
        ------
        UsersExhaustedError
            Too few users are left; nobody was marked.
        InputError
            The users that are left cannot meet any floor (too few nodes).
        """
        names = [n for n in (among if among is not None else self._nodes) if n in self]
        capacity = np.array([self._nodes[n].available(self._most) for n in names])
        left = int(capacity.sum())
        wanted = rule(size)
        for invited in _growing(size):
            if invited > left:
                raise UsersExhaustedError(invited, left)
            share = self._spread(invited, capacity)
            try:
                floor = cohort_floor(
                    share[share > 0].tolist(), rule.corrupt, rule.dropout
                )
            except InputError:
                continue
            if floor.honest_floor >= wanted:
                return Draw(self._take(names, share), floor)
        raise InputError(
            "cohort", f"{size} users", f"a draw with {wanted} surely honest users"
        )

    def _spread(
        self, count: int, capacity: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Share `count` users over nodes as evenly as their capacities allow."""
        low, high = 0, int(capacity.max(initial=0))
        while low < high:  # the highest level that does not overshoot
            middle = (low + high + 1) // 2
            if int(np.minimum(capacity, middle).sum()) <= count:
                low = middle
            else:
                high = middle - 1
        share = np.minimum(capacity, low)
        open_nodes = np.flatnonzero(capacity > low)
        rest = count - int(share.sum())
        share[self._random.permutation(open_nodes)[:rest]] += 1
        return share

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


def _growing(size: int) -> Iterable[int]:
    """Try size, then about 2 % more each time, up to four times as many."""
    return itertools.takewhile(
        lambda invited: invited <= 4 * size + 8,
        (size + step * max(1, size // 50) for step in itertools.count()),
    )
