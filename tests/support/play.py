"""Plays a policy on cohorts drawn from the real mechanism; used by several tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wallflower.protocol.rewards.models import BernoulliRewards
from wallflower.regret.draws import CohortDraws
from wallflower.strategy.bandit.policy import CohortOutcome, CohortWish, Policy
from wallflower.strategy.bandit.spec import PolicySpec


class Field:
    """Answers wishes as a field of honest users would, minus some who drop out."""

    def __init__(self, spec: PolicySpec, means: Sequence[float], seed: int = 0) -> None:
        self._spec = spec
        self._draws = CohortDraws(BernoulliRewards(means), seed)

    def outcome(self, wish: CohortWish) -> CohortOutcome:
        """Let everybody who was asked answer."""
        cohort = self._spec.calibrated(
            wish.size, self._spec.floor(wish.size), wish.wrap_probability
        )
        total = int(self._draws.totals(np.array([wish.arm]), cohort)[0])
        return CohortOutcome(
            wish.batch,
            wish.arm,
            cohort.cohort_size,
            cohort.honest_floor,
            cohort.cohort_size,
            cohort.precision,
            total,
        )

    def play(self, policy: Policy) -> None:
        """Answer all wishes until the policy is finished."""
        while wishes := policy.wishes():
            policy.observe([self.outcome(wish) for wish in wishes])
