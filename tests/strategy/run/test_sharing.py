"""How people are shared out, held against every way to do it for small numbers."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from wallflower.protocol.errors import InputError
from wallflower.protocol.privacy.honest_floor import Floor, FloorRule, cohort_floor
from wallflower.strategy.run.node_users import NodeUsers
from wallflower.strategy.run.sharing import (
    Counts,
    Shares,
    SpreadAlike,
    SpreadOverFullest,
    UsersExhaustedError,
    deal,
    even_spreads,
    fullest_level,
    share_out,
    spread_evenly,
    spread_in_proportion,
)

SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=6)
TENTH, THIRD = Fraction(1, 10), Fraction(1, 3)


def counts(sizes: list[int]) -> Counts:
    return np.array(sizes, np.int64)


def chance(seed: int | None) -> np.random.Generator | None:
    return None if seed is None else np.random.default_rng(seed)


@settings(max_examples=200, deadline=None)
@given(SIZES, st.integers(1, 4), st.none() | st.integers(0, 99), st.data())
def test_people_are_spread_as_evenly_as_capacities_allow(
    sizes: list[int], cohorts: int, seed: int | None, data: st.DataObject
) -> None:
    people = data.draw(st.integers(0, sum(sizes)))
    share = spread_evenly(people, counts(sizes), cohorts, chance(seed)).tolist()
    assert sum(share) == people
    assert all(0 <= given <= size for given, size in zip(share, sizes, strict=True))
    # Whoever has people to spare gives a whole number to every arm, all alike but for
    # one arm's worth, and at most one node stops within it.
    spare = [given for given, size in zip(share, sizes, strict=True) if given < size]
    assert sum(given % cohorts > 0 for given in spare) <= 1
    if spare:
        assert max(share) - min(spare) <= cohorts


@settings(max_examples=200, deadline=None)
@given(SIZES, st.integers(1, 5), st.none() | st.integers(0, 99))
def test_everybody_is_dealt_to_one_cohort_and_all_cohorts_are_alike(
    sizes: list[int], cohorts: int, seed: int | None
) -> None:
    each, more = deal(counts(sizes), cohorts, chance(seed))
    given_more = Counter(itertools.chain(*(nodes.tolist() for nodes in more)))
    for node, size in enumerate(sizes):
        assert each[node] * cohorts + given_more[node] == size
        assert max(Counter(nodes.tolist())[node] for nodes in more) <= 1
    lengths = [len(nodes) for nodes in more]
    assert max(lengths) - min(lengths) <= 1


def test_the_rest_of_a_node_goes_to_every_cohort_equally_often() -> None:
    """3 nodes with one person over, 3 cohorts: each meets each in a third of draws.

    False alarm below 10⁻⁶: 3,000 draws, five standard deviations are 130.
    """
    random, seen = np.random.default_rng(7), np.zeros((3, 3))
    for _ in range(3000):
        _, more = deal(counts([1, 1, 1]), 3, random)
        for cohort, nodes in enumerate(more):
            seen[nodes, cohort] += 1
    assert np.abs(seen - 1000).max() < 130


@settings(max_examples=200, deadline=None)
@given(SIZES, st.none() | st.integers(0, 99), st.data())
def test_people_in_proportion_differ_by_less_than_one(
    sizes: list[int], seed: int | None, data: st.DataObject
) -> None:
    assume(sum(sizes) > 0)
    people = data.draw(st.integers(0, sum(sizes)))
    share = spread_in_proportion(people, counts(sizes), 2, chance(seed)).tolist()
    assert sum(share) == people
    for given_people, size in zip(share, sizes, strict=True):
        assert abs(given_people - Fraction(people * size, sum(sizes))) < 1
        assert given_people <= size


def test_in_proportion_everybody_is_equally_likely() -> None:
    """5 of 12 people on nodes of 1, 2, 4 and 5: a node's mean share is 5/12 of it.

    False alarm below 10⁻⁶: a share varies by at most ½, five deviations of 4,000.
    """
    random, total = np.random.default_rng(11), np.zeros(4)
    sizes = counts([1, 2, 4, 5])
    for _ in range(4000):
        total += spread_in_proportion(5, sizes, 1, random)
    assert np.abs(total / 4000 - sizes * 5 / 12).max() < 5 * 0.5 / 4000**0.5


@settings(max_examples=150, deadline=None)
@given(SIZES, st.integers(1, 3), st.data())
def test_a_redrawn_cohort_keeps_what_it_can_of_the_one_before(
    sizes: list[int], cohorts: int, data: st.DataObject
) -> None:
    like = [data.draw(st.integers(0, 4)) for _ in sizes]
    people = data.draw(st.integers(0, sum(sizes)))
    spread = SpreadAlike(counts(like))
    share = spread(people, counts(sizes), cohorts, chance(3)).tolist()
    kept = [min(one * cohorts, size) for one, size in zip(like, sizes, strict=True)]
    assert sum(share) == people
    if people >= sum(kept):
        assert all(one >= least for one, least in zip(share, kept, strict=True))
    else:
        assert all(one <= most for one, most in zip(share, kept, strict=True))


def test_only_nodes_that_are_full_enough_take_part() -> None:
    sizes = counts([1, 3, 4, 8, 8])
    spread = SpreadOverFullest(2)
    assert spread(20, sizes, 2, None).tolist() == [0, 0, 4, 8, 8]
    assert spread(6, sizes, 2, None).tolist()[:2] == [0, 0]
    with pytest.raises(UsersExhaustedError, match="21 users wanted, 20"):
        spread(21, sizes, 2, None)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(1, 4))
def test_every_power_of_two_that_leaves_out_a_node_is_tried(
    sizes: list[int], cohorts: int
) -> None:
    found = even_spreads(counts(sizes), cohorts)
    kept: list[tuple[int, int]] = []
    for bound in (2**power for power in range(7)):
        full = sum(size >= bound * cohorts for size in sizes)
        if full and full < (kept[-1][1] if kept else len(sizes)):
            kept.append((bound, full))
    tried = [one.least for one in found if isinstance(one, SpreadOverFullest)]
    assert found[0] is spread_evenly
    assert tried == [bound for bound, _ in kept]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 12), min_size=2, max_size=7),
    st.sampled_from([Fraction(0), TENTH, THIRD, Fraction(1, 2)]),
    st.sampled_from([Fraction(0), TENTH, THIRD, Fraction(1, 2)]),
)
def test_the_level_gives_the_highest_floor_of_all_levels(
    sizes: list[int], corrupt: Fraction, dropout: Fraction
) -> None:
    def floor(level: int) -> int:
        try:
            cut = [min(size, level) for size in sizes]
            return cohort_floor(cut, corrupt, dropout).honest_floor
        except InputError:
            return 0

    best = max(floor(level) for level in range(1, 13))
    assume(best > 0)
    assert floor(fullest_level(counts(sizes), corrupt, dropout)) == best


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 20), min_size=2, max_size=6),
    st.integers(2, 20),
    st.integers(1, 3),
    st.sampled_from([Fraction(0), TENTH, THIRD]),
)
def test_shares_meet_the_floor_with_as_few_people_as_are_tried(
    sizes: list[int], size: int, cohorts: int, share: Fraction
) -> None:
    rule, capacity = FloorRule(len(sizes), share, share), counts(sizes)
    spreads = even_spreads(capacity, cohorts)
    try:
        found = share_out(size, cohorts, rule, capacity, spreads, None)
    except UsersExhaustedError:
        assert sum(sizes) < 4 * cohorts * size + 8 * cohorts
        return
    except InputError:
        return
    assert (found.people <= capacity).all()
    drawn = []
    for nodes, floor in zip(found.more, found.floors, strict=True):
        cohort = found.each.copy()
        cohort[nodes] += 1
        drawn.append(int(cohort.sum()))
        asked = [one for one in cohort.tolist() if one]
        assert floor == cohort_floor(asked, share, share)
        assert floor.honest_floor >= rule(size)
    assert len(set(drawn)) == 1
    assert int(found.people.sum()) == sum(drawn)
    if drawn[0] > size:  # one step fewer would not have done
        fewer = _one_step_fewer(size, drawn[0])
        assert not any(
            _meets(spread, fewer, cohorts, rule, capacity, size) for spread in spreads
        )


def _one_step_fewer(size: int, drawn: int) -> int:
    invited = size
    while invited + max(1, invited // 50) < drawn:
        invited += max(1, invited // 50)
    return invited


def _meets(
    spread: object,
    invited: int,
    cohorts: int,
    rule: FloorRule,
    capacity: Counts,
    size: int,
) -> bool:
    assert callable(spread)
    try:
        people = spread(cohorts * invited, capacity, cohorts, None)
        each, more = deal(people, cohorts, None)
        floors = []
        for nodes in more:
            cohort = each.copy()
            cohort[nodes] += 1
            asked = [one for one in cohort.tolist() if one]
            floors.append(cohort_floor(asked, rule.corrupt, rule.dropout).honest_floor)
    except (UsersExhaustedError, InputError):
        return False
    return min(floors) >= rule(size)


def test_all_of_the_people_left_may_be_taken() -> None:
    rule = FloorRule(4, Fraction(0), Fraction(0))
    found = share_out(6, 2, rule, counts([3, 3, 3, 3]), [spread_evenly], None)
    assert found.people.tolist() == [3, 3, 3, 3]


def test_shuffled_cohorts_keep_their_own_floors() -> None:
    more = tuple(counts(nodes) for nodes in ([], [0], [0, 1]))
    floors = tuple(Floor(6 + extra, 3 + extra, 5 + extra) for extra in range(3))
    found = Shares(counts([3, 3]), more, floors)
    assert found.people.tolist() == [11, 10]
    again = found.shuffled(np.random.default_rng(3))
    before = [(n.tolist(), f) for n, f in zip(found.more, found.floors, strict=True)]
    after = [(n.tolist(), f) for n, f in zip(again.more, again.floors, strict=True)]
    assert before != after
    assert sorted(before, key=repr) == sorted(after, key=repr)


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 8), st.integers(1, 3), st.lists(st.integers(1, 8), max_size=8))
def test_a_nodes_users_are_taken_least_invited_first_and_never_twice(
    users: int, most: int, takes: list[int]
) -> None:
    random = np.random.default_rng(5)
    node = NodeUsers(tuple(f"u{place}" for place in range(users)), most)
    node.refill(random)
    often = [0] * users
    for count in takes:
        available = sum(one < most for one in often)
        assert node.summarize().available == available
        assert node.summarize().busiest == max(often)
        assert node.summarize().invitations == sum(often)
        if count > available:
            break
        taken = node.take(count, random)
        assert len(set(taken)) == count
        untaken = [often[place] for place in range(users) if place not in taken]
        assert max(often[place] for place in taken) <= min(untaken, default=most)
        for place in taken:
            often[place] += 1
        assert node.counts.tolist() == often


def test_users_given_back_come_first_again() -> None:
    random = np.random.default_rng(2)
    node = NodeUsers(("a", "b", "c"), 2)
    node.refill(random)
    node.take(3, random)
    node.give_back(("b",), random)
    assert [node.names[place] for place in node.take(1, random)] == ["b"]
    assert node.summarize().available == 3


def test_every_cohort_of_a_round_meets_the_floor_and_not_only_the_best() -> None:
    """Of 1, 2 and 3 people two cohorts of 3 would have 2 and 1 surely honest ones."""
    rule = FloorRule(3, TENTH, Fraction(0))
    assert rule(3) == 2
    with pytest.raises(UsersExhaustedError):
        share_out(3, 2, rule, counts([1, 2, 3]), [spread_evenly], None)
