"""How many users an experiment usually takes: the mean of exact simulations."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from functools import lru_cache

import numpy as np

from wallflower.protocol.rewards.models import BernoulliRewards
from wallflower.regret.elimination import FastElimination
from wallflower.regret.simulation import Simulation
from wallflower.strategy.bandit.spec import LARGEST_HORIZON, PolicySpec

RUNS = 40
# Seeded: the same question has the same answer.
_SEED = 20
# Where this many times the horizon does not decide, nobody will wait for it.
LONGEST = 100


@lru_cache(maxsize=256)
def typical_users(
    policy: PolicySpec, base_rate: Fraction, gap: Fraction, runs: int = RUNS
) -> int | None:
    """Mean users until one arm is left, if it leads all others by `gap`.

    Rewards are 0 or 1; the others' mean is `base_rate`, or less where the leader would
    exceed 1. None where some run is undecided after 100 times the horizon.
    """
    best = min(float(base_rate + gap), 1.0)
    means = np.full((runs, policy.arms), best - float(gap))
    means[:, 0] = best
    for times in (1, LONGEST):
        longest = min(times * policy.horizon, LARGEST_HORIZON)
        spec = dataclasses.replace(policy, horizon=longest, user_budget=0)
        model = BernoulliRewards(means.ravel())
        engine = FastElimination(Simulation(spec, model, runs, _SEED))
        for _ in engine.steps():
            pass
        if set(engine.accounts.finished) == {"winner"}:
            return round(float(engine.accounts.asked.mean()))
    return None
