from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from wallflower.strategy.bandit.cells import Delivered, NoiseBound
from wallflower.strategy.bandit.failure_budget import WRAP_PART
from wallflower.strategy.bandit.intervals import OwnDesign
from wallflower.strategy.bandit.schedule import CohortFacts
from wallflower.strategy.bandit.sequential_test import SequentialTest
from wallflower.strategy.bandit.spec import PolicySpec

NOISELESS = NoiseBound.of(lambda argument: 0.0)
MEANS = (0.0, 1e-4, 0.02, 0.3, 0.5, 0.77, 0.98, 1.0)


def plan(users: int) -> Delivered:
    return Delivered(np.array([float(users)]), (NOISELESS,))


@pytest.mark.parametrize("threshold", [1.0, 3.0])
@pytest.mark.parametrize("users", [1, 6, 40])
def test_each_side_misses_the_mean_with_at_most_the_stated_probability(
    users: int, threshold: float
) -> None:
    design = OwnDesign.planned(plan(users), threshold)
    side = Delivered(np.array([float(users)]), (None,))
    sums = np.arange(users + 1.0)
    lower = design.lower(side, sums[:, None])
    upper = design.upper(side, sums[:, None])
    for mean in MEANS:
        law = stats.binom.pmf(sums, users, mean)
        assert law[lower > mean].sum() <= math.exp(-threshold)
        assert law[upper < mean].sum() <= math.exp(-threshold)


def test_an_interval_near_zero_is_short_and_stays_inside() -> None:
    design = OwnDesign.planned(plan(10_000), 6.0)
    side = Delivered(np.array([10_000.0]), (None,))
    rows = np.array([[-5.0], [0.0], [100.0], [9_900.0], [10_000.0], [10_050.0]])
    lower, upper = design.lower(side, rows), design.upper(side, rows)
    assert (lower >= 0).all()
    assert (upper <= 1).all()
    # Hoeffding's would be ±0.0173; a coin of 1 % deserves about ±0.0035.
    assert upper[2] - lower[2] < 0.009
    assert upper[3] - lower[3] == pytest.approx(upper[2] - lower[2], rel=0.05)


def test_an_arm_never_heard_may_have_any_mean() -> None:
    design = OwnDesign.planned(plan(50), 3.0)
    side = Delivered(np.zeros(1), (None,))
    assert design.lower(side, np.zeros((1, 1)))[0] == 0.0
    assert design.upper(side, np.zeros((1, 1)))[0] == 1.0


@pytest.mark.parametrize("shrunk", [False, True])
def test_intervals_of_all_rounds_miss_a_mean_with_at_most_the_arms_part_of_p(
    shrunk: bool,
) -> None:
    # Every path of three rounds; `shrunk`: the last one asks 1 user instead of 5 where
    # the first sums are large.
    spec = PolicySpec(
        policy="elimination",
        arms=2,
        horizon=60,
        mechanism="non-private",
        epsilon=Fraction(1),
        failure_probability=Fraction(9, 10),
        ratio=Fraction(3, 2),
        first_batch=2,
    ).resolved()
    evidence = SequentialTest(spec)
    planned = evidence.planned(3)
    sizes = [facts.size for ((facts, _),) in planned]
    missed = dict.fromkeys(MEANS, 0.0)
    for start in itertools.product(*(range(size + 1) for size in sizes[:2])):
        last = 1 if shrunk and sum(start) > 2 else sizes[2]
        heard = (*planned[:2], ((CohortFacts(last, last, last), 1),))
        paths = np.array([(*start, end) for end in range(last + 1)], dtype=float)
        ends = [evidence.interval(n, heard[:n], paths[:, :n])[1:] for n in (1, 2, 3)]
        for mean in MEANS:
            wrong = [(lower > mean) | (upper < mean) for lower, upper in ends]
            chance = np.prod(stats.binom.pmf(paths, [*sizes[:2], last], mean), axis=1)
            missed[mean] += float(chance[np.any(wrong, axis=0)].sum())
    assert 0 < max(missed.values()) <= float(spec.failure_probability) / spec.arms


def test_each_side_of_an_interval_gets_its_part_of_the_failure_probability() -> None:
    spec = PolicySpec(
        policy="elimination",
        arms=3,
        horizon=10**4,
        mechanism="non-private",
        epsilon=Fraction(1),
        first_batch=20,
    ).resolved()
    test = SequentialTest(spec)
    level = (1 - WRAP_PART) * test._shares.batch(3) / (2 * 3)
    assert test._own_design(3).threshold == pytest.approx(-math.log(level))
