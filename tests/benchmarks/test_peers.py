"""The rules that ours is measured against meet the same oracle."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.dp_se import FastDpSe, epoch_radius, epoch_size
from benchmarks.pair_radius import PairElimination, steep
from wallflower.protocol.rewards.models import GaussianRewards
from wallflower.regret.setup import draw_means
from wallflower.regret.simulation import Engine, Simulation, run
from wallflower.strategy.bandit.spec import PolicySpec


# As in tests/wallflower/regret/test_elimination.py, by the same oracle.
@pytest.mark.parametrize(
    ("engine", "oracle", "epsilon"),
    [
        (FastDpSe, 4285, Fraction(1)),
        (PairElimination, 2861, Fraction(1, 10)),
        (PairElimination, 1197, Fraction(1)),
    ],
    ids=str,
)
def test_regret_meets_the_oracle(
    engine: Callable[[Simulation], Engine], oracle: int, epsilon: Fraction
) -> None:
    spec = PolicySpec(
        policy="elimination",
        arms=10,
        horizon=10**6,
        mechanism="dist-dp",
        epsilon=epsilon,
        failure_probability=Fraction(1, 10),
    )
    if engine is PairElimination:
        spec = steep(spec)
    model = GaussianRewards(draw_means("easy", 100, 10, 123).ravel(), 0.1)
    regret = run(engine(Simulation(spec, model, 100, 123))).regret
    error = regret.std(ddof=1) / 10
    assert abs(regret.mean() - oracle) < 0.05 * oracle + 3.9 * error
    assert abs(regret.mean() - oracle) < 0.2 * oracle


def test_the_epochs_of_dp_se_follow_the_published_formula() -> None:
    # e = 2, |S| = 10, β = 0.1, ε = 0.1, D = 1/4: sampling needs 32 ln(3200)·16.
    size = epoch_size(2, 10, 0.1, 0.1)
    assert size == 1 + np.ceil(32 * np.log(3200) * 16)
    radius = epoch_radius(2, 10, 0.1, 0.1, size)
    expected = np.sqrt(np.log(3200) / (2 * size)) + np.log(1600) / (size * 0.1)
    assert radius == pytest.approx(expected)
