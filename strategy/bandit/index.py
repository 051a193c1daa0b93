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
from typing import Any

import numpy as np

from wallflower.protocol.errors import InputError
from wallflower.strategy.bandit.arm_record import ArmRecord, check_outcomes, retire
from wallflower.strategy.bandit.confidence import confidence_for
from wallflower.strategy.bandit.divergence import divergence_for
from wallflower.strategy.bandit.evidence import evidence_for
from wallflower.strategy.bandit.index_choice import CHOICES, Standing
from wallflower.strategy.bandit.policy import (
    USERS_EXHAUSTED,
    Arm,
    ArmView,
    CohortOutcome,
    CohortWish,
)
from wallflower.strategy.bandit.schedule import Schedule, last_size
from wallflower.strategy.bandit.spec import PolicySpec


class IndexPolicy:
    """One experiment of an index policy."""

    def __init__(self, spec: PolicySpec) -> None:
        self.spec = spec.resolved()
        assert self.spec.ratio is not None
        self._schedule = Schedule(self.spec.ratio, self.spec.first_batch)
        self._confidence = confidence_for(self.spec)
        self._evidence = evidence_for(self.spec)
        self._divergence = divergence_for(self.spec.built)
        self._records = [ArmRecord() for _ in range(self.spec.arms)]
        self._attempts = [0] * self.spec.arms
        self._batch = 1
        self._limit: int | None = None  # of users in all, after the next batch
        self._finished: str | None = None
        self._close_if_over()

    # --- the Policy interface

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

    def arms(self) -> Sequence[ArmView]:
        """Every arm's estimate and interval; all but retired ones stay active."""
        return tuple(self._view(arm) for arm in range(self.spec.arms))

    @property
    def finished(self) -> str | None:
        """Why it is over, or None."""
        return self._finished

    def limit(self, users: int) -> None:
        """Take note that the next batch can ask no more than `users` users."""
        self._limit = min(self.users + users, self.spec.most_users)
        self._close_if_over()

    def stop(self, reason: str) -> None:
        """End it from outside; a first reason stays."""
        self._finished = self._finished or reason

    def retire(self, arm: Arm, reason: str) -> None:
        """Take an arm out by hand; with one arm left there is nothing to learn."""
        if self._finished:
            raise InputError("arm", arm, "none: the experiment is over")
        retire(self._records, arm, reason, self._batch - 1)
        self._close_if_over()

    def assignment(self, users: int) -> Mapping[Arm, int]:
        """Users who are not aggregated get the arm that leads."""
        active = self._active()
        heard = all(self._records[arm].facts for arm in active)
        return {active[int(self._standing().leader) if heard else 0]: users}

    def state(self) -> Mapping[str, Any]:
        """JSON-ready state."""
        return {
            "schema_version": 1,
            "spec": self.spec.as_json(),
            "batch": self._batch,
            "limit": self._limit,
            "finished": self._finished,
            "attempts": list(self._attempts),
            "arms": [record.as_json() for record in self._records],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> IndexPolicy:
        """Restore exactly what `state` gave."""
        policy = cls(PolicySpec.from_json(state["spec"]))
        policy._batch = state["batch"]
        policy._limit = state.get("limit")
        policy._finished = state["finished"]
        policy._attempts = list(state["attempts"])
        policy._records = [ArmRecord.from_json(row) for row in state["arms"]]
        return policy

    # --- inside

    @property
    def batch(self) -> int:
        """Number of the step that is wished for next."""
        return self._batch

    @property
    def users(self) -> int:
        """Users asked so far, void cohorts included."""
        return sum(record.users for record in self._records)

    @property
    def _most(self) -> int:
        """Users that may be asked in all, as far as is known."""
        most = self.spec.most_users
        return most if self._limit is None else min(most, self._limit)

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

    def _active(self) -> list[Arm]:
        return [arm for arm, record in enumerate(self._records) if record.active]

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

    def _view(self, arm: Arm) -> ArmView:
        record = self._records[arm]
        out = (record.active, record.eliminated_in, record.reason, record.retired)
        if not record.facts:
            return ArmView(arm, record.users, None, 0.0, 1.0, *out)
        places = range(1, len(record.facts) + 1)
        estimate, lower, upper = (
            float(values[0])
            for values in self._evidence.interval(
                tuple(zip(places, record.facts, strict=True)),
                record.row(places, len(record.facts)),
                self._attempts[arm],
            )
        )
        return ArmView(arm, record.users, estimate, lower, upper, *out)
