from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from wallflower.protocol.privacy.mechanism import mechanism_named
from wallflower.strategy.bandit.index_choice import (
    ArmTotals,
    choose_arm,
    divergence_for,
    laplace_excess,
)

ONE = divergence_for(mechanism_named("dist-dp", Fraction(1), Fraction(10)))
MILLION = 10**6


def arm_totals(*arms: tuple[float, float, float]) -> ArmTotals:
    """Users, mean and noises of each arm."""
    users, means, noises = (np.array(column) for column in zip(*arms, strict=True))
    return ArmTotals(users * means, users, noises)


def test_a_good_arm_with_an_unlucky_first_cohort_is_asked_again() -> None:
    # The chance of such a cohort is 1 in 10,000; the plain rule would keep the leader.
    arms = arm_totals((28, 0.26, 1), (100_000, 0.7, 12))
    assert choose_arm(arms, ONE, MILLION) == 0


def test_an_arm_is_set_aside_once_its_sums_say_enough() -> None:
    arms = arm_totals((28, 0.1, 1), (100_000, 0.7, 12))
    assert choose_arm(arms, ONE, MILLION) == 1


def test_a_longer_horizon_sets_nothing_aside_so_soon() -> None:
    arms = arm_totals((28, 0.1, 1), (100_000, 0.7, 12))
    assert choose_arm(arms, ONE, 10**9) == 0


def test_arms_as_good_as_the_leader_do_not_hold_up_a_doubtful_one() -> None:
    arms = arm_totals((28, 0.3, 1), (500, 0.7, 5), (400, 0.7, 5))
    assert choose_arm(arms, ONE, MILLION) == 0


def test_several_noises_explain_more_than_one() -> None:
    one, four = (
        arm_totals((28, 0.2, noises), (100_000, 0.7, 12)) for noises in (1.0, 4.0)
    )
    assert choose_arm(one, ONE, MILLION) == 1
    assert choose_arm(four, ONE, MILLION) == 0


def test_the_leader_is_the_largest_mean_even_beyond_one() -> None:
    assert arm_totals((28, 1.1, 1), (28, 1.2, 1), (28, 0.4, 1)).leader == 1


@pytest.mark.parametrize("noises", [2, 3, 6])
def test_the_excess_is_that_of_the_tail_of_a_sum_of_laplace_draws(noises: int) -> None:
    # Density of the sum by convolving densities on a grid.
    step, reach = 0.01, 40.0
    grid = np.arange(-reach, reach + step / 2, step)
    one = np.exp(-np.abs(grid)) / 2
    density = one
    for _ in range(noises - 1):
        density = np.convolve(density, one, mode="same") * step
    for nats in (4.0, 8.0, 12.0):
        tail = density[grid > nats].sum() * step
        excess = laplace_excess(np.array(float(noises)), np.array(nats))
        assert float(excess) == pytest.approx(max(nats + math.log(tail), 0), abs=0.02)


def test_noise_above_a_whole_one_counts_as_the_next() -> None:
    fraction, whole = (
        laplace_excess(np.array(noises), np.array(9.0)) for noises in (2.5, 3.0)
    )
    assert fraction == whole
