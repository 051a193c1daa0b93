"""Batched successive elimination (Algorithm 1), as a pure state machine.

All active arms get a cohort of the same size in every batch. An arm is out once
the sums show that it is worse than the leader: by the `tight` test, or because it
trails by more than the `paper` radius. With `tight` the best arm is ever dropped with
probability at most p: per batch K − 1 comparisons and K moduli share what
`strategy.bandit.failure_budget` gives it.

An arm whose cohort was void stays active: nothing is learnt about it in that batch, its
users count as used, and the batch number moves on, so that batch sizes and levels
never depend on what was seen. Two arms are compared over the batches in which both have
a sum (`tight`): a drift that is the same for all arms favours neither. Only the last
batch is smaller where fewer users are left (`tight`): its test takes exponents from the
plan and prices from who came.

A control that is kept leaves the race when it falls, but goes on getting people: it is
compared with every arm until the end.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from wallflower.protocol.errors import InputError
from wallflower.protocol.numbers import round_up_digits
from wallflower.strategy.bandit.cells import Doubles
from wallflower.strategy.bandit.margin import find_ending
from wallflower.strategy.bandit.policy import (
    Arm,
    CohortRequest,
    CohortSum,
    EliminationReason,
    Ending,
)
from wallflower.strategy.bandit.recorded import (
    ArmRecord,
    RecordedPolicy,
    check_outcomes,
)
from wallflower.strategy.bandit.schedule import History, last_size

Side = tuple[History, Doubles]  # what was heard of an arm, and its sums


class Elimination(RecordedPolicy):
    """One experiment of successive elimination."""

    def next_cohorts(self) -> Sequence[CohortRequest]:
        """One cohort for every active arm; none when the experiment is over."""
        if self._finished:
            return ()
        size = self._size()
        wrap = self._confidence.wrap(self._batch)
        return tuple(
            CohortRequest(self._batch, arm, size, wrap) for arm in self._list_asked()
        )

    def observe(self, outcomes: Sequence[CohortSum]) -> None:
        """Take the batch's sums, drop arms, move to the next batch."""
        if self._finished:
            raise InputError("outcomes", "sums after the end", "none")
        size = self._size()
        asked = dict.fromkeys(self._list_asked(), size)
        check_outcomes(outcomes, self._batch, asked)
        asked |= {outcome.arm: outcome.cohort_size for outcome in outcomes}
        for arm, users in asked.items():
            self._records[arm].users += users
        group = self._evidence.group_of(self._batch)
        heard = {outcome.arm for outcome in outcomes}
        whole = heard == asked.keys()
        for outcome in outcomes:
            self._records[outcome.arm].add(outcome, self._batch, group, whole=whole)
        for arm in asked.keys() - heard if heard else ():
            self._records[arm].lost.append(self._batch)
        self._drop([arm for arm in self._active() if arm in heard])
        self._finished = self._find_ending()
        self._batch += 1
        self._limit = None  # whoever came or was given back since counts anew
        self._close_if_over()

    def assignment(self, users: int) -> Mapping[Arm, int]:
        """Users who are not aggregated: the winner's, or who leads.

        With the `paper` radius they go through the active arms in blocks of the next
        batch's size, as Algorithm 1 does when it reaches T within a batch.
        """
        active = self._active()
        if self.spec.radius != "paper" or len(active) == 1:
            return {self._leader(active): users}
        size = self._schedule.size(self._batch)
        assigned: dict[Arm, int] = {}
        for arm in active:
            assigned[arm] = min(size, users - sum(assigned.values()))
        return assigned

    # --- inside

    def _leader(self, active: Sequence[Arm]) -> Arm:
        known = [arm for arm in active if self._records[arm].last]
        if not known:
            return active[0]
        self._compute_intervals(known)
        return max(known, key=lambda arm: self._interval(arm)[0])

    def _list_asked(self) -> list[Arm]:
        """Arms that get people: those in the race, and a control that is kept."""
        return [
            arm
            for arm, record in enumerate(self._records)
            if record.active or self.spec.keeps(arm, retired=record.retired)
        ]

    def _find_ending(self) -> Ending | None:
        """Say whether the margin ends it after this batch."""
        if self.spec.margin is None:
            return None
        asked, active, margin = self._list_asked(), self._active(), self.spec.margin
        estimates = self._estimate(asked)

        def is_within(arm: Arm, rival: Arm) -> bool:
            one, other = self._sides(arm, rival)
            found = self._evidence.compare(
                self._batch, one, other, shift=-float(margin)
            )
            return bool(found.falls[0])

        return find_ending(self.spec, active, asked, estimates, is_within)

    def _close_if_over(self) -> None:
        active = self._active()
        needed = self.users + len(self._list_asked()) * self.spec.least_size(
            self._batch
        )
        if self._finished:
            return
        if len(active) == 1:
            self._finished = Ending.WINNER
        elif self._limit is not None and needed > self._limit:
            self._finished = Ending.USERS_EXHAUSTED
        elif self.spec.are_rounds_over(self._batch):
            self._finished = Ending.ROUNDS
        elif needed > self.spec.horizon or self._batch > self.spec.most_batches:
            self._finished = Ending.HORIZON

    def _size(self) -> int:
        """Users per arm of this batch: as planned, or who is left for the last one."""
        left = self._most - self.users
        fitting = left // len(self._list_asked())
        planned = self._schedule.size(self._batch)
        return planned if planned <= fitting else last_size(fitting)

    def _drop(self, heard: Sequence[Arm]) -> None:
        """Drop each arm that another heard arm of this batch beats."""
        by_test = self.spec.radius == "tight"
        find = self._find_losers_by_test if by_test else self._find_losers_by_radius
        losers = find(heard)
        for arm, reason in losers.items():
            self._records[arm].eliminated_in = self._batch
            self._records[arm].reason = reason

    def _find_losers_by_test(
        self, heard: Sequence[Arm]
    ) -> dict[Arm, EliminationReason]:
        """Compare every arm with the leader of this batch's arms."""
        if len(heard) < 2:
            return {}
        estimates = self._estimate(heard)
        leader = max(heard, key=lambda arm: estimates[arm])
        # Rivals that were heard in the same rounds are looked at together.
        alike: defaultdict[tuple[History, History], list[tuple[Arm, Doubles, Doubles]]]
        alike = defaultdict(list)
        for arm in heard:
            if arm != leader:
                one, other = self._sides(leader, arm)
                alike[one[0], other[0]].append((arm, one[1], other[1]))
        losers: dict[Arm, EliminationReason] = {}
        for (leading, trailing), rivals in alike.items():
            arms, above, below = zip(*rivals, strict=True)
            verdict = self._evidence.compare(
                self._batch,
                (leading, np.concatenate(above)),
                (trailing, np.concatenate(below)),
            )
            for place in np.flatnonzero(verdict.falls).tolist():
                arm = arms[place]
                lead = estimates[leader] - estimates[arm]
                chance = self._chance(float(verdict.evidence[place]))
                losers[arm] = EliminationReason(leader, _round(lead), chance=chance)
        return losers

    def _estimate(self, arms: Sequence[Arm]) -> dict[Arm, float]:
        """Return the arms' estimates; those with one history are made together."""
        alike: defaultdict[History, list[Arm]] = defaultdict(list)
        for arm in arms:
            alike[self._records[arm].heard].append(arm)
        estimates: dict[Arm, float] = {}
        for heard, members in alike.items():
            users = self._evidence.delivered(heard, self._batch).users
            table = [self._side(self._records[arm])[1] for arm in members]
            found = self._evidence.estimates(users, np.concatenate(table))
            estimates |= zip(members, found.tolist(), strict=True)
        return estimates

    def _sides(self, arm: Arm, rival: Arm) -> tuple[Side, Side]:
        """Return what two arms showed in the rounds in which both have a sum."""
        one, other = self._records[arm], self._records[rival]
        return self._side(one.without(other.lost)), self._side(other.without(one.lost))

    def _side(self, record: ArmRecord) -> Side:
        return record.heard, record.row(self._evidence.group_of(self._batch) + 1)

    def _chance(self, evidence: float) -> float:
        """Bound the chance of such evidence against the best arm, in two digits.

        Each of the K − 1 others might have been the leader.
        """
        # One step of a double upwards pays for the rounding of exp itself.
        single = math.nextafter(math.exp(-evidence), math.inf)
        return round_up_digits(max((self.spec.arms - 1) * single, 1e-300), 2)

    def _find_losers_by_radius(
        self, heard: Sequence[Arm]
    ) -> dict[Arm, EliminationReason]:
        """Return the arms that another leads by more than both `paper` radii."""
        active = len(self._active())
        estimates, radii = {}, {}
        for arm in heard:
            record = self._records[arm]
            assert record.latest is not None, "an arm with a sum has a newest cohort"
            estimates[arm] = record.estimate_newest()
            radii[arm] = self._confidence.paper(record.latest, self._batch, active)
        losers: dict[Arm, EliminationReason] = {}
        if not heard:
            return losers
        # The rival that leads by most, relative to what the radius allows.
        rival = max(heard, key=lambda other: estimates[other] - radii[other])
        for arm in heard:
            gap = estimates[rival] - estimates[arm]
            radius = radii[rival] + radii[arm]
            if gap > radius:
                losers[arm] = EliminationReason(
                    rival, _round(gap), radius=_round(radius)
                )
        return losers


def _round(number: float) -> float:
    """Return four digits: more say nothing about people, and would fill the journal."""
    return float(f"{number:.4g}")
