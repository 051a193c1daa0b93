"""Index policies `dp-klucb` and `dp-imed` on the same distributed protocol.

After one cohort for every arm, the arm that `strategy.index_choice` names gets the
next cohort, larger than its last by the ratio. Each user gives one reward, each cohort
carries fresh noise, sums are kept. Central-model state of the art (Azize et al. 2025);
nothing in it needs the central server, so here the sums come from secure aggregation.

Index policies never rule an arm out; they spend few users on bad ones. A void cohort
teaches nothing: the arm's next cohort has the same size, but its share of the failure
probability (used for wrap-around and intervals) moves on. Where too few users are left
for the plan, one smaller cohort takes nearly all of them and ends the experiment:
exploring on with the handful that remains could only cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from wallflower.protocol.errors import InputError
from wallflower.strategy.bandit.arm_record import check_outcomes
from wallflower.strategy.bandit.divergence import divergence_for
from wallflower.strategy.bandit.index_choice import CHOICES, Standing
from wallflower.strategy.bandit.policy import (
    USERS_EXHAUSTED,
    Arm,
    CohortOutcome,
    CohortWish,
)
from wallflower.strategy.bandit.recorded import RecordedPolicy, State
from wallflower.strategy.bandit.schedule import last_size
from wallflower.strategy.bandit.spec import PolicySpec


class IndexPolicy(RecordedPolicy):
    """One experiment of an index policy; all but retired arms stay active."""

    def __init__(self, spec: PolicySpec, state: State | None = None) -> None:
        self._attempts = list(state["attempts"]) if state else [0] * spec.arms
        self._divergence = divergence_for(spec.resolved().built)
        super().__init__(spec, state)

    def wishes(self) -> Sequence[CohortWish]:
        """Cohorts for the arms never heard, else one for the arm of best index."""
        if self._finished:
            return ()
        return self._next()

    def observe(self, outcomes: Sequence[CohortOutcome]) -> None:
        """Keep the sums and move on."""
        wishes = self.wishes()
        if not wishes:
            raise InputError("outcomes", "sums after the end", "none")
        check_outcomes(outcomes, self._batch, {w.arm: w.size for w in wishes})
        # Others may come after a round that too few were there for, not after T.
        whole = self._most == self.spec.most_users
        last = whole and any(wish.size < self._planned(wish.arm) for wish in wishes)
        sizes = {outcome.arm: outcome.cohort_size for outcome in outcomes}
        for wish in wishes:
            self._records[wish.arm].users += sizes.get(wish.arm, wish.size)
            self._attempts[wish.arm] += 1
        for outcome in outcomes:
            self._records[outcome.arm].add(outcome, self._attempts[outcome.arm])
        self._batch += 1
        self._limit = None  # whoever came or was given back since counts anew
        self._close_if_over(last)

    def assignment(self, users: int) -> Mapping[Arm, int]:
        """Users who are not aggregated get the arm that leads."""
        active = self._active()
        heard = all(self._records[arm].facts for arm in active)
        return {active[int(self._standing().leader) if heard else 0]: users}

    # --- inside

    def _own_state(self) -> State:
        return {"attempts": list(self._attempts)}

    def _next(self) -> Sequence[CohortWish]:
        unheard = [arm for arm in self._active() if not self._records[arm].facts]
        return tuple(self._wish(arm) for arm in unheard or [self._choice()])

    def _planned(self, arm: Arm) -> int:
        return self._schedule.size(len(self._records[arm].facts) + 1)

    def _wish(self, arm: Arm) -> CohortWish:
        number = len(self._records[arm].facts) + 1
        left = max(self._most - self.users, 0)
        size = self._planned(arm)
        if left < size:
            size = max(last_size(left), self.spec.least_size(number))
        wrap = self._confidence.wrap(self._attempts[arm] + 1)
        return CohortWish(self._batch, arm, size, wrap)

    def _choice(self) -> Arm:
        choose = CHOICES[self.spec.policy]
        place = choose(self._standing(), self._divergence, self.spec.horizon)
        return self._active()[int(place)]

    def _standing(self) -> Standing:
        """What is known of the active arms."""
        records = [self._records[arm] for arm in self._active()]
        facts = [record.facts for record in records]
        return Standing(
            sums=np.array([float(sum(r.sums, Fraction(0))) for r in records]),
            users=np.array([float(sum(f.survivors for f in row)) for row in facts]),
            noises=np.array([sum(f.survivors / f.floor for f in row) for row in facts]),
        )

    def _close_if_over(self, last: bool = False) -> None:
        """End it where the next cohort does not fit, or the last one was `last`."""
        if self._finished:
            return
        needed = self.users + sum(wish.size for wish in self._next())
        if len(self._active()) == 1:
            self._finished = "winner"
        elif not last and needed <= self._most:
            return
        elif self._limit is not None and self._limit == self._most:
            self._finished = USERS_EXHAUSTED
        else:
            whole = self._most == self.spec.horizon
            self._finished = "horizon" if whole else "budget"

    def _interval(self, arm: Arm) -> tuple[float, float, float]:
        facts = self._records[arm].facts
        places = range(1, len(facts) + 1)
        estimate, lower, upper = (
            float(values[0])
            for values in self._evidence.interval(
                tuple(zip(places, facts, strict=True)),
                self._records[arm].row(places, len(facts)),
            )
        )
        return estimate, lower, upper
