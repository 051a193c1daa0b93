from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallflower.protocol.errors import InputError, MalformedMessageError
from wallflower.protocol.messages.describe import mark_users, pack_left_out
from wallflower.protocol.privacy.honest_floor import FloorRule
from wallflower.protocol.wire.node_pb2 import Accepted
from wallflower.strategy.run.registry import Draw, UserRegistry
from wallflower.strategy.run.sharing import Composition, UsersExhaustedError
from wallflower.strategy.store.entries import Askable, Met

TENTH = Fraction(1, 10)


def registry(*sizes: int, most: int = 1, seed: int = 1) -> UserRegistry:
    made = UserRegistry(most, seed)
    for node, size in enumerate(sizes):
        made.add_node(f"n{node}", [f"u{i}" for i in range(size)])
    return made


def rule(nodes: int, corrupt: Fraction = TENTH, dropout: Fraction = TENTH) -> FloorRule:
    return FloorRule(nodes, corrupt, dropout)


EVENLY = Composition()
IN_PROPORTION = Composition(in_proportion=True)


def draw(
    users: UserRegistry, size: int, floors: FloorRule, among: Iterable[str] = ()
) -> Draw:
    """Draw one cohort."""
    (found,) = users.draw_round(size, 1, floors, among or users.nodes, EVENLY)
    return found


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
            found = draw(users, size, rule(len(sizes)))
        except (UsersExhaustedError, InputError):
            break  # nobody left, or only on too few nodes
        cohort = [(n, u) for n, us in found.users.items() for u in us]
        assert len(set(cohort)) == len(cohort) == found.floor.cohort_size >= size
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
    found = draw(registry(*[100] * 10), 205, rule(10))
    assert sorted(Counter(len(u) for u in found.users.values()).items()) == [
        (20, 5),
        (21, 5),
    ]


def test_more_users_are_invited_when_uneven_nodes_lower_the_floor() -> None:
    planned = rule(4, dropout=Fraction(0))
    assert planned(40) == 30
    found = draw(registry(100, 100, 2, 2), 40, planned)
    assert found.floor.cohort_size > 40
    assert found.floor.honest_floor >= 30


def test_everybody_is_asked_once_before_anybody_is_asked_twice() -> None:
    users = registry(*[5] * 4, most=2)
    first = draw(users, 20, rule(4, Fraction(0), Fraction(0)))
    assert sum(map(len, first.users.values())) == 20
    assert users.remaining == 20
    draw(users, 20, rule(4, Fraction(0), Fraction(0)))
    assert users.remaining == 0


def test_too_few_users_left_is_said_with_numbers_and_marks_nobody() -> None:
    users = registry(*[5] * 4)
    with pytest.raises(UsersExhaustedError, match="21 users wanted, 20 may"):
        draw(users, 21, rule(4))
    assert users.remaining == 20


def test_only_reachable_nodes_are_drawn_from() -> None:
    there = ["n0", "n1", "n2", "n4", "gone"]
    found = draw(registry(*[5] * 6), 12, rule(4), there)
    assert set(found.users) == {"n0", "n1", "n2", "n4"}


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
    found = draw(users, 11, rule(3, Fraction(0), Fraction(0)))
    assert found.users["late"] == ("d",)


def test_a_round_takes_the_fullest_nodes_and_no_more_than_it_may() -> None:
    users = registry(*[10] * 8, *[30] * 8)
    chosen = users.choose_nodes(100, 5, users.nodes)
    assert len(chosen) == 5
    assert all(int(name[1:]) >= 8 for name in chosen)


def test_a_round_takes_more_nodes_when_their_users_do_not_suffice() -> None:
    users = registry(*[1] * 50)
    assert len(users.choose_nodes(32, 5, users.nodes)) == 40
    assert len(users.choose_nodes(50, 5, users.nodes)) == 50
    assert len(users.choose_nodes(2, 0, users.nodes)) == 50


def test_several_cohorts_are_drawn_all_or_none() -> None:
    users = registry(*[10] * 4)
    with pytest.raises(UsersExhaustedError):
        users.draw_round(24, 2, rule(4), users.nodes, EVENLY)
    assert (users.remaining, users.most_invited) == (40, 0)
    free = rule(4, Fraction(0), Fraction(0))
    one, two = users.draw_round(20, 2, free, users.nodes, EVENLY)
    for node, names in one.users.items():
        assert set(names).isdisjoint(two.users[node])
    assert users.remaining == 0


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 20), min_size=2, max_size=10),
    st.lists(st.integers(2, 40), max_size=6),
    st.integers(2, 40),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([EVENLY, IN_PROPORTION]),
    st.integers(0, 10**6),
)
def test_a_round_that_everybody_known_suffices_for_is_drawn(
    sizes: list[int],
    earlier: list[int],
    wanted: int,
    cohorts: int,
    most: int,
    composition: Composition,
    seed: int,
) -> None:
    users, floors = registry(*sizes, most=most, seed=seed), rule(len(sizes))
    for size in earlier:
        with contextlib.suppress(UsersExhaustedError, InputError):
            users.draw_round(size, 1, floors, users.nodes, composition)
    if users.find_floors(wanted, cohorts, floors, composition) is not None:
        draws = users.draw_round(wanted, cohorts, floors, users.nodes, composition)
        assert len({found.floor.cohort_size for found in draws}) == 1
        assert all(found.floor.honest_floor >= floors(wanted) for found in draws)


