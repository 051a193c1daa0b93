"""A bound on rounds: fewer and larger ones, and p spread over just those."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from wallflower.protocol.rewards.models import BernoulliRewards
from wallflower.regret.setup import build_engine
from wallflower.regret.simulation import Simulation
from wallflower.strategy.bandit.policies import build_policy, policy_from_state
from wallflower.strategy.bandit.policy import CohortSum, Policy
from wallflower.strategy.bandit.schedule import Schedule
from wallflower.strategy.bandit.spec import PolicySpec


def spec(most_rounds: int, **changes: object) -> PolicySpec:
    given = {"policy": "elimination", "arms": 4, "horizon": 100_000, **changes}
    return PolicySpec(
        mechanism="dist-dp",
        epsilon=Fraction(1),
        most_rounds=most_rounds,
        **given,  # type: ignore[arg-type]
    )


def play_equal_arms(policy: Policy) -> int:
    """Give every cohort a mean of one half; return how many rounds there were."""
    rounds = 0
    while requests := policy.next_cohorts():
        rounds += 1
        policy.observe(
            [
                CohortSum(one.batch, one.arm, one.size, one.size, one.size, 2, one.size)
                for one in requests
            ]
        )
    return rounds


@pytest.mark.parametrize("name", ["elimination", "dp-imed"])
def test_no_more_rounds_are_asked_and_the_end_says_why(name: str) -> None:
    policy = build_policy(spec(3, policy=name))
    assert play_equal_arms(policy) == 3
    assert policy.finished == "rounds"
    assert policy_from_state(policy.state()).finished == "rounds"


@pytest.mark.parametrize("rounds", [1, 2, 4, 6, 9])
def test_few_rounds_are_so_large_that_they_use_the_horizon(rounds: int) -> None:
    resolved = spec(rounds).resolved()
    assert resolved.ratio is not None
    schedule = Schedule(resolved.ratio, resolved.first_batch)
    asked = 4 * sum(schedule.size(batch) for batch in range(1, rounds + 1))
    assert 0.98 * 100_000 <= asked <= 1.001 * 100_000


def test_more_rounds_than_fit_change_nothing() -> None:
    assert spec(50).resolved().first_batch == spec(0).resolved().first_batch
    assert spec(50).resolved().ratio == spec(0).resolved().ratio


def test_what_is_stated_stays() -> None:
    stated = spec(4, ratio=Fraction(3), first_batch=77).resolved()
    assert stated.ratio == Fraction(3)
    assert stated.first_batch == 77


@pytest.mark.parametrize("rounds", [1, 3, 8])
def test_p_is_spread_over_just_the_rounds_that_are_allowed(rounds: int) -> None:
    shares = spec(rounds).resolved().shares
    assert shares.batches == rounds
    weights = [shares.weight(batch) for batch in range(1, rounds + 1)]
    assert Fraction(98, 100) < sum(weights) <= 1
    assert shares.weight(1) > spec(0).resolved().shares.weight(1)


@pytest.mark.parametrize("name", ["elimination", "dp-imed"])
def test_the_simulator_ends_where_the_policy_ends(name: str) -> None:
    simulated = spec(2, policy=name, horizon=4000)
    model = BernoulliRewards(np.full(8, 0.5))
    engine = build_engine(Simulation(simulated, model, 2, seed=1))
    for _ in engine.steps():
        pass
    assert engine.result().finished == ("rounds", "rounds")
