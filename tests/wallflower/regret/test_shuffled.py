"""The price of a shuffler: hardly any regret, and rarely a wrong sum."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from wallflower.protocol.privacy.mechanism import mechanism_named
from wallflower.protocol.rewards.models import BernoulliRewards, GaussianRewards
from wallflower.regret.draws import CohortDraws
from wallflower.regret.elimination import FastElimination
from wallflower.regret.simulation import Simulation, run
from wallflower.strategy.bandit.spec import PolicySpec

INSTANCES, ARMS = 2000, 5


def mean_regret(mechanism: str, epsilon: Fraction) -> tuple[float, float]:
    """Return the mean regret of 2,000 instances and its standard error."""
    spec = PolicySpec(
        policy="elimination",
        arms=ARMS,
        horizon=100_000,
        mechanism=mechanism,
        epsilon=epsilon,
        failure_probability=Fraction(1, 10),
    )
    means = np.random.default_rng(14).uniform(0.25, 0.75, INSTANCES * ARMS)
    simulation = Simulation(spec, GaussianRewards(means.tolist(), 0.1), INSTANCES, 6)
    regret = run(FastElimination(simulation)).regret
    return float(regret.mean()), float(regret.std() / INSTANCES**0.5)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 2), Fraction(1)])
def test_regret_is_at_most_a_twentieth_above_that_of_secure_aggregation(
    epsilon: Fraction,
) -> None:
    shuffled, error = mean_regret("shuffle-dp", epsilon)
    aggregated, _ = mean_regret("dist-dp", epsilon)
    # The same instances; means differ by about 1 %, the rest is chance.
    assert shuffled <= 1.05 * aggregated
    assert error < 0.02 * shuffled


def test_junk_makes_sums_wrong_as_often_as_it_may() -> None:
    level = Fraction(1, 2)
    cohort = mechanism_named("shuffle-dp", Fraction(1)).for_cohort(64, 64, level)
    arms = np.zeros(4000, dtype=np.intp)
    totals = CohortDraws(BernoulliRewards([0.0]), 3).totals(arms, cohort)
    # Without junk only the noise is left, which passes 150 once in e¹⁸; junk is drawn
    # in 1 − e^(−1/4) = 22 % of sums, and most of them land far away.
    wrong = float(np.mean(np.abs(totals) > 150))
    assert cohort.modulus == 1024
    assert 0.1 < wrong < 0.25
