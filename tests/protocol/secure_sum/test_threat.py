from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallflower.protocol.errors import InputError
from wallflower.protocol.secure_sum.tails import Draw
from wallflower.protocol.secure_sum.threat import (
    Sizes,
    Threat,
    committee_size,
    graph_size,
    least_contributors,
    quorum_for,
    sparse_graph_size,
)
from wallflower.protocol.wire.cohort_pb2 import Rational
from wallflower.protocol.wire.cohort_pb2 import Threat as WireThreat

TENTH = Fraction(1, 10)
# c/t at privacy 2^-40, correctness 2^-30, unbounded population, no grinding.
SEMI_HONEST = {
    ("1/10", "1/20"): (34, 21),
    ("1/10", "1/10"): (42, 23),
    ("1/10", "1/5"): (61, 28),
    ("1/5", "1/20"): (48, 33),
    ("1/5", "1/10"): (63, 39),
    ("1/5", "1/5"): (96, 51),
    ("33/100", "1/20"): (74, 55),
    ("33/100", "1/10"): (98, 67),
    ("33/100", "1/5"): (170, 102),
}
MALICIOUS = {
    ("1/10", "1/20"): (65, 47),
    ("1/10", "1/10"): (101, 69),
    ("1/10", "1/5"): (237, 150),
    ("1/5", "1/20"): (92, 71),
    ("1/5", "1/10"): (152, 111),
    ("1/5", "1/5"): (416, 281),
    ("33/100", "1/20"): (143, 116),
    ("33/100", "1/10"): (260, 201),
    ("33/100", "1/5"): (967, 696),
}


@pytest.mark.parametrize("fractions", SEMI_HONEST)
def test_committees_match_the_table_for_a_curious_server(
    fractions: tuple[str, str],
) -> None:
    threat = Threat(Fraction(fractions[0]), Fraction(fractions[1]))
    assert committee_size(threat, None) == Sizes(*SEMI_HONEST[fractions])


@pytest.mark.parametrize("corrupt", [Fraction(1, 20), TENTH, Fraction(1, 5)])
def test_a_lying_server_may_try_two_to_the_eighty_cohort_ids(corrupt: Fraction) -> None:
    sizes = committee_size(Threat(corrupt, Fraction(0), malicious_server=True), None)
    # So many colluders let two different closed sets both reach t answers.
    enough = 2 * sizes.threshold - sizes.helpers
    chance = sum(
        math.comb(sizes.helpers, k) * corrupt**k * (1 - corrupt) ** (sizes.helpers - k)
        for k in range(enough, sizes.helpers + 1)
    )
    assert chance * 2**80 <= Fraction(1, 2**40)


@pytest.mark.parametrize(
    ("dropout", "nodes"), [("1/2", 1000), ("3/5", 2000), ("7/10", 4000)]
)
def test_the_graph_of_those_who_stay_is_connected(dropout: str, nodes: int) -> None:
    sizes = sparse_graph_size(Threat(Fraction(0), Fraction(dropout)), nodes)
    assert sizes is not None
    lost, pairs = math.ceil(Fraction(dropout) * nodes), Fraction(nodes * (nodes - 1), 2)
    all_lost = Fraction(
        math.comb(lost, sizes.helpers), math.comb(nodes - 1, sizes.helpers)
    )
    assert pairs * all_lost <= Fraction(1, 2**41)


@pytest.mark.parametrize("fractions", MALICIOUS)
def test_committees_match_the_table_for_a_lying_server(
    fractions: tuple[str, str],
) -> None:
    corrupt, dropout = Fraction(fractions[0]), Fraction(fractions[1])
    threat = Threat(corrupt, dropout, malicious_server=True, grinding_bits=0)
    assert committee_size(threat, None) == Sizes(*MALICIOUS[fractions])


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [(5, (8, 5)), (7, (26, 14)), (10, (52, 28)), (14, (62, 33)), (20, (70, 37))],
)
def test_graphs_match_the_table_for_a_curious_server(
    exponent: int, expected: tuple[int, int]
) -> None:
    assert sparse_graph_size(Threat(TENTH, TENTH), 2**exponent) == Sizes(*expected)


@pytest.mark.parametrize(
    ("exponent", "expected"), [(5, (12, 9)), (7, (38, 26)), (10, (118, 81))]
)
def test_graphs_match_the_table_for_a_lying_server(
    exponent: int, expected: tuple[int, int]
) -> None:
    threat = Threat(TENTH, TENTH, malicious_server=True, grinding_bits=0)
    assert sparse_graph_size(threat, 2**exponent) == Sizes(*expected)


