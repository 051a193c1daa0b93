from __future__ import annotations

import contextlib
import copy
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallflower.protocol.errors import InputError, MalformedMessageError
from wallflower.protocol.privacy.honest_floor import FloorRule
from wallflower.strategy.run.drawing import UserRegistry
from wallflower.strategy.run.sharing import UsersExhaustedError

TENTH = Fraction(1, 10)


def registry(*sizes: int, most: int = 1, seed: int = 1) -> UserRegistry:
    made = UserRegistry(most, seed)
    for node, size in enumerate(sizes):
        made.add_node(f"n{node}", [f"u{i}" for i in range(size)])
    return made


def rule(nodes: int, corrupt: Fraction = TENTH, dropout: Fraction = TENTH) -> FloorRule:
    return FloorRule(nodes, corrupt, dropout)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=4, max_size=12),
    st.lists(st.integers(4, 40), max_size=8),
    st.integers(1, 3),
    st.booleans(),
)
def test_nobody_is_drawn_more_often_than_allowed_nor_twice_for_one_cohort(
    sizes: list[int], draws: list[int], most: int, restart: bool
) -> None:
    users = registry(*sizes, most=most)
    seen: Counter[tuple[str, str]] = Counter()
    for size in draws:
        try:
            draw = users.draw(size, rule(len(sizes)))
        except (UsersExhaustedError, InputError):
            break  # nobody left, or only on too few nodes
        cohort = [(n, u) for n, us in draw.users.items() for u in us]
        assert len(set(cohort)) == len(cohort) == draw.floor.cohort_size >= size
        seen.update(cohort)
        for node, count in enumerate(sizes):
            often = [seen[f"n{node}", f"u{i}"] for i in range(count)]
            assert max(often) - min(often) <= 1  # the least asked come first
        if restart:  # a new process that reads the journal
            fresh = registry(*sizes, most=most, seed=2)
            fresh.mark_invited(
                [(n, [u]) for (n, u), c in seen.items() for _ in range(c)]
            )
            assert fresh.remaining == users.remaining
            users = fresh
    assert all(count <= most for count in seen.values())


def test_a_cohort_is_spread_evenly_over_the_nodes() -> None:
    draw = registry(*[100] * 10).draw(205, rule(10))
    assert sorted(Counter(len(u) for u in draw.users.values()).items()) == [
        (20, 5),
        (21, 5),
    ]


def test_more_users_are_invited_when_uneven_nodes_lower_the_floor() -> None:
    planned = rule(4, dropout=Fraction(0))
    assert planned(40) == 30
    draw = registry(100, 100, 2, 2).draw(40, planned)
    assert draw.floor.cohort_size > 40
    assert draw.floor.honest_floor >= 30


def test_everybody_is_asked_once_before_anybody_is_asked_twice() -> None:
    users = registry(*[5] * 4, most=2)
    first = users.draw(20, rule(4, Fraction(0), Fraction(0)))
    assert sum(map(len, first.users.values())) == 20
    assert users.remaining == 20
    users.draw(20, rule(4, Fraction(0), Fraction(0)))
    assert users.remaining == 0


def test_too_few_users_left_is_said_with_numbers_and_marks_nobody() -> None:
    users = registry(*[5] * 4)
    with pytest.raises(UsersExhaustedError, match="21 users wanted, 20 may"):
        users.draw(21, rule(4))
    assert users.remaining == 20


def test_only_reachable_nodes_are_drawn_from() -> None:
    draw = registry(*[5] * 6).draw(12, rule(4), among=["n0", "n1", "n2", "n4", "gone"])
    assert set(draw.users) == {"n0", "n1", "n2", "n4"}


@pytest.mark.parametrize("users", [["a", "a"], [], [""], ["x" * 129]])
def test_a_description_that_cannot_be_true_is_refused(users: list[str]) -> None:
    with pytest.raises(MalformedMessageError):
        UserRegistry(1).add_node("n", users)


def test_a_node_cannot_rename_its_users() -> None:
    made = registry(5, 5)
    made.add_node("n0", ["other", "names"])
    assert made.population == 10


def test_a_node_that_comes_back_later_is_not_taken_for_new() -> None:
    users = registry(5, 5)
    users.mark_invited([("late", ["a", "b"]), ("late", ["c"])])
    users.add_node("late", ["a", "b", "c", "d"])
    draw = users.draw(11, rule(3, Fraction(0), Fraction(0)))
    assert draw.users["late"] == ("d",)


def test_a_round_takes_the_fullest_nodes_and_no_more_than_it_may() -> None:
    users = registry(*[10] * 8, *[30] * 8)
    chosen = users.choose(100, 5, users.nodes)
    assert len(chosen) == 5
    assert all(int(name[1:]) >= 8 for name in chosen)


