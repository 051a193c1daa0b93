"""Sizes of committees and graphs, held against a search by fractions alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from wallflower.protocol.errors import InputError
from wallflower.protocol.secure_sum.sealed.sizes import as_withstood, dealing_sizes
from wallflower.protocol.secure_sum.tails import Draw
from wallflower.protocol.secure_sum.threat import (
    Sizes,
    Threat,
    committee_size,
    graph_size,
    sparse_graph_size,
)

# Few bits, so that small cohorts have sparse graphs and every event decides somewhere.
THREATS = [
    Threat(Fraction(corrupt), Fraction(dropout), lying, privacy, correctness, 3)
    for corrupt, dropout, lying, (privacy, correctness) in itertools.product(
        ("0", "1/20", "1/10", "1/5"),
        ("0", "1/20", "3/20"),
        (False, True),
        ((4, 3), (8, 2), (2, 8)),
    )
]


def at_least(population: int, marked: int, size: int, threshold: int) -> Fraction:
    """P[Hyp ≥ threshold], by counting."""
    ways = sum(
        math.comb(marked, i) * math.comb(population - marked, size - i)
        for i in range(max(threshold, 0), size + 1)
    )
    return Fraction(ways, math.comb(population, size))


def two_windows(nodes: int, colluding: int, half: int, each: int) -> Fraction:
    """P[two disjoint half-windows hold `each` colluders or more], by counting."""
    ways = sum(
        math.comb(half, i)
        * math.comb(half, j)
        * math.comb(nodes - 2 * half, colluding - i - j)
        for i, j in itertools.product(range(max(each, 0), half + 1), repeat=2)
        if i + j <= colluding
    )
    return Fraction(ways, math.comb(nodes, colluding))


def smallest_threshold(
    population: int, marked: int, size: int, allowed: Fraction
) -> int:
    return next(
        t for t in range(size + 2) if at_least(population, marked, size, t) <= allowed
    )


def graphs(threat: Threat, nodes: int) -> Iterator[Sizes]:
    """Try degrees upwards."""
    lying = threat.malicious_server
    bits = threat.privacy_bits + 1 + (threat.grinding_bits if lying else 0)
    others, pairs = nodes - 1, nodes * (nodes - 1) // 2
    colluding = math.ceil(threat.corrupt * nodes)
    lost = min(math.ceil((threat.corrupt + threat.dropout) * nodes), others)
    staying = min(nodes - math.ceil(threat.dropout * nodes), others)
    for degree in range(2, nodes - 1, 2):
        if not lying and at_least(others, lost, degree, degree) * pairs > Fraction(
            1, 2**bits
        ):
            continue
        allowed = Fraction(1, nodes * 2**bits)
        safe = smallest_threshold(others, colluding, degree, allowed)
        threshold = max(2, safe)
        if lying:
            while 2 * threshold <= degree + safe - 1:
                threshold += 1
            while pairs * two_windows(
                nodes, colluding, degree // 2, threshold - degree // 2
            ) > Fraction(1, 2**bits):
                threshold += 1
        too_few = 1 - at_least(others, staying, degree, threshold)
        if nodes * too_few <= Fraction(1, 2**threat.correctness_bits):
            yield Sizes(degree, threshold)


def committees(threat: Threat, nodes: int) -> Iterator[Sizes]:
    """Try committees upwards."""
    lying = threat.malicious_server
    bits = threat.privacy_bits + (threat.grinding_bits if lying else 0)
    colluding = math.ceil(threat.corrupt * nodes)
    staying = nodes - math.ceil(threat.dropout * nodes)
    for members in range(2, nodes - 1):
        safe = smallest_threshold(nodes, colluding, members, Fraction(1, 2**bits))
        threshold = max(2, safe)
        if lying:
            while 2 * threshold <= members + safe - 1:
                threshold += 1
        too_few = 1 - at_least(nodes, staying, members, threshold)
        if too_few <= Fraction(1, 2**threat.correctness_bits):
            yield Sizes(members, threshold)


@pytest.mark.parametrize("nodes", [65, 70, 83])
def test_graphs_are_the_smallest_that_every_event_allows(nodes: int) -> None:
    for threat in THREATS:
        expected = next(graphs(threat, nodes), None)
        assert sparse_graph_size(threat, nodes) == expected, threat


@pytest.mark.parametrize("nodes", [65, 70, 83])
def test_committees_are_the_smallest_that_every_event_allows(nodes: int) -> None:
    drawn = 0
    for threat in THREATS:
        expected = next(committees(threat, nodes), None)
        if expected is not None:
            drawn += 1
            assert committee_size(threat, nodes) == expected, threat
    assert drawn > len(THREATS) // 2


@pytest.mark.parametrize("nodes", range(2, 12))
def test_of_a_whole_cohort_colluders_are_counted(nodes: int) -> None:
    vanishing = [replace(threat, dropout=Fraction(2, 5)) for threat in THREATS]
    for threat in (*THREATS, *vanishing):
        colluding = math.ceil(threat.corrupt * nodes)
        gone = math.floor(threat.dropout * nodes)
        for found, helpers in ((committee_size, nodes), (graph_size, nodes - 1)):
            least = next(
                t
                for t in range(2, 3 * nodes)
                if t > colluding
                and (not threat.malicious_server or 2 * t > helpers + colluding)
            )
            if nodes <= 3:
                assert found(threat, nodes) == Sizes(helpers, helpers)
            elif least > helpers - gone:
                with pytest.raises(InputError):
                    found(threat, nodes)
            else:
                assert found(threat, nodes) == Sizes(helpers, least)


@pytest.mark.parametrize("nodes", [2, 3, 4, 9, 20, 70])
def test_accepted_dealers_outnumber_the_colluders(nodes: int) -> None:
    for threat in THREATS:
        try:
            sizes = dealing_sizes(threat, nodes)
        except InputError:
            continue
        colluding = math.ceil(threat.corrupt * nodes)
        drawn = nodes > 64 and sizes.members < nodes
        lying = threat.malicious_server
        if drawn and not lying:
            staying = nodes - math.ceil(threat.dropout * nodes)
            rest = min(colluding, staying)
            allowed = Fraction(1, 2**threat.privacy_bits)
            fits = [
                a
                for a in range(1, sizes.members)
                if at_least(staying, rest, a, a) <= allowed
            ]
            assert sizes.accepted == (fits[0] if fits else sizes.members)
        elif drawn:
            bits = threat.privacy_bits + threat.grinding_bits
            most = smallest_threshold(
                nodes, colluding, sizes.members, Fraction(1, 2**bits)
            )
            assert sizes.accepted == max(1, most)
        elif nodes <= 3 and not lying:
            assert sizes.accepted == sizes.dealers == sizes.members
        else:
            assert sizes.accepted == min(colluding, sizes.members) + 1
        assert sizes.dealers == (sizes.members if lying else sizes.accepted)


def test_a_dealing_withstands_as_many_colluders_as_the_cohort_may_have() -> None:
    tenth = Threat(Fraction(1, 10), Fraction(0), True)
    for dealt, cohort in itertools.product(range(2, 45), repeat=2):
        expected = -(-dealt // 10) >= -(-cohort // 10)
        assert as_withstood(tenth, dealt, cohort) == expected


def test_lower_tails_are_decided_by_exact_counts() -> None:
    draw = Draw(10, 4, 3)
    for threshold, bits in itertools.product(range(4), range(6)):
        below = 1 - at_least(10, 4, 3, threshold) if threshold else Fraction(0)
        expected = below <= Fraction(1, 2**bits)
        assert draw.below(threshold, Fraction(1), bits) == expected
        assert draw.rarely_below(threshold, Fraction(1), bits) == expected
