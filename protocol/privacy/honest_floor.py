"""How many users of a cohort are surely honest and present (docs/mathematics.md).

Every user's share of noise is calibrated to h, the honest floor: a sum is released only
when at least ``quorum`` users are in it, and of those at most the users of the corrupt
nodes are not honest, so h honest shares are surely there. Nodes hold users, so a
corrupt or vanished node takes all of its users along, and an adversary would take the
largest ones: the largest are counted.

The threat is meant per cohort: at most the fraction `corrupt` of *its* nodes collude
with the server, at most the fraction `dropout` of them vanish.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

from wallflower.protocol.errors import InputError


@dataclass(frozen=True, slots=True)
class Floor:
    """What a cohort can promise.

    Attributes
    ----------
    cohort_size : n, users asked.
    honest_floor : h, users surely honest and present in any released sum.
    quorum : users below which no sum is released, h + the most the corrupt can hold.
    """

    cohort_size: int
    honest_floor: int
    quorum: int


def cohort_floor(sizes: Sequence[int], corrupt: Fraction, dropout: Fraction) -> Floor:
    """Derive the floor of a cohort from how many users each of its nodes holds.

    Corrupt nodes are ⌈γN⌉ (never fewer than stated), vanished ones ⌊δN⌋ nodes or ⌊δn⌋
    single users, whichever takes more users along.

    Raises
    ------
    InputError
        Fewer than two nodes, or nobody left who is surely honest.

    Examples
    --------
    >>> cohort_floor([10] * 10, Fraction(1, 10), Fraction(1, 10))
    Floor(cohort_size=100, honest_floor=80, quorum=90)
    """
    if len(sizes) < 2:
        raise InputError("nodes in a cohort", len(sizes), "at least 2")
    largest = sorted(sizes, reverse=True)
    cohort_size = sum(largest)
    corrupt_nodes = -(-corrupt.numerator * len(largest) // corrupt.denominator)
    vanished_nodes = dropout.numerator * len(largest) // dropout.denominator
    vanished_users = max(
        sum(largest[:vanished_nodes]),
        dropout.numerator * cohort_size // dropout.denominator,
    )
    quorum = cohort_size - vanished_users
    honest_floor = quorum - sum(largest[:corrupt_nodes])
    if honest_floor < 1:
        raise InputError(
            "cohort",
            f"{cohort_size} users on {len(largest)} nodes",
            f"more users or nodes: with corrupt {corrupt} and dropout {dropout} nobody "
            "in it is surely honest and present",
        )
    return Floor(cohort_size, honest_floor, quorum)


@dataclass(frozen=True, slots=True)
class FloorRule:
    """The floor a cohort of n users has when it is spread evenly over all nodes.

    What a policy plans with and a simulator uses. A real draw that comes out lower,
    because nodes are uneven, invites more users until it reaches this floor.
    """

    nodes: int
    corrupt: Fraction
    dropout: Fraction

    def __call__(self, cohort_size: int) -> int:
        """Return h for n; 0 where no cohort of that size can promise anything."""
        try:
            return self.floor(cohort_size).honest_floor
        except InputError:
            return 0

    def floor(self, cohort_size: int) -> Floor:
        """Return the whole floor of an even spread."""
        nodes = min(self.nodes, cohort_size)
        if nodes < 2:
            raise InputError(
                "cohort", f"{cohort_size} users", "at least 2 users, nodes"
            )
        each, more = divmod(cohort_size, nodes)
        sizes = [each + 1] * more + [each] * (nodes - more)
        return cohort_floor(sizes, self.corrupt, self.dropout)


# A round draws from a quarter more users than it needs: uneven nodes make draws larger.
SPARE = 1.25


@dataclass(frozen=True, slots=True)
class PlannedFloors:
    """The floors that a run on these nodes will have, before anybody is asked.

    A round draws from `most` nodes, or from as many as its users need; how many that
    is depends on the arms that are left. The lowest floor of all that may be is given.

    Attributes
    ----------
    sizes : users on each node, the largest first.
    most : nodes that a round draws from where they hold enough users; 0: all.
    arms : in the experiment.
    """

    sizes: tuple[int, ...]
    most: int
    arms: int
    corrupt: Fraction
    dropout: Fraction

    def __call__(self, cohort_size: int) -> int:
        """Return h for n; 0 where no cohort of that size can promise anything."""
        return _lowest(self, cohort_size)

    def nodes(self, users: int) -> int:
        """Return how many nodes a round of so many users draws from."""
        if not self.most or len(self.sizes) <= self.most:
            return len(self.sizes)
        held = list(accumulate(self.sizes))
        enough = bisect_left(held, SPARE * users) + 1
        return min(len(self.sizes), max(self.most, enough))


@lru_cache(maxsize=4096)
def _lowest(planned: PlannedFloors, cohort_size: int) -> int:
    drawn_from = {
        planned.nodes(active * cohort_size) for active in range(2, planned.arms + 1)
    }
    return min(
        FloorRule(nodes, planned.corrupt, planned.dropout)(cohort_size)
        for nodes in drawn_from
    )
