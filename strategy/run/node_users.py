"""One node's users, and how often each of them was invited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Pseudonym: TypeAlias = str


class Standing(NamedTuple):
    """What counts of a node when cohorts are planned.

    Attributes
    ----------
    users : who live there.
    available : of them who may be invited once more.
    invitations : how often they may still be invited, each time counted.
    busiest : how often the most invited of them was.
    """

    users: int
    available: int
    invitations: int
    busiest: int = 0


@dataclass(slots=True)
class NodeUsers:
    """A node's users, of whom each may be invited `most` times.

    `pool` holds, in random order, the users whose count is `level`, the lowest.
    """

    names: tuple[Pseudonym, ...]
    most: int
    counts: npt.NDArray[np.uint16] = field(init=False)
    pool: list[int] = field(default_factory=list)
    level: int = 0

    def __post_init__(self) -> None:
        self.counts = np.zeros(len(self.names), np.uint16)

    def standing(self) -> Standing:
        """Sum the node up."""
        users, most = len(self.names), self.most
        if most == 1 and self.level == 0:  # by far the most frequent case
            left = len(self.pool)
            return Standing(users, left, left, int(left < users))
        left = int((most - np.minimum(self.counts, most).astype(np.int64)).sum())
        return Standing(
            users, int((self.counts < most).sum()), left, int(self.counts.max())
        )

    def copy(self) -> NodeUsers:
        """Give the node as it is now, for taking a draw back."""
        other = NodeUsers(self.names, self.most, list(self.pool), self.level)
        other.counts[:] = self.counts
        return other

    def take(self, count: int, random: np.random.Generator) -> list[int]:
        """Take `count` different users, the least invited first."""
        start = max(0, len(self.pool) - count)
        taken = self.pool[start:]
        del self.pool[start:]
        if len(taken) < count:  # everyone was asked `level` times: begin anew
            self.level += 1
            assert self.level < self.most, "more users taken than available"
            others = np.setdiff1d(np.flatnonzero(self.counts == self.level), taken)
            order = random.permutation(others).tolist()
            missing = count - len(taken)
            # Whoever is in this cohort already may come again, but not into it.
            self.pool = random.permutation(order[missing:] + taken).tolist()
            taken = taken + order[:missing]
        if len(taken) < count:  # a user given back lags more than one time behind
            others = np.setdiff1d(np.flatnonzero(self.counts < self.most), taken)
            lagging = others[np.argsort(self.counts[others], kind="stable")]
            taken += [int(place) for place in lagging[: count - len(taken)]]
            self.counts[taken] += 1
            self.fill(random)
            return taken
        self.counts[taken] += 1
        return taken

    def give_back(
        self, users: Sequence[Pseudonym], random: np.random.Generator
    ) -> None:
        """Unmark users who were taken."""
        places = {user: place for place, user in enumerate(self.names)}
        self.counts[[places[user] for user in users]] -= 1
        self.fill(random)

    def fill(self, random: np.random.Generator) -> None:
        """Find the least invited users anew."""
        if len(self.names) == 1:  # a node of one user, of which there may be many
            self.level = int(self.counts[0])
            self.pool = [0] if self.level < self.most else []
            return
        self.level = int(self.counts.min())
        least = np.flatnonzero(self.counts == self.level)
        may = least if self.level < self.most else least[:0]
        self.pool = random.permutation(may).tolist()
