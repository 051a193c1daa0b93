from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallflower.protocol.errors import InputError
from wallflower.protocol.privacy.honest_floor import (
    FloorRule,
    PlannedFloors,
    cohort_floor,
)

TENTH = Fraction(1, 10)
fractions = st.fractions(min_value=0, max_value=Fraction(2, 5), max_denominator=20)


def test_the_largest_nodes_are_counted_as_corrupt_and_as_vanished() -> None:
    floor = cohort_floor([50] + [10] * 10, TENTH, TENTH)
    assert floor.cohort_size == 150
    assert floor.quorum == 150 - 50
    assert floor.honest_floor == 150 - 50 - (50 + 10)


@given(st.lists(st.integers(1, 50), min_size=2, max_size=40), fractions, fractions)
def test_no_adversary_within_the_threat_gets_below_the_floor(
    sizes: list[int], corrupt: Fraction, dropout: Fraction
) -> None:
    try:
        floor = cohort_floor(sizes, corrupt, dropout)
    except InputError:
        return
    nodes = len(sizes)
    for shift in range(nodes):  # any corrupt set; any set that vanishes
        rotated = sizes[shift:] + sizes[:shift]
        corrupt_users = sum(rotated[: -(-corrupt * nodes // 1)])
        gone = sum(rotated[: dropout * nodes // 1])
        assert sum(sizes) - gone >= floor.quorum
        assert floor.quorum - corrupt_users >= floor.honest_floor >= 1


def test_two_nodes_are_too_few_when_one_may_be_corrupt_and_one_may_vanish() -> None:
    with pytest.raises(InputError, match="surely honest"):
        cohort_floor([5, 5], Fraction(1, 10), Fraction(1, 2))


def test_a_cohort_on_one_node_is_refused() -> None:
    with pytest.raises(InputError, match="at least 2"):
        cohort_floor([100], Fraction(0), Fraction(0))


def test_the_planning_rule_is_the_floor_of_an_even_spread() -> None:
    rule = FloorRule(nodes=10, corrupt=TENTH, dropout=TENTH)
    assert rule(100) == 80
    assert rule(105) == cohort_floor([11] * 5 + [10] * 5, TENTH, TENTH).honest_floor
    assert rule(1) == 0


def test_a_cohort_smaller_than_the_nodes_has_one_user_on_each_of_its_nodes() -> None:
    assert FloorRule(10, Fraction(1, 10), Fraction(1, 10))(5) == 4


def test_a_planned_floor_is_the_lowest_of_all_rounds() -> None:
    tenth = Fraction(1, 10)
    planned = PlannedFloors((20,) * 10, 2, 5, tenth, tenth)
    # Two arms draw from two nodes, five arms from five.
    assert [planned.nodes(16 * arms) for arms in (2, 5)] == [2, 5]
    floors = [
        FloorRule(planned.nodes(16 * arms), tenth, tenth)(16) for arms in range(2, 6)
    ]
    assert min(floors) < max(floors)
    assert planned(16) == min(floors)
