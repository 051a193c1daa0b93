"""A policy that the simulator has never heard of is played, not replaced."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from wallflower.protocol.rewards.models import BernoulliRewards
from wallflower.regret.report import summarize
from wallflower.regret.setup import Prepared, build_engine
from wallflower.regret.simulation import Simulation, run
from wallflower.regret.users import AnyPolicy
from wallflower.strategy import policy_names
from wallflower.strategy.bandit import policies
from wallflower.strategy.bandit.elimination import Elimination
from wallflower.strategy.bandit.spec import PolicySpec

NAME = "patient"


class Patient(Elimination):
    """Never drops an arm."""

    def _drop(self, heard: Sequence[int]) -> None:
        pass


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_names, "POLICIES", (*policy_names.POLICIES, NAME))
    monkeypatch.setitem(policies._POLICIES, NAME, Patient)


def simulation(policy: str, instances: int = 2, lead: float = 0.8) -> Simulation:
    settings = PolicySpec(policy, 2, 5000, "dist-dp", Fraction(1))
    means = [0.1 + lead, 0.1] * instances
    return Simulation(settings, BernoulliRewards(means), instances, 3)


@pytest.mark.parametrize("engine", ["fast", "users"])
def test_a_new_policy_is_played_by_its_own_rules(engine: str) -> None:
    # Elimination, which once took its place, drops the worse arm in the first batches.
    result = run(build_engine(simulation(NAME), engine))
    assert not result.eliminated_in.any()
    assert result.users.tolist() == [5000, 5000]
    assert not result.decided.any()


def test_its_report_promises_nothing_that_the_policy_did_not_say() -> None:
    engine = build_engine(simulation(NAME))
    made = Prepared(simulation(NAME), engine, "fast", ("a", "b"), "bernoulli", "given")
    found = summarize(made, run(engine))
    assert found["guarantee"]["best_arm"] == (
        "What patient promises about the best arm is not known here."
    )


def test_a_known_policy_played_so_has_the_regret_of_its_own_engine() -> None:
    # 150 and 600 experiments, independent samples: means more than four standard
    # errors apart have a chance below 10⁻⁴.
    one = run(AnyPolicy(simulation("elimination", 150, 0.2))).regret
    other = run(build_engine(simulation("elimination", 600, 0.2))).regret
    error = np.sqrt(one.var() / len(one) + other.var() / len(other))
    assert abs(one.mean() - other.mean()) < 4 * error
