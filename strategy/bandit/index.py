"""The index policy `dp-imed` on the same distributed protocol.

After one cohort for every arm, the arm that `strategy.bandit.index_choice` names gets
the next cohort, larger than its last by the ratio. Each user gives one reward, each
cohort carries fresh noise, sums are kept. Central-model state of the art (Azize et al.
2025); nothing in it needs the central server, so here the sums come from secure
aggregation.

Index policies never rule an arm out; they spend few users on bad ones. A void cohort
teaches nothing: the arm's next cohort has the same size, but its share of the failure
probability (used for wrap-around and intervals) moves on. Where too few users are left
for the plan, one smaller cohort takes nearly all of them and ends the experiment:
exploring on with the handful that remains could only cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from wallflower.protocol.errors import InputError
from wallflower.strategy.bandit.index_choice import (
    ArmTotals,
    choose_arm,
    divergence_for,
)
from wallflower.strategy.bandit.policy import (
    USERS_EXHAUSTED,
    Arm,
    CohortRequest,
    CohortSum,
    Ending,
)
from wallflower.strategy.bandit.recorded import RecordedPolicy, State, check_outcomes
from wallflower.strategy.bandit.schedule import last_size
from wallflower.strategy.bandit.spec import PolicySpec


class IndexPolicy(RecordedPolicy):
    """One experiment of an index policy; all but retired arms stay active."""

    def __init__(self, spec: PolicySpec, state: State | None = None) -> None:
        self._attempts = list(state["attempts"]) if state else [0] * spec.arms
        self._divergence = divergence_for(spec.resolved().built)
        super().__init__(spec, state)

    def next_cohorts(self) -> Sequence[CohortRequest]:
        """Cohorts for the arms never heard, else one for the arm of best index."""
        if self._finished:
            return ()
        return self._next()

    def observe(self, outcomes: Sequence[CohortSum]) -> None:
        """Keep the sums and move on."""
        next_cohorts = self.next_cohorts()
        if not next_cohorts:
            raise InputError("outcomes", "sums after the end", "none")
        check_outcomes(outcomes, self._batch, {w.arm: w.size for w in next_cohorts})
        # Others may come after a round that too few were there for, not after T.
        whole = self._most == self.spec.horizon
        last = whole and any(
            cohort_request.size < self._plan_size(cohort_request.arm)
            for cohort_request in next_cohorts
        )
        sizes = {outcome.arm: outcome.cohort_size for outcome in outcomes}
        for cohort_request in next_cohorts:
            self._records[cohort_request.arm].users += sizes.get(
                cohort_request.arm, cohort_request.size
            )
            self._attempts[cohort_request.arm] += 1
        for outcome in outcomes:
            place = self._records[outcome.arm].last + 1
            group = self._evidence.group_of(place)
            self._records[outcome.arm].add(outcome, place, group)
        self._batch += 1
        self._limit = None  # whoever came or was given back since counts anew
        self._close_if_over(last)

    def assignment(self, users: int) -> Mapping[Arm, int]:
        """Users who are not aggregated get the arm that leads."""
        active = self._active()
        heard = all(self._records[arm].last for arm in active)
        return {active[int(self._totals().leader) if heard else 0]: users}

    # --- inside

    def _own_state(self) -> State:
        return {"attempts": list(self._attempts)}

    def _next(self) -> Sequence[CohortRequest]:
        unheard = [arm for arm in self._active() if not self._records[arm].last]
        return tuple(self._request(arm) for arm in unheard or [self._choice()])

    def _plan_size(self, arm: Arm) -> int:
        return self._schedule.size(self._records[arm].last + 1)

    def _request(self, arm: Arm) -> CohortRequest:
        number = self._records[arm].last + 1
        left = max(self._most - self.users, 0)
        size = self._plan_size(arm)
        if left < size:
            size = max(last_size(left), self.spec.least_size(number))
        wrap = self._confidence.wrap(self._attempts[arm] + 1)
        return CohortRequest(self._batch, arm, size, wrap)

    def _choice(self) -> Arm:
        place = choose_arm(self._totals(), self._divergence, self.spec.horizon)
        return self._active()[int(place)]

    def _totals(self) -> ArmTotals:
        """Return what is known of the active arms."""
        records = [self._records[arm] for arm in self._active()]
        kinds = [[kind for group in one.heard for kind in group] for one in records]
        users = [sum(n * facts.survivors for facts, n in row) for row in kinds]
        noises = [
            sum(n * (facts.survivors / facts.floor) for facts, n in row)
            for row in kinds
        ]
        return ArmTotals(
            sums=np.array([float(record.total()) for record in records]),
            users=np.array(users, dtype=float),
            noises=np.array(noises, dtype=float),
        )

    def _close_if_over(self, last: bool = False) -> None:
        """End it where the next cohort does not fit, or the last one was `last`."""
        if self._finished:
            return
        needed = self.users + sum(
            cohort_request.size for cohort_request in self._next()
        )
        if len(self._active()) == 1:
            self._finished = "winner"
        elif self.spec.are_rounds_over(self._batch):
            self._finished = Ending.ROUNDS
        elif not last and needed <= self._most:
            return
        elif self._limit is not None and self._limit == self._most:
            self._finished = USERS_EXHAUSTED
        else:
            self._finished = "horizon"
