"""Plays a policy on cohorts drawn from the real mechanism; used by several tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wallflower.protocol.rewards.models import BernoulliRewards
from wallflower.regret.draws import CohortDraws
from wallflower.strategy.bandit.policy import CohortRequest, CohortSum, Policy
from wallflower.strategy.bandit.spec import PolicySpec


class Field:
    """Answers cohort requests as honest users would, minus some who drop out."""

    def __init__(self, spec: PolicySpec, means: Sequence[float], seed: int = 0) -> None:
        self._spec = spec
        self._draws = CohortDraws(BernoulliRewards(means), seed)

    def outcome(self, cohort_request: CohortRequest) -> CohortSum:
        """Answer for everybody who was asked."""
        cohort = self._spec.calibrated(
            cohort_request.size,
            self._spec.floor(cohort_request.size),
            cohort_request.wrap_probability,
        )
        total = int(self._draws.totals(np.array([cohort_request.arm]), cohort)[0])
        return CohortSum(
            cohort_request.batch,
            cohort_request.arm,
            cohort.cohort_size,
            cohort.honest_floor,
            cohort.cohort_size,
            cohort.precision,
            total,
        )

    def play(self, policy: Policy) -> None:
        """Answer all cohort requests until the policy is finished."""
        while next_cohorts := policy.next_cohorts():
            policy.observe(
                [self.outcome(cohort_request) for cohort_request in next_cohorts]
            )
