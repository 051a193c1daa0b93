"""Elimination with unequal survivors decides as the policy of a run does."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.uneven_survivors import PATTERNS, UnevenElimination
from tests.wallflower.regret.test_elimination import RecordedDraws
from wallflower.protocol.rewards.models import BernoulliRewards
from wallflower.regret.draws import CohortDraws
from wallflower.regret.simulation import Simulation
from wallflower.strategy.bandit.policies import build_policy
from wallflower.strategy.bandit.policy import CohortSum
from wallflower.strategy.bandit.spec import PolicySpec

ARMS = 4
SPEC = PolicySpec(
    policy="elimination",
    arms=ARMS,
    horizon=30_000,
    mechanism="dist-dp",
    epsilon=Fraction(1, 2),
    failure_probability=Fraction(1, 10),
    honest_fraction=Fraction(4, 5),
)
MEANS = np.tile([0.6, 0.5, 0.3, 0.2], 3)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_engine_and_policy_decide_alike_on_the_same_sums(pattern: str) -> None:
    simulation = Simulation(SPEC, BernoulliRewards(MEANS), 3, 4)
    engine = UnevenElimination(simulation, PATTERNS[pattern])
    draws = RecordedDraws(simulation)
    engine._draws = draws
    for _ in engine.steps():
        pass
    for instance in range(3):
        policy = build_policy(SPEC)
        while next_cohorts := policy.next_cohorts():
            outcomes = []
            for cohort_request in next_cohorts:
                came = engine.survivors(
                    cohort_request.batch, cohort_request.arm, cohort_request.size
                )
                if not came:
                    continue
                rows = draws.outcomes[instance * ARMS + cohort_request.arm]
                _, precision, total = rows.pop(0)
                floor = SPEC.floor(cohort_request.size)
                outcomes.append(
                    CohortSum(
                        cohort_request.batch,
                        cohort_request.arm,
                        cohort_request.size,
                        floor,
                        came,
                        precision,
                        total,
                    )
                )
            policy.observe(outcomes)
        fell = [view.eliminated_in or 0 for view in policy.arms()]
        assert engine.eliminated_in[instance].tolist() == fell
        assert any(fell)


def test_missing_people_bring_no_rewards() -> None:
    # 400 sums of 80 of 100 people who all have a reward of 1: their mean is off by
    # more than 5 standard errors with a chance below 10⁻⁶.
    cohort = SPEC.calibrated(100, 80, Fraction(1, 1000))
    draws = CohortDraws(BernoulliRewards([1.0, 1.0]), 3)
    sums = draws.totals(np.zeros(400, dtype=np.intp), cohort, 80) / cohort.precision
    noise = cohort.total_noise(80)
    assert noise is not None
    deviation = noise.variance() ** 0.5 / cohort.precision
    assert abs(sums.mean() - 80) < 5 * deviation / 20