def test_a_round_takes_more_nodes_when_their_users_do_not_suffice() -> None:
    users = registry(*[1] * 50)
    assert len(users.choose(32, 5, users.nodes)) == 40
    assert len(users.choose(50, 5, users.nodes)) == 50
    assert len(users.choose(2, 0, users.nodes)) == 50


def test_several_cohorts_are_drawn_all_or_none() -> None:
    users = registry(*[10] * 4)
    with pytest.raises(UsersExhaustedError):
        users.draw_all([24, 24], rule(4), users.nodes)
    assert (users.remaining, users.most_invited) == (40, 0)
    one, two = users.draw_all([20, 20], rule(4, Fraction(0), Fraction(0)), users.nodes)
    for node, names in one.users.items():
        assert set(names).isdisjoint(two.users[node])
    assert users.remaining == 0


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(1, 20), min_size=2, max_size=10),
    st.lists(st.integers(2, 40), max_size=6),
    st.lists(st.integers(2, 40), min_size=1, max_size=3),
    st.integers(1, 3),
)
def test_everybody_suffices_exactly_when_all_can_be_drawn_without_chance(
    sizes: list[int], earlier: list[int], wanted: list[int], most: int
) -> None:
    users = registry(*sizes, most=most)
    for size in earlier:
        with contextlib.suppress(UsersExhaustedError, InputError):
            users.draw(size, rule(len(sizes)))
    alike = copy.deepcopy(users)
    promised = users.suffices(wanted, rule(len(sizes)))
    try:
        for size in wanted:
            alike.draw(size, rule(len(sizes)), by_chance=False)
    except (UsersExhaustedError, InputError):
        assert not promised
    else:
        assert promised
    if promised:  # chance may also fill what the rule without it does not
        assert len(users.draw_all(wanted, rule(len(sizes)), users.nodes)) == len(wanted)


def test_users_of_nodes_that_are_away_are_counted_as_the_journal_has_them() -> None:
    here = registry(5, 5)
    here.know({"n0": 5, "n2": 50, "n3": 50})
    here.mark_invited([("n2", [f"u{i}" for i in range(20)])])
    assert dict(here.known) == {"n0": 5, "n1": 5, "n2": 50, "n3": 50}
    # 90 are left; one of the nodes that hold most of them may collude.
    assert here.suffices([80], rule(2))
    assert not here.suffices([91], rule(2))
    assert not here.suffices([20], rule(2), without=["n2", "n3"])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.integers(1, 9), st.integers(0, 10**6))
def test_users_given_back_are_drawn_again_and_nobody_else_more_often(
    most: int, draws: int, seed: int
) -> None:
    users = registry(6, 6, 6, most=most, seed=seed)
    seen: Counter[tuple[str, str]] = Counter()
    for number in range(draws):
        try:
            draw = users.draw(9, rule(3, Fraction(0), Fraction(0)))
        except (UsersExhaustedError, InputError):
            break
        if number % 2:
            users.give_back(draw.users)
            continue
        cohort = [(n, u) for n, us in draw.users.items() for u in us]
        assert len(set(cohort)) == len(cohort) == draw.floor.cohort_size
        seen.update(cohort)
    assert all(count <= most for count in seen.values())
    left = sum(seen[f"n{n}", f"u{u}"] < most for n in range(3) for u in range(6))
    assert users.remaining == left


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=3, max_size=8),
    st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=10),
    st.integers(1, 3),
    st.integers(0, 10**6),
)
def test_what_is_known_of_everybody_is_what_the_journal_gives_a_new_process(
    sizes: list[int], rounds: list[tuple[int, bool]], most: int, seed: int
) -> None:
    users, nobody = registry(*sizes, most=most, seed=seed), Fraction(0)
    used: list[tuple[str, tuple[str, ...]]] = []
    for size, refused in rounds:
        among = users.choose(2 * size, 2, users.nodes)
        try:  # the second cohort may fail after the first was drawn
            draws = users.draw_all([size, size], rule(2, nobody, nobody), among)
        except (UsersExhaustedError, InputError):
            continue
        if refused:
            for draw in draws:
                users.give_back(draw.users)
        else:
            used += [pair for draw in draws for pair in draw.users.items()]
    here, away = registry(*sizes, most=most), UserRegistry(most)
    here.mark_invited(used)
    away.know({f"n{node}": size for node, size in enumerate(sizes)})
    away.mark_invited(used)
    for fresh in (here, away):
        assert users.known == fresh.known
        assert users.most_invited == fresh.most_invited
        for without in ((), ("n0", "n2", "stranger")):
            assert users.everybody_left(without) == fresh.everybody_left(without)
    assert users.remaining == here.remaining
    assert users.choose(1, 0, users.nodes) == here.choose(1, 0, here.nodes)
