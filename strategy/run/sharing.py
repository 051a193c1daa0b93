"""How the users of a cohort are shared out over nodes that hold unequal numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from wallflower.protocol.errors import CohortVoidError, InputError
from wallflower.protocol.privacy.honest_floor import Floor, FloorRule, cohort_floor


class UsersExhaustedError(CohortVoidError):
    """Not enough users are left who may still be invited."""

    def __init__(self, wanted: int, left: int) -> None:
        super().__init__(
            "users-exhausted", f"{wanted} users wanted, {left} may still be invited"
        )


# Puts open nodes in the order in which each gets one user more.
Order: TypeAlias = Callable[
    [npt.NDArray[np.int64], npt.NDArray[np.int64]], npt.NDArray[np.int64]
]


def largest_first(
    nodes: npt.NDArray[np.int64], capacity: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Put the nodes with the most users left first."""
    return nodes[np.argsort(-capacity[nodes], kind="stable")]


def fitting(
    size: int, rule: FloorRule, capacity: npt.NDArray[np.int64], order: Order
) -> tuple[npt.NDArray[np.int64], Floor]:
    """Share out `size` users, or as many more as the planned floor needs."""
    left = int(capacity.sum())
    wanted = rule(size)
    for invited in _growing(size):
        if invited > left:
            raise UsersExhaustedError(invited, left)
        share = _spread(invited, capacity, order)
        try:
            floor = cohort_floor(share[share > 0].tolist(), rule.corrupt, rule.dropout)
        except InputError:
            continue
        if floor.honest_floor >= wanted:
            return share, floor
    raise InputError(
        "cohort", f"{size} users", f"a draw with {wanted} surely honest users"
    )


def _spread(
    count: int, capacity: npt.NDArray[np.int64], order: Order
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
    share[order(open_nodes, capacity)[:rest]] += 1
    return share


def _growing(size: int) -> Iterable[int]:
    """Try size, then about 2 % more each time, up to four times as many."""
    return itertools.takewhile(
        lambda invited: invited <= 4 * size + 8,
        (size + step * max(1, size // 50) for step in itertools.count()),
    )
