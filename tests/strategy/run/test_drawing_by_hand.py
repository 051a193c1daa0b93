"""The registry of users, held against counts by hand."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallflower.protocol.errors import InputError
from wallflower.protocol.privacy.honest_floor import FloorRule
from wallflower.strategy.run.registry import UserRegistry
from wallflower.strategy.run.sharing import (
    Composition,
    UsersExhaustedError,
    fullest_level,
)
from wallflower.strategy.store.entries import Met

NOTHING = Fraction(0)
TENTH = Fraction(1, 10)
IN_PROPORTION = Composition(in_proportion=True)


def registry(*sizes: int, most: int = 1, seed: int = 1) -> UserRegistry:
    made = UserRegistry(most, seed)
    for node, size in enumerate(sizes):
        made.add_node(f"n{node}", [f"u{i}" for i in range(size)])
    return made


def test_nodes_that_ran_dry_are_not_chosen_nor_counted() -> None:
    users = registry(1, 4, 4, 4)
    rule = FloorRule(4, NOTHING, NOTHING)
    assert users.count_nodes_left() == 4
    users.draw_round(4, 1, rule, users.nodes, Composition())  # one of every node
    assert users.choose_nodes(2, 0, users.nodes) == ("n1", "n2", "n3")
    assert users.count_nodes_left() == 3
    assert users.count_nodes_left(without=["n1"]) == 2
    assert users.has_more_than(["n1", "n2"])
    assert not users.has_more_than(["n1", "n2", "n3"])


def test_whoever_is_given_back_may_be_drawn_at_once() -> None:
    users = registry(2, 2)
    rule = FloorRule(2, NOTHING, NOTHING)
    (draw,) = users.draw_round(4, 1, rule, users.nodes, Composition())
    assert users.remaining == 0
    users.give_back({"n0": draw.users["n0"]})
    assert users.remaining == 2
    assert users.choose_nodes(1, 0, users.nodes) == ("n0",)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(1, 12), min_size=2, max_size=6),
    st.integers(1, 3),
    st.lists(st.integers(2, 12), max_size=5),
)
def test_people_in_play_are_those_below_the_level_who_were_not_invited(
    sizes: list[int], most: int, draws: list[int]
) -> None:
    users = registry(*sizes, most=most)
    rule = FloorRule(len(sizes), TENTH, TENTH)
    level = fullest_level(np.array(sizes, np.int64), TENTH, TENTH)
    invited: Counter[str] = Counter()
    often: Counter[tuple[str, str]] = Counter()
    for size in draws:
        in_play = [
            min(
                max(0, min(count, level) * most - invited[f"n{node}"]),
                sum(often[f"n{node}", f"u{user}"] < most for user in range(count)),
            )
            for node, count in enumerate(sizes)
        ]
        assert users.count_people_left(rule, IN_PROPORTION) == sum(in_play)
        try:
            (draw,) = users.draw_round(size, 1, rule, users.nodes, IN_PROPORTION)
        except (UsersExhaustedError, InputError):
            continue
        for name, drawn in draw.users.items():
            invited[name] += len(drawn)
            often.update((name, user) for user in drawn)
            assert len(drawn) <= in_play[int(name[1:])]


def test_users_of_nodes_that_are_away_are_spent_after_their_last_invitation() -> None:
    users = UserRegistry(2, 1)
    users.restore_nodes({"away": Met(3)})
    users.mark_invited([("away", ["a", "b"]), ("away", ["a"])])
    rule = FloorRule(2, NOTHING, NOTHING)
    assert users.count_people_left(rule, Composition()) == 2  # b once more, and c


def test_who_lags_behind_is_as_likely_in_either_cohort() -> None:
    """Three of four were asked once: the fourth is drawn, into either cohort alike.

    False alarm below 10⁻⁶: 600 draws, five standard deviations are 62.
    """
    first = 0
    for seed in range(600):
        users = UserRegistry(2, seed)
        for node in ("n0", "n1"):
            users.add_node(node, ["a", "b", "c", "d"])
            users.mark_invited([(node, ["a", "b", "c"])])
        rule = FloorRule(2, NOTHING, NOTHING)
        one, other = users.draw_round(2, 2, rule, users.nodes, Composition())
        assert ("d" in one.users["n0"]) != ("d" in other.users["n0"])
        first += "d" in one.users["n0"]
    assert abs(first - 300) < 62


def test_too_few_people_left_is_said_before_anybody_is_marked() -> None:
    users = registry(2, 2)
    rule = FloorRule(2, NOTHING, NOTHING)
    with pytest.raises(UsersExhaustedError, match="6 users wanted, 4"):
        users.draw_round(3, 2, rule, users.nodes, Composition())
    assert users.remaining == 4
