"""Verdicts and intervals, held against a search of every cell on random rows."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from wallflower.strategy.bandit.cells import Delivered, Doubles, sampling, unit_cells
from wallflower.strategy.bandit.failure_budget import WRAP_PART
from wallflower.strategy.bandit.intervals import OwnDesign
from wallflower.strategy.bandit.schedule import History
from wallflower.strategy.bandit.sequential_test import SequentialTest
from wallflower.strategy.bandit.spec import PolicySpec

POINTS = 9  # of every cell, both ends among them


def spec_of(arms: int, epsilon: str) -> PolicySpec:
    return PolicySpec(
        "elimination", arms, 10**5, "dist-dp", Fraction(epsilon)
    ).resolved()


def random_rows(
    side: Delivered, seed: int, lead: float, rows: int = 60
) -> tuple[Doubles, Doubles]:
    """Draw sums of pairs with means all over [0, 1] and leads about the needed one."""
    dice = np.random.default_rng(seed)
    means = dice.uniform(0.02, 0.98, rows)[:, None]
    leads = lead * dice.uniform(0.2, 4.0, rows)[:, None]
    spread = np.sqrt(side.users * means * (1 - means))
    ahead = np.clip(means + leads / 2, 0, 1) * side.users
    behind = np.clip(means - leads / 2, 0, 1) * side.users
    shape = (rows, len(side.users))
    return (
        ahead + spread * dice.normal(size=shape) / 2,
        behind + spread * dice.normal(size=shape) / 2,
    )


def fewer(heard: History) -> History:
    """Let half of every cohort vanish."""
    return tuple(
        tuple(
            (replace(facts, survivors=facts.survivors // 2), number)
            for facts, number in group
        )
        for group in heard
    )


@pytest.mark.parametrize(
    ("arms", "epsilon"),
    [
        (2, "1"),
        pytest.param(5, "1", marks=pytest.mark.slow),  # every cell of ten pairs
        (10, "10"),
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_rival_falls_exactly_where_every_cell_convinces(
    arms: int, epsilon: str, seed: int
) -> None:
    spec = spec_of(arms, epsilon)
    evidence, batch = SequentialTest(spec), 6
    heard = evidence.planned(batch)
    side = evidence.delivered(heard, batch)
    sums = random_rows(side, seed, evidence.lead_needed(batch, 0.5))
    design = evidence.design(batch, evidence.mixed(batch))
    everywhere = design.everywhere(side, side, *sums)
    assert everywhere.shape[1] == len(unit_cells().low)
    worst = everywhere.min(axis=1)
    # All rivals together may err with p, less what the modulus takes of it.
    level = (1 - WRAP_PART) * spec.failure_probability / (arms - 1)
    threshold = -math.log(level)
    verdict = evidence.compare(batch, (heard, sums[0]), (heard, sums[1]))
    assert verdict.threshold == pytest.approx(threshold)
    assert verdict.falls.tolist() == (worst > threshold).tolist()
    assert 5 < verdict.falls.sum() < 55
    falling = verdict.falls
    assert verdict.evidence[falling] == pytest.approx(worst[falling], rel=1e-9)


def test_pairs_judged_together_are_judged_as_each_alone() -> None:
    evidence, batch = SequentialTest(spec_of(4, "1")), 6
    heard = evidence.planned(batch)
    side = evidence.delivered(heard, batch)
    leading, trailing = random_rows(side, 3, evidence.lead_needed(batch, 0.5))
    together = evidence.compare(batch, (heard, leading), (heard, trailing)).falls
    alone = [
        bool(
            evidence.compare(
                batch, (heard, leading[[row]]), (heard, trailing[[row]])
            ).falls[0]
        )
        for row in range(len(leading))
    ]
    assert together.tolist() == alone


def nested_rows(side: Delivered, mean: float, lead: float) -> tuple[Doubles, Doubles]:
    """Return pairs about one mean with ever larger leads: each beats the last."""
    leads = lead * np.geomspace(1.05, 12, 40)[:, None]
    ahead = np.minimum(mean + leads / 2, 1.0) * side.users
    return ahead, np.maximum(mean - leads / 2, 0.0) * side.users


@pytest.mark.parametrize("mean", [0.1, 0.3, 0.5, 0.8])
def test_a_sure_pair_is_judged_in_cells_where_another_is_less_sure(
    mean: float,
) -> None:
    evidence, batch = SequentialTest(spec_of(4, "10")), 6
    heard = evidence.planned(batch)
    side = evidence.delivered(heard, batch)
    sums = nested_rows(side, mean, evidence.lead_needed(batch, mean))
    design = evidence.design(batch, evidence.mixed(batch))
    worst = design.everywhere(side, side, *sums).min(axis=1)
    verdict = evidence.compare(batch, (heard, sums[0]), (heard, sums[1]))
    falling = verdict.falls
    assert falling.sum() > 30
    assert verdict.evidence[falling] == pytest.approx(worst[falling], rel=1e-9)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4), 2)))
def test_what_is_remembered_of_one_arm_is_not_taken_for_another(
    order: tuple[int, int],
) -> None:
    used, batch = SequentialTest(spec_of(4, "10")), 6
    heard = used.planned(batch)
    less = fewer(heard)
    side, smaller = (used.delivered(one, batch) for one in (heard, less))
    sums = nested_rows(side, 0.3, used.lead_needed(batch, 0.3))
    part = sums[0] * smaller.users / side.users, sums[1] * smaller.users / side.users
    pairs = [
        ((heard, sums[0]), (heard, sums[1])),
        ((less, part[0]), (less, part[1])),
        ((heard, sums[0]), (less, part[1])),
        ((less, part[0]), (heard, sums[1])),
    ]
    first, second = order
    used.compare(batch, *pairs[first])
    fresh, falls = SequentialTest(spec_of(4, "10")), False
    (leader, leading), (rival, trailing) = pairs[second]
    for row in range(0, len(leading), 4):  # one by one: no other row leaves cells open
        one = (leader, leading[[row]]), (rival, trailing[[row]])
        expected = fresh.compare(batch, *one)
        falls |= bool(expected.falls[0])
        again = used.compare(batch, *one)
        assert again.evidence == pytest.approx(expected.evidence, rel=1e-12)
    assert falls


def left_over(
    exponents: Doubles, side: Delivered, sums: Doubles, threshold: float
) -> list[Doubles]:
    """Give, row by row, the points of all cells that the sums do not rule out."""
    cells = unit_cells()
    steps = np.linspace(0.0, 1.0, POINTS)
    noise = side.noise(exponents)
    found = []
    for row in sums:
        spare = exponents @ row - noise - threshold
        points = []
        for step in steps:
            means = cells.low + step * (cells.high - cells.low)
            paid = sampling(side.users, exponents, means)
            points.append(means[spare <= paid + 1e-9])
        found.append(np.concatenate(points))
    return found


@pytest.mark.parametrize("epsilon", ["1/2", "10"])
@pytest.mark.parametrize("threshold", [2.0, 7.0])
def test_an_interval_is_the_hull_of_all_means_that_are_not_ruled_out(
    epsilon: str, threshold: float
) -> None:
    evidence, batch = SequentialTest(spec_of(3, epsilon)), 5
    side = evidence.delivered(evidence.planned(batch), batch)
    design = OwnDesign.planned(side, threshold)
    dice = np.random.default_rng(5)
    means = np.concatenate([[0.0, 1.0], dice.uniform(0, 1, 40)])[:, None]
    wobble = dice.normal(size=(len(means), len(side.users)))
    sums = means * side.users + wobble * np.sqrt(side.users * means * (1 - means))
    lower, upper = design.lower(side, sums), design.upper(side, sums)
    cells = unit_cells()
    widest = (cells.high - cells.low).max() / (POINTS - 1)
    from_below = left_over(design.above, side, sums, threshold)
    from_above = left_over(design.below, side, sums, threshold)
    for row in range(len(sums)):
        if len(from_below[row]):
            assert lower[row] <= from_below[row].min() + 1e-9
            assert lower[row] >= from_below[row].min() - widest - 1e-9
        if len(from_above[row]):
            assert upper[row] >= from_above[row].max() - 1e-9
            assert upper[row] <= from_above[row].max() + widest + 1e-9
    assert (upper - lower).max() > 0
