"""Who gets which arm: people are drawn as one set and dealt inside each node."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.orchestration import config, world
from wallflower.protocol.errors import InputError
from wallflower.protocol.privacy.honest_floor import FloorRule, cohort_floor
from wallflower.strategy.run.registry import Draw, UserRegistry
from wallflower.strategy.run.sharing import (
    Composition,
    UsersExhaustedError,
    fullest_level,
)
from wallflower.strategy.run.verify import verify
from wallflower.strategy.store.entries import CohortRecord
from wallflower.strategy.store.journal import Journal

EVENLY, IN_PROPORTION = Composition(), Composition(in_proportion=True)
FREE = FloorRule(2, Fraction(0), Fraction(0))
ASSIGNED = "arms were assigned evenly inside every node"


def registry(*sizes: int, seed: int = 1) -> UserRegistry:
    made = UserRegistry(1, seed)
    for node, size in enumerate(sizes):
        made.add_node(f"n{node}", [f"u{i}" for i in range(size)])
    return made


def counts(draw: Draw, nodes: int) -> list[int]:
    return [len(draw.users.get(f"n{node}", ())) for node in range(nodes)]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=12),
    st.integers(1, 5),
    st.integers(2, 30),
    st.sampled_from([EVENLY, IN_PROPORTION]),
    st.integers(0, 10**6),
)
def test_every_node_gives_every_arm_the_same_number_up_to_one(
    sizes: list[int], arms: int, size: int, composition: Composition, seed: int
) -> None:
    users = registry(*sizes, seed=seed)
    try:
        draws = users.draw_round(size, arms, FREE, users.nodes, composition)
    except (UsersExhaustedError, InputError):
        return
    by_arm = np.array([counts(draw, len(sizes)) for draw in draws])
    assert (by_arm.max(axis=0) - by_arm.min(axis=0) <= 1).all()
    (asked,) = set(by_arm.sum(axis=1).tolist())  # more where floors need them
    assert asked >= size
    people = [(n, u) for draw in draws for n, us in draw.users.items() for u in us]
    assert len(set(people)) == len(people)


def test_nodes_with_people_to_spare_give_every_arm_exactly_as_many() -> None:
    users = registry(*[100] * 7)
    one, *others = users.draw_round(30, 4, FREE, users.nodes, EVENLY)
    assert all(counts(other, 7) == counts(one, 7) for other in others)


@pytest.mark.parametrize("composition", [EVENLY, IN_PROPORTION])
def test_each_person_drawn_is_as_likely_to_get_each_arm(
    composition: Composition,
) -> None:
    """4.5 standard deviations, 64 counts, fixed seeds: a false alarm in 2,000."""
    seen: Counter[tuple[int, str]] = Counter()
    for seed in range(2_000):
        users = registry(3, 5, 8, seed=seed)  # all of them take part
        draws = users.draw_round(4, 4, FREE, users.nodes, composition)
        for arm, draw in enumerate(draws):
            seen.update((arm, n + u) for n, us in draw.users.items() for u in us)
    assert len(seen) == 4 * 16
    often = np.array(list(seen.values()))
    assert abs(often - 500).max() < 4.5 * np.sqrt(2_000 * 0.25 * 0.75)


def test_cohorts_in_proportion_ask_everybody_with_the_same_chance() -> None:
    """4.5 standard deviations, 30 people, fixed seeds: one false alarm in 4,000."""
    first: Counter[str] = Counter()
    second: Counter[str] = Counter()
    for seed in range(2_000):
        users = registry(10, 10, 10, seed=seed)
        for seen in (first, second):
            (draw,) = users.draw_round(7, 1, FREE, users.nodes, IN_PROPORTION)
            seen.update(n + u for n, us in draw.users.items() for u in us)
    for seen in (first, second):
        often = np.array([seen[f"n{n}u{u}"] for n in range(3) for u in range(10)])
        chance = 7 / 30
        assert abs(often / 2_000 - chance).max() < 4.5 * np.sqrt(
            chance * (1 - chance) / 2_000
        )


@pytest.mark.parametrize(
    ("sizes", "composition"),
    [((15, 20, 40, 80), [9, 2, 3, 6]), ((6, 20, 40, 80), [6, 3, 4, 7])],
    ids=["all are left", "others stand in evenly"],
)
def test_a_cohort_drawn_anew_has_the_composition_of_the_void_one(
    sizes: tuple[int, ...], composition: list[int]
) -> None:
    users = registry(*sizes)
    like = Composition(like={"n0": 9, "n1": 2, "n2": 3, "n3": 6})
    (again,) = users.draw_round(20, 1, FREE, users.nodes, like)
    assert counts(again, 4) == composition


@given(
    st.lists(st.integers(1, 200), min_size=2, max_size=30),
    st.sampled_from([Fraction(0), Fraction(1, 10), Fraction(1, 4)]),
    st.sampled_from([Fraction(0), Fraction(1, 10), Fraction(1, 3)]),
)
def test_the_people_in_play_have_the_highest_honest_floor(
    sizes: list[int], corrupt: Fraction, dropout: Fraction
) -> None:
    def honest(level: int) -> int:
        try:
            cut = [min(size, level) for size in sizes]
            return cohort_floor(cut, corrupt, dropout).honest_floor
        except InputError:
            return 0

    best = max(honest(level) for level in sizes)
    if best:
        found = fullest_level(np.array(sizes), corrupt, dropout)
        assert honest(found) == best


# --- what a lying operator could write


async def problems_of(tmp_path: Path) -> list[str]:
    async with world(tmp_path, config()) as there:
        await there.run()
    with Journal.read(there.run_dir) as journal:
        (check,) = [check for check in verify(journal) if check.name == ASSIGNED]
    return list(check.problems)


async def test_an_honest_record_is_balanced(tmp_path: Path) -> None:
    assert await problems_of(tmp_path) == []


async def test_arms_drawn_from_different_nodes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = UserRegistry.draw_round

    def by_arm(
        self: UserRegistry,
        size: int,
        cohorts: int,
        rule: FloorRule,
        among: tuple[str, ...],
        composition: Composition,
    ) -> list[Draw]:
        parts = [among[: len(among) // 2], among[len(among) // 2 :]]
        return [draw(self, size, 1, rule, part, composition)[0] for part in parts]

    monkeypatch.setattr(UserRegistry, "draw_round", by_arm)
    found = await problems_of(tmp_path)
    assert any("to one arm and" in problem for problem in found)


async def test_arms_that_are_not_drawn_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invite = Journal.invite

    def one_by_one(self: Journal, cohorts: list[CohortRecord]) -> None:
        for cohort in cohorts:
            invite(self, [cohort])

    monkeypatch.setattr(Journal, "invite", one_by_one)
    assert "round 1: arm 1 was not drawn together with the others" in (
        await problems_of(tmp_path)
    )
