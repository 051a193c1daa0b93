"""How many deal and how many must be accepted, from the threat alone."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from scipy import stats

from wallflower.protocol.secure_sum.sealed.sizes import (
    DealingSizes,
    dealing_sizes,
    first_asked,
)
from wallflower.protocol.secure_sum.threat import Threat

TENTH = Fraction(1, 10)
HONEST, LYING = Threat(TENTH, TENTH), Threat(TENTH, TENTH, malicious_server=True)


@pytest.mark.parametrize(
    ("threat", "nodes", "sizes"),
    [
        (HONEST, 2, DealingSizes(2, 2, 2, 2)),
        (HONEST, 3, DealingSizes(3, 3, 3, 3)),
        (HONEST, 20, DealingSizes(20, 3, 3, 3)),
        (HONEST, 64, DealingSizes(64, 8, 8, 8)),
        (HONEST, 1024, DealingSizes(40, 22, 13, 13)),
        (LYING, 20, DealingSizes(20, 12, 20, 3)),
        (LYING, 1024, DealingSizes(137, 101, 137, 65)),
    ],
)
def test_sizes_follow_from_the_threat(
    threat: Threat, nodes: int, sizes: DealingSizes
) -> None:
    assert dealing_sizes(threat, nodes) == sizes


@pytest.mark.parametrize("nodes", [65, 128, 1024, 8192, 65536])
def test_dealers_are_rarely_all_corrupt_even_if_only_honest_nodes_vanish(
    nodes: int,
) -> None:
    sizes = dealing_sizes(HONEST, nodes)
    corrupt = HONEST.corrupt_nodes(nodes)
    staying = nodes - math.ceil(TENTH * nodes)

    def all_corrupt(count: int) -> Fraction:
        return Fraction(math.comb(corrupt, count), math.comb(staying, count))

    assert all_corrupt(sizes.accepted) <= Fraction(1, 2**40)
    assert all_corrupt(sizes.accepted - 1) > Fraction(1, 2**40)
    assert sizes.dealers == sizes.accepted


@pytest.mark.parametrize("nodes", [65, 1024, 65536])
def test_a_lying_server_has_no_subset_of_corrupt_dealers_to_choose(nodes: int) -> None:
    """P[as many corrupt among the drawn as must be accepted] ≤ 2^-(40 + 80)."""
    sizes = dealing_sizes(LYING, nodes)
    corrupt = LYING.corrupt_nodes(nodes)
    ways = sum(
        math.comb(corrupt, k) * math.comb(nodes - corrupt, sizes.members - k)
        for k in range(sizes.accepted, min(corrupt, sizes.members) + 1)
    )
    assert Fraction(ways, math.comb(nodes, sizes.members)) <= Fraction(1, 2**120)
    assert sizes.dealers == sizes.members


@pytest.mark.parametrize("threat", [HONEST, LYING])
@pytest.mark.parametrize("nodes", [2, 3, 4, 17, 64])
def test_in_small_runs_colluders_are_counted(threat: Threat, nodes: int) -> None:
    sizes = dealing_sizes(threat, nodes)
    assert sizes.accepted > threat.corrupt_nodes(nodes)
    assert sizes.threshold > threat.corrupt_nodes(nodes)
    assert sizes.accepted <= sizes.dealers <= sizes.members == nodes


def test_what_a_node_pays_does_not_grow_with_the_run() -> None:
    small, large = dealing_sizes(HONEST, 1024), dealing_sizes(HONEST, 65536)
    assert large.members <= small.members + 2
    assert large.dealers <= small.dealers + 1


@pytest.mark.parametrize(
    ("members", "threshold"), [(42, 23), (137, 101), (20, 3), (8, 2)]
)
def test_of_those_asked_first_enough_answer_but_once_in_a_thousand(
    members: int, threshold: int
) -> None:
    def too_few(asked: int) -> float:
        return float(stats.binom.cdf(threshold - 1, asked, 0.9))

    asked = first_asked(members, threshold, Fraction(1, 10))
    assert threshold < asked < members
    assert too_few(asked) <= 0.001 < too_few(asked - 1)


def test_where_nobody_may_be_missing_all_are_asked_at_once() -> None:
    assert first_asked(3, 3, Fraction(1, 10)) == 3
    assert first_asked(4, 2, Fraction(1, 10)) == 4
