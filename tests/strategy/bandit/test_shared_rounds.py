"""Arms are compared over the rounds in which both have a sum: drift favours neither."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection
from fractions import Fraction

import numpy as np
import pytest

from wallflower.strategy.bandit.elimination import Elimination
from wallflower.strategy.bandit.policies import policy_from_state
from wallflower.strategy.bandit.policy import CohortSum
from wallflower.strategy.bandit.spec import PolicySpec
from wallflower.strategy.bandit.worst_case import WorstCase

SPEC = PolicySpec(
    policy="elimination",
    arms=3,
    horizon=12_000,
    mechanism="non-private",
    epsilon=Fraction(1),
    failure_probability=Fraction(1, 20),
    first_batch=250,
    ratio=Fraction(2),
)


def play(
    spec: PolicySpec,
    mean: Callable[[int, int], float],
    void: Collection[tuple[int, int]] = (),
    seed: int = 0,
) -> Elimination:
    """Play noiseless rounds; `mean` follows from round and arm, `void` has no sums."""
    generator, policy = np.random.default_rng(seed), Elimination(spec)
    while next_cohorts := policy.next_cohorts():
        policy.observe(
            [
                CohortSum(
                    one.batch,
                    one.arm,
                    one.size,
                    one.size,
                    one.size,
                    1,
                    int(generator.binomial(one.size, mean(one.batch, one.arm))),
                )
                for one in next_cohorts
                if (one.batch, one.arm) not in void
            ]
        )
    return policy


def drifting(batch: int, arm: int) -> float:
    return 0.8 if batch == 1 else 0.2


def test_an_arm_that_missed_a_good_round_does_not_fall_for_it() -> None:
    # Equal arms, without a mistake in 5 runs with a chance of 77 % at least; this seed
    # gives none. Arms 1 and 2 miss the round in which all rates were high.
    for seed in range(5):
        policy = play(SPEC, drifting, {(1, 1), (1, 2)}, seed)
        assert all(view.active for view in policy.arms())


def test_an_arm_that_is_worse_still_falls_by_the_rounds_that_both_have() -> None:
    policy = play(
        SPEC, lambda batch, arm: drifting(batch, arm) - 0.15 * (arm == 2), {(1, 0)}
    )
    assert [view.active for view in policy.arms()] == [True, True, False]


def test_the_same_rounds_end_a_run_as_equal() -> None:
    spec = dataclasses.replace(SPEC, margin=Fraction(1, 5))
    assert play(spec, drifting, {(1, 1), (1, 2)}, 3).finished == "equal"


def test_differences_are_of_shared_rounds_and_hold_the_truth() -> None:
    policy = play(SPEC, drifting, {(1, 1)}, 2)
    pair = WorstCase(policy.state()).compare(0, 1)
    ends = pair.among_answered.difference()
    assert ends.lower is not None
    assert ends.upper is not None
    assert ends.lower < 0 < ends.upper
    assert pair.estimate == pytest.approx(0.2, abs=0.03)
    assert policy.arms()[0].estimate == pytest.approx(0.24, abs=0.02)


def test_people_of_void_cohorts_that_count_as_missing_bring_their_round_back() -> None:
    policy = play(SPEC, drifting, {(1, 1)}, 2)
    state = policy.state()
    void = {(1, 1): SPEC.first_batch}
    ends = WorstCase(state, void).compare(0, 1).whatever.difference()
    replaced = WorstCase(state).compare(0, 1).whatever.difference()
    assert ends.lower is not None
    assert replaced.lower is not None
    assert ends.lower < replaced.lower - 0.01
    # The outcomes of the missing may have been 0, and those of arm 0 were not.
    assert ends.upper is not None
    assert ends.upper > 0.05


def test_a_state_that_was_written_decides_as_the_policy_that_went_on() -> None:
    first = play(SPEC, drifting, {(1, 1), (2, 2)}, 4)
    state = json.loads(json.dumps(first.state()))
    again = policy_from_state(state)
    assert again.state() == first.state()
    assert state["arms"]["1"]["lost"] == [1]
