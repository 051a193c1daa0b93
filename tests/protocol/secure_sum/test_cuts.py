from __future__ import annotations

import math
from fractions import Fraction
from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallflower.protocol.secure_sum.secagg_plus import ring_neighbours
from wallflower.protocol.secure_sum.tails import HalfWindows
from wallflower.protocol.secure_sum.threat import Threat, sparse_graph_size


def server_can_cut(
    nodes: int, degree: int, threshold: int, colluding: set[int]
) -> bool:
    """Try every set of honest nodes that a lying server could leave in the sum."""
    names = [str(place) for place in range(nodes)]
    near = [
        {int(name) for name in ring_neighbours(names, place, degree)}
        for place in range(nodes)
    ]
    honest = [place for place in range(nodes) if place not in colluding]
    return any(
        all(len(near[place] & (kept | colluding)) >= threshold for place in kept)
        and not is_connected(kept, near)
        for kept in map(
            set,
            chain.from_iterable(
                combinations(honest, size) for size in range(2, len(honest) + 1)
            ),
        )
    )


def is_connected(kept: set[int], near: list[set[int]]) -> bool:
    reached, fresh = set[int](), {min(kept)}
    while fresh:
        reached |= fresh
        fresh = {place for one in fresh for place in near[one] & kept} - reached
    return reached == kept


def two_windows_hold(
    nodes: int, half: int, colluders: int, colluding: set[int]
) -> bool:
    """Look for two disjoint half-windows with so many colluders each."""
    windows = [{(start + i) % nodes for i in range(half)} for start in range(nodes)]
    rich = [window for window in windows if len(window & colluding) >= colluders]
    return any(not one & other for one in rich for other in rich)


RINGS = [(10, 4, 4, 4), (12, 4, 4, 4), (12, 4, 3, 2), (13, 6, 4, 4), (13, 6, 5, 6)]


@pytest.mark.parametrize(("nodes", "degree", "threshold", "colluding"), RINGS)
def test_every_cut_needs_two_half_windows_of_colluders(
    nodes: int, degree: int, threshold: int, colluding: int
) -> None:
    half = degree // 2
    cuts = [
        placement
        for placement in map(set, combinations(range(nodes), colluding))
        if server_can_cut(nodes, degree, threshold, placement)
    ]
    assert cuts
    for placement in cuts:
        assert two_windows_hold(nodes, half, threshold - half, placement)


@pytest.mark.parametrize(("nodes", "degree", "threshold", "colluding"), RINGS)
def test_the_chance_for_two_half_windows_counts_all_placements(
    nodes: int, degree: int, threshold: int, colluding: int
) -> None:
    half = degree // 2
    placements = [set(places) for places in combinations(range(nodes), colluding)]
    first, second = set(range(half)), set(range(half, degree))
    both = sum(
        min(len(first & places), len(second & places)) >= threshold - half
        for places in placements
    )
    windows = HalfWindows(nodes, colluding, degree)
    assert windows.both_hold(threshold - half) == Fraction(both, len(placements))


@pytest.mark.parametrize("dropout", ["1/20", "1/10"])
@pytest.mark.parametrize("corrupt", ["1/20", "1/10", "1/5"])
@pytest.mark.parametrize("nodes", [512, 1024, 4096, 65536])
def test_a_lying_server_that_chooses_the_dropouts_does_not_cut_the_ring(
    nodes: int, corrupt: str, dropout: str
) -> None:
    threat = Threat(Fraction(corrupt), Fraction(dropout), malicious_server=True)
    sizes = sparse_graph_size(threat, nodes)
    assert sizes is not None
    half, colluding = sizes.helpers // 2, threat.corrupt_nodes(nodes)
    held = sizes.threshold - half
    chance = Fraction(0)
    for first in range(held, min(half, colluding) + 1):
        one = math.comb(colluding, first) * math.comb(nodes - colluding, half - first)
        left, places = colluding - first, nodes - half
        other = sum(
            math.comb(left, second) * math.comb(places - left, half - second)
            for second in range(held, min(half, left) + 1)
        )
        chance += Fraction(
            one * other, math.comb(nodes, half) * math.comb(places, half)
        )
    # Half of 2^-40, after 2^80 tries of a cohort's id.
    assert math.comb(nodes, 2) * chance * 2**80 <= Fraction(1, 2**41)


@settings(max_examples=60, deadline=None)
@given(st.integers(8, 40), st.data())
def test_floats_and_integers_decide_alike(nodes: int, data: st.DataObject) -> None:
    degree = 2 * data.draw(st.integers(1, (nodes - 2) // 2))
    windows = HalfWindows(nodes, data.draw(st.integers(0, nodes)), degree)
    held = data.draw(st.integers(0, degree // 2))
    bits = data.draw(st.integers(0, 60))
    exact = windows.pairs * windows.both_hold(held) * 2**bits <= 1
    assert windows.rarely_hold(held, bits) == exact