@pytest.mark.parametrize("nodes", range(2, 65))
def test_up_to_64_nodes_everyone_helps(nodes: int) -> None:
    threat = Threat(TENTH, TENTH)
    committee, graph = committee_size(threat, nodes), graph_size(threat, nodes)
    assert committee.helpers == nodes
    assert graph.helpers == nodes - 1
    if nodes <= 3:
        assert committee.threshold == nodes
        assert graph.threshold == nodes - 1
    else:
        assert committee.threshold == max(2, -(-nodes // 10) + 1)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(65, 5000),
    st.integers(0, 25),
    st.integers(0, 20),
    st.booleans(),
)
def test_a_drawn_committee_meets_its_threat_exactly(
    nodes: int, corrupt: int, dropout: int, malicious: bool
) -> None:
    threat = Threat(Fraction(corrupt, 100), Fraction(dropout, 100), malicious)
    sizes = committee_size(threat, nodes)
    colluding = threat.corrupt_nodes(nodes)
    bits = threat.drawn_privacy_bits
    draw = Draw(nodes, colluding, sizes.helpers)
    assert draw.at_least(sizes.threshold, Fraction(1), bits)
    if malicious:
        most = draw.smallest_safe_threshold(Fraction(1), bits) - 1
        assert 2 * sizes.threshold > sizes.helpers + most


@pytest.mark.parametrize("nodes", [2**16, 2**20])
def test_a_lying_server_gains_nothing_by_trying_many_cohort_ids(nodes: int) -> None:
    threat = Threat(TENTH, TENTH, malicious_server=True)
    sizes = committee_size(threat, nodes)
    draw = Draw(nodes, threat.corrupt_nodes(nodes), sizes.helpers)
    # A union bound over 2^80 committees still leaves 2^-40.
    assert draw.at_least(sizes.threshold, Fraction(2**80), 40)


def test_an_infeasible_threat_names_the_nearest_feasible_one() -> None:
    threat = Threat(Fraction(1, 3), Fraction(1, 3), malicious_server=True)
    with pytest.raises(InputError, match=r"nearest feasible: dropout at most 0\.25"):
        committee_size(threat, 16)
    milder = Threat(Fraction(1, 3), Fraction(1, 4), malicious_server=True)
    assert committee_size(milder, 16).helpers == 16


def test_an_infeasible_graph_names_the_nearest_feasible_one() -> None:
    threat = Threat(Fraction(1, 2), Fraction(1, 2))
    with pytest.raises(InputError, match="nearest feasible: dropout at most"):
        graph_size(threat, 5000)


def test_where_fewer_dropouts_do_not_help_fewer_colluders_are_named() -> None:
    threat = Threat(Fraction(9, 10), Fraction(1, 10), malicious_server=True)
    with pytest.raises(InputError, match=r"nearest feasible: (dropout|corrupt)"):
        committee_size(threat, 10)


@pytest.mark.parametrize("nodes", [-1, 0, 1, 2**20 + 1])
def test_cohorts_of_one_or_of_too_many_are_refused(nodes: int) -> None:
    with pytest.raises(InputError, match="nodes of a cohort"):
        committee_size(Threat(TENTH, TENTH), nodes)
    with pytest.raises(InputError, match="nodes of a cohort"):
        graph_size(Threat(TENTH, TENTH), nodes)


@pytest.mark.parametrize("corrupt", [Fraction(-1, 10), Fraction(1), Fraction(2)])
def test_fractions_outside_zero_to_one_are_refused(corrupt: Fraction) -> None:
    with pytest.raises(InputError, match="corrupt"):
        Threat(corrupt, TENTH)


def test_a_threat_travels_and_comes_back() -> None:
    threat = Threat(Fraction(1, 3), Fraction(1, 20), malicious_server=True)
    assert Threat.from_wire(threat.to_wire()) == threat
    assert Threat.from_wire(WireThreat()) == Threat(Fraction(0), Fraction(0))
    with pytest.raises(InputError, match="corrupt is 1/0"):
        Threat.from_wire(WireThreat(corrupt=Rational(numerator=1)))


def test_the_quorum_counts_the_largest_nodes_as_colluding() -> None:
    parties = {"a": 100, "b": 5, "c": 5, "d": 5}
    assert quorum_for(7, parties, TENTH) == 107


def test_a_sum_is_over_two_honest_nodes_at_least() -> None:
    threat = Threat(TENTH, TENTH)
    assert [least_contributors(threat, n) for n in (2, 3, 4, 20, 21)] == [2, 3, 3, 4, 5]


def test_three_nodes_must_all_be_in_even_if_nobody_colludes() -> None:
    assert least_contributors(Threat(Fraction(0), TENTH), 3) == 3


def test_colluders_do_not_vanish_with_the_honest() -> None:
    threat = Threat(TENTH, TENTH)
    left = threat.among(20, 5)
    assert left.corrupt_nodes(5) == threat.corrupt_nodes(20) == 2
    assert threat.among(20, 20) == threat
    with pytest.raises(InputError, match="corrupt"):
        threat.among(20, 2)