def test_users_of_nodes_that_are_away_are_counted_as_the_journal_has_them() -> None:
    here = registry(5, 5)
    here.restore_nodes({"n0": Met(5), "n2": Met(50), "n3": Met(50)})
    here.mark_invited([("n2", [f"u{i}" for i in range(20)])])
    sizes = {"n0": 5, "n1": 5, "n2": 50, "n3": 50}
    assert dict(here.known) == {node: Met(users) for node, users in sizes.items()}
    # 90 are left; one of the nodes that hold most of them may collude.
    assert here.find_floors(80, 1, rule(2), EVENLY) is not None
    assert here.find_floors(91, 1, rule(2), EVENLY) is None
    found = here.find_floors(20, 1, rule(2), EVENLY, without=["n2", "n3"])
    assert found is None


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.integers(1, 9), st.integers(0, 10**6))
def test_users_given_back_are_drawn_again_and_nobody_else_more_often(
    most: int, draws: int, seed: int
) -> None:
    users = registry(6, 6, 6, most=most, seed=seed)
    seen: Counter[tuple[str, str]] = Counter()
    for number in range(draws):
        try:
            found = draw(users, 9, rule(3, Fraction(0), Fraction(0)))
        except (UsersExhaustedError, InputError):
            break
        if number % 2:
            users.give_back(found.users)
            continue
        cohort = [(n, u) for n, us in found.users.items() for u in us]
        assert len(set(cohort)) == len(cohort) == found.floor.cohort_size
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
        among = users.choose_nodes(2 * size, 2, users.nodes)
        try:
            draws = users.draw_round(size, 2, rule(2, nobody, nobody), among, EVENLY)
        except (UsersExhaustedError, InputError):
            continue
        if refused:
            for found in draws:
                users.give_back(found.users)
        else:
            used += [pair for found in draws for pair in found.users.items()]
    here, away = registry(*sizes, most=most), UserRegistry(most)
    here.mark_invited(used)
    away.restore_nodes({f"n{node}": Met(size) for node, size in enumerate(sizes)})
    away.mark_invited(used)
    for fresh in (here, away):
        assert users.known == fresh.known
        assert users.most_invited == fresh.most_invited
        for without in ((), ("n0", "n2", "stranger")):
            assert users.count_nodes_left(without) == fresh.count_nodes_left(without)
        for composition in (EVENLY, IN_PROPORTION):
            left = users.count_people_left(rule(2), composition)
            assert left == fresh.count_people_left(rule(2), composition)
    assert users.remaining == here.remaining
    assert users.choose_nodes(1, 0, users.nodes) == here.choose_nodes(1, 0, here.nodes)


def accepted(users: int, out: Iterable[int], names: str = "u") -> Accepted:
    described = [f"{names}{i}" for i in range(users)]
    left_out = pack_left_out(described, {described[place] for place in out})
    return Accepted(left_out=left_out, users=mark_users(described))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(2, 30), min_size=4, max_size=12),
    st.lists(st.integers(4, 40), max_size=6),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_nobody_is_drawn_whom_their_node_leaves_out(
    sizes: list[int], draws: list[int], most: int, chance: Random
) -> None:
    users = registry(*sizes, most=most)
    seen: Counter[tuple[str, str]] = Counter()
    for size in draws:
        out = {
            f"n{node}": {i for i in range(count) if chance.random() < 0.3}
            for node, count in enumerate(sizes)
        }
        for node, count in enumerate(sizes):
            users.leave_out(f"n{node}", accepted(count, out[f"n{node}"]))
        able = sum(
            seen[f"n{node}", f"u{i}"] < most and i not in out[f"n{node}"]
            for node, count in enumerate(sizes)
            for i in range(count)
        )
        assert users.remaining == users.count_askable().able == able
        with contextlib.suppress(UsersExhaustedError, InputError):
            found = draw(users, size, rule(len(sizes)))
            cohort = [(n, u) for n, us in found.users.items() for u in us]
            assert not any(int(user[1:]) in out[node] for node, user in cohort)
            assert not users.has_left_out({n: set(us) for n, us in found.users.items()})
            seen.update(cohort)
        # Whoever reads the journal counts the same.
        away = UserRegistry(most)
        away.restore_nodes(users.known)
        away.mark_invited([(n, [u]) for (n, u), c in seen.items() for _ in range(c)])
        assert away.count_askable() == users.count_askable()
    assert max(seen.values(), default=0) <= most


def test_what_is_told_of_other_users_leaves_nobody_out() -> None:
    users = registry(5, 5)
    users.leave_out("n0", accepted(5, [1, 3], names="renamed"))
    assert users.count_askable() == Askable(people=10, left_out=0, able=10)
    users.leave_out("n0", accepted(5, [1, 3]))
    assert users.count_askable() == Askable(people=10, left_out=2, able=8)
    users.leave_out("n0", Accepted())
    assert users.count_askable() == Askable(people=10, left_out=0, able=10)
    nobody = Accepted(left_out=b"\xff", users=accepted(5, []).users)
    with pytest.raises(MalformedMessageError):
        users.leave_out("n0", nobody)
