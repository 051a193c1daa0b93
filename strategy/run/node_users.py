"""One node's users, and how often each of them was invited."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from wallflower.protocol.messages.describe import Mask

Pseudonym: TypeAlias = str


class NodeAvailability(NamedTuple):
    """What counts of a node when cohorts are planned.

    Attributes
    ----------
    users : who live there.
    available : of them who may be invited once more.
    invitations : how often they were invited, each time counted.
    busiest : how often the most invited of them was.
    left_out : whom the node leaves out, and who were not invited as often as may be.
    """

    users: int
    available: int
    invitations: int
    busiest: int = 0
    left_out: int = 0


@dataclass(slots=True)
class NodeUsers:
    """A node's users, of whom each may be invited `most` times.

    `pool` holds, in random order, the users whose count is `level`, the lowest. Those
    in `out`, whom the node leaves out, are never taken.
    """

    names: tuple[Pseudonym, ...]
    most: int
    counts: npt.NDArray[np.uint16] = field(init=False)
    pool: list[int] = field(default_factory=list)
    level: int = 0
    out: Mask | None = None

    def __post_init__(self) -> None:
        self.counts = np.zeros(len(self.names), np.uint16)

    def summarize(self) -> NodeAvailability:
        """Sum the node up."""
        users, most = len(self.names), self.most
        # By far the most frequent case.
        if most == 1 and self.level == 0 and self.out is None:
            left = len(self.pool)
            return NodeAvailability(users, left, users - left, int(left < users))
        left = int((self._limited_counts() < most).sum())
        return NodeAvailability(
            users,
            left,
            int(self.counts.sum()),
            int(self.counts.max()),
            int((self.counts < most).sum()) - left,
        )

    def leave_out(self, out: Mask | None, random: np.random.Generator) -> None:
        """Never take these users; None leaves nobody out.

        Where that is no news of anybody who may be taken, later draws stay as they are:
        who was asked before is left out by a node that keeps a ledger, and by no other.
        """
        if self.out is None and out is None:
            return
        before = self._limited_counts() < self.most
        self.out = out
        if not np.array_equal(before, self._limited_counts() < self.most):
            self.refill(random)

    def has_left_out(self, users: Set[Pseudonym]) -> bool:
        """Say whether the node leaves one of these users out."""
        if self.out is None:
            return False
        places = np.flatnonzero(self.out).tolist()
        return any(self.names[place] in users for place in places)

    def _limited_counts(self) -> npt.NDArray[np.uint16]:
        """Return how often each was invited; as often as may be where left out."""
        if self.out is None:
            return self.counts
        return np.where(self.out, np.uint16(self.most), self.counts)

    def take(self, count: int, random: np.random.Generator) -> list[int]:
        """Take `count` different users, the least invited first."""
        start = max(0, len(self.pool) - count)
        taken = self.pool[start:]
        del self.pool[start:]
        if len(taken) < count:  # everyone was asked `level` times: begin anew
            self.level += 1
            assert self.level < self.most, "more users taken than available"
            counts = self._limited_counts()
            others = np.setdiff1d(np.flatnonzero(counts == self.level), taken)
            order = random.permutation(others).tolist()
            missing = count - len(taken)
            # Whoever is in this cohort already may come again, but not into it.
            self.pool = random.permutation(order[missing:] + taken).tolist()
            taken = taken + order[:missing]
        if len(taken) < count:  # a user given back lags more than one time behind
            counts = self._limited_counts()
            others = np.setdiff1d(np.flatnonzero(counts < self.most), taken)
            lagging = others[np.argsort(self.counts[others], kind="stable")]
            taken += [int(place) for place in lagging[: count - len(taken)]]
            self.counts[taken] += 1
            self.refill(random)
            return taken
        self.counts[taken] += 1
        return taken

    def give_back(
        self, users: Sequence[Pseudonym], random: np.random.Generator
    ) -> None:
        """Unmark users who were taken."""
        places = {user: place for place, user in enumerate(self.names)}
        self.counts[[places[user] for user in users]] -= 1
        self.refill(random)

    def refill(self, random: np.random.Generator) -> None:
        """Find the least invited users anew."""
        counts = self._limited_counts()
        if len(self.names) == 1:  # a node of one user, of which there may be many
            self.level = int(counts[0])
            self.pool = [0] if self.level < self.most else []
            return
        self.level = int(counts.min())
        least = np.flatnonzero(counts == self.level)
        may = least if self.level < self.most else least[:0]
        self.pool = random.permutation(may).tolist()


@dataclass(slots=True)
class CountedUsers(NodeUsers):
    """A node of whom only the number of its users is known, for plans."""

    users: int = 0
    invitations: int = 0

    def summarize(self) -> NodeAvailability:
        """Sum the node up: nobody is invited again before everybody was."""
        left = self.users * self.most - self.invitations
        busiest = -(-self.invitations // self.users)
        return NodeAvailability(
            self.users, min(self.users, left), self.invitations, busiest
        )

    def take(self, count: int, random: np.random.Generator) -> list[int]:
        """Count `count` different users as invited; they have no places."""
        self.invitations += count
        return []
