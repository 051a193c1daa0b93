"""Index policies on many instances at once, exact in law.

In every step each live instance asks one cohort of the arm of its best index; cohorts
of the same size are drawn together. The choices are those of
`strategy.bandit.index_choice`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from wallflower.regret.draws import CohortDraws
from wallflower.regret.elimination import groups
from wallflower.regret.simulation import (
    Accounts,
    Doubles,
    Integers,
    Simulation,
    SimulationResult,
)
from wallflower.strategy.bandit.confidence import confidence_for
from wallflower.strategy.bandit.index_choice import (
    ArmTotals,
    choose_arm,
    divergence_for,
)
from wallflower.strategy.bandit.policy import Ending
from wallflower.strategy.bandit.schedule import CohortFacts, Schedule, last_size
from wallflower.strategy.bandit.sequential_test import evidence_for


class FastIndex:
    """Plays `dp-imed` on every instance of a simulation."""

    def __init__(self, simulation: Simulation) -> None:
        self._spec = simulation.spec.resolved()
        assert self._spec.ratio is not None
        self._schedule = Schedule(self._spec.ratio, self._spec.first_batch)
        self._confidence = confidence_for(self._spec)
        self._evidence = evidence_for(self._spec)
        self._divergence = divergence_for(self._spec.built)
        self._draws = CohortDraws(simulation.model, simulation.seed)
        self._accounts = Accounts(simulation)
        shape = (simulation.instances, self._spec.arms)
        self._cohorts = np.zeros(shape, dtype=np.int64)
        self._last_size = np.zeros(shape, dtype=np.int64)
        self._sums = np.zeros(shape)
        self._noises = np.zeros(shape)
        # Per group of an arm's cohorts: its sums, for the intervals.
        self._by_group: list[Doubles] = []

    def steps(self) -> Iterator[float]:
        """Play step after step until every instance is over."""
        accounts = self._accounts
        first = self._schedule.size(1)
        everyone = np.nonzero(np.ones(self._cohorts.shape, dtype=np.bool_))
        if first * self._spec.arms > self._spec.horizon:
            for row in np.flatnonzero(accounts.live):
                accounts.close(row, Ending.HORIZON, {0: accounts.remaining(row)})
        else:
            self._play(*everyone)
            accounts.checkpoint()
            yield accounts.part_done
        batch = 1
        while accounts.live.any():
            rows, batch = np.flatnonzero(accounts.live), batch + 1
            if self._spec.are_rounds_over(batch):
                self._close(rows, Ending.ROUNDS)
                break
            arms = self._choices(rows)
            rows, arms = self._close_finished(rows, arms)
            self._play(rows, arms)
            accounts.checkpoint()
            yield accounts.part_done
        accounts.checkpoint()
        yield 1.0

    def result(self) -> SimulationResult:
        """Return what is known so far."""
        shape = self._cohorts.shape
        estimates, lower, upper = np.full(shape, 0.5), np.zeros(shape), np.ones(shape)
        heard = self._cohorts
        for last, size in groups(heard, self._last_size, heard > 0):
            here = (heard == last) & (self._last_size == size)
            seen = self._evidence.group_of(last) + 1
            rows = np.stack(self._by_group[:seen], axis=2)[here]
            facts = CohortFacts(size, self._spec.floor(size), size)
            estimates[here], lower[here], upper[here] = self._evidence.interval(
                last, self._evidence.planned_until(last, facts), rows
            )
        never = np.zeros(shape, dtype=np.int64)
        return self._accounts.result(estimates, lower, upper, never)

    def _totals(self, rows: NDArray[np.intp]) -> ArmTotals:
        # Until its last step every user of an instance is aggregated.
        users = self._accounts.pulls[rows].astype(np.float64)
        return ArmTotals(self._sums[rows], users, self._noises[rows])

    def _choices(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        return choose_arm(self._totals(rows), self._divergence, self._spec.horizon)

    def _sizes(self, rows: NDArray[np.intp], arms: NDArray[np.intp]) -> Integers:
        """Return users of each next cohort: as planned, or who is left for the last."""
        left = self._spec.horizon - self._accounts.users[rows]
        sizes = []
        for cohorts, most in zip(self._cohorts[rows, arms], left, strict=True):
            size = self._schedule.size(int(cohorts) + 1)
            if most < size:
                least = self._spec.least_size(int(cohorts) + 1)
                size = max(last_size(max(int(most), 0)), least)
            sizes.append(size)
        return np.array(sizes)

    def _close_finished(
        self, rows: NDArray[np.intp], arms: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        sizes = self._sizes(rows, arms)
        needed = self._accounts.users[rows] + sizes
        going = needed <= self._spec.horizon
        self._close(rows[~going])
        return rows[going], arms[going]

    def _close(self, rows: NDArray[np.intp], why: str = Ending.HORIZON) -> None:
        """End instances; who is left gets the arm that leads."""
        for row, leader in zip(rows, self._totals(rows).leader, strict=True):
            left = {int(leader): self._accounts.remaining(row)}
            self._accounts.close(row, why, left)

    def _play(self, rows: NDArray[np.intp], arms: NDArray[np.intp]) -> None:
        numbers, sizes = self._cohorts[rows, arms] + 1, self._sizes(rows, arms)
        everyone = np.ones(len(rows), dtype=np.bool_)
        for number, size in groups(numbers, sizes, everyone):
            here = (numbers == number) & (sizes == size)
            cohort = self._spec.calibrated(
                size, self._spec.floor(size), self._confidence.wrap(number)
            )
            who, which = rows[here], arms[here]
            flat = who * self._spec.arms + which
            sums = self._draws.totals(flat, cohort) / cohort.precision
            group = self._evidence.group_of(number)
            if len(self._by_group) <= group:
                self._by_group.append(np.zeros(self._cohorts.shape))
            self._by_group[group][who, which] += sums
            self._sums[who, which] += sums
            self._noises[who, which] += size / self._spec.floor(size)
            self._cohorts[who, which] = number
            self._last_size[who, which] = size
            self._accounts.pull(who, which, size)
            if size < self._schedule.size(number):
                self._close(who)
