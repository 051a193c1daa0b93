"""Any policy, played instance by instance: one draw a cohort, exact in law.

Policies with a law of their own (`elimination`, the index policies) are played on all
instances at once, which is faster; this needs nothing but the policy.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wallflower.regret.draws import CohortDraws
from wallflower.regret.simulation import Simulation
from wallflower.regret.users import UsersEngine
from wallflower.strategy.bandit.policy import CohortRequest, CohortSum


class AnyPolicy(UsersEngine):
    """Asks the real policy, and draws the sums of its cohorts."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self._draws = CohortDraws(simulation.model, simulation.seed)

    def _cohort(
        self, row: int, cohort_request: CohortRequest
    ) -> Iterator[CohortSum | None]:
        cohort = self._calibrated(cohort_request)
        arm = np.array([row * self._spec.arms + cohort_request.arm])
        (total,) = self._draws.totals(arm, cohort).tolist()
        yield self._outcome(cohort_request, cohort, total)
