"""The graph of secagg-plus: a Harary graph on hash-shuffled parties."""

from __future__ import annotations

from collections.abc import Sequence


def ring_neighbours(order: Sequence[str], position: int, degree: int) -> list[str]:
    """Neighbours of the party at `position`: the nearest `degree`, half each way.

    In the complete graph (degree n − 1, maybe odd) they are all others. The order of
    the list is the order of shares.

    Examples
    --------
    >>> ring_neighbours("abcdef", 0, 2)
    ['b', 'f']
    """
    nodes = len(order)
    if degree >= nodes - 1:
        return [order[(position + step) % nodes] for step in range(1, nodes)]
    half = degree // 2
    ahead = [order[(position + step) % nodes] for step in range(1, half + 1)]
    behind = [order[(position - step) % nodes] for step in range(1, half + 1)]
    return ahead + behind
