"""Successive elimination on many instances at once, exact in law, O(g) a cohort.

Sizes, levels and radii depend on the batch number alone, so all instances move in step:
one draw for every (instance, active arm), one test for all. Only last batches, which
take who is left, differ. The decisions are those of `strategy.bandit.elimination` (a
test plays both on the same sums).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from wallflower.regret.draws import CohortDraws
from wallflower.regret.simulation import (
    Accounts,
    Doubles,
    Integers,
    Simulation,
    SimulationResult,
)
from wallflower.strategy.bandit.confidence import confidence_for
from wallflower.strategy.bandit.schedule import (
    CohortFacts,
    History,
    Schedule,
    last_size,
)
from wallflower.strategy.bandit.sequential_test import evidence_for


class FastElimination:
    """Plays `elimination` on every instance of a simulation."""

    def __init__(self, simulation: Simulation) -> None:
        self._spec = simulation.spec.resolved()
        self._simulation = simulation
        self._schedule = Schedule(_ratio(self._spec.ratio), self._spec.first_batch)
        self._confidence = confidence_for(self._spec)
        self._evidence = evidence_for(self._spec)
        self._draws = CohortDraws(simulation.model, simulation.seed)
        self.accounts = Accounts(simulation)
        shape = (simulation.instances, self._spec.arms)
        self._active = np.ones(shape, dtype=np.bool_)
        self._eliminated = np.zeros(shape, dtype=np.int64)
        self._heard = np.zeros(shape, dtype=np.int64)  # batches each arm was in
        self._last_size = np.zeros(shape, dtype=np.int64)  # of its newest cohort
        self._played = 0  # batches
        self._sums: list[Doubles] = []  # per group of batches, in units of reward

    def steps(self) -> Iterator[float]:
        """Play batch after batch until every instance is over."""
        accounts = self.accounts
        while True:
            self._close_finished(self._played + 1)
            if not accounts.live.any():
                accounts.checkpoint()
                yield 1.0
                return
            self._play(self._played + 1)
            accounts.checkpoint()
            yield accounts.part_done

    @property
    def eliminated_in(self) -> Integers:
        """Batch in which each arm of each instance fell, 0 while it is active."""
        return self._eliminated

    def result(self) -> SimulationResult:
        """Return what is known so far."""
        shape = self._active.shape
        estimates, lower, upper = np.full(shape, 0.5), np.zeros(shape), np.ones(shape)
        heard = self._heard
        for last, size in groups(heard, self._last_size, heard > 0):
            here = (heard == last) & (self._last_size == size)
            estimates[here], lower[here], upper[here] = self._evidence.interval(
                last, self._heard_of(last, size), self._rows(last)[here]
            )
        return self.accounts.result(estimates, lower, upper, self._eliminated)

    def _play(self, batch: int) -> None:
        playing = self._active & self.accounts.live[:, None]
        self._played = batch
        if len(self._sums) <= self._evidence.group_of(batch):
            self._sums.append(np.zeros(playing.shape))
        sizes = self._sizes(batch)
        for size in sorted(set(sizes[self.accounts.live].tolist())):
            self._play_group(batch, size, playing & (sizes == size)[:, None])

    def _play_group(self, batch: int, size: int, playing: NDArray[np.bool_]) -> None:
        """Play the instances whose cohorts have one size."""
        cohort = self._spec.calibrated(
            size, self._spec.floor(size), self._confidence.wrap(batch)
        )
        instances, arms = np.nonzero(playing)
        flat = instances * self._spec.arms + arms
        self._sums[-1][playing] += self._draws.totals(flat, cohort) / cohort.precision
        self._heard[playing] = batch
        self._last_size[playing] = size
        self.accounts.pull(instances, arms, size)
        by_test = self._spec.radius == "tight"
        find = self._find_losers_by_test if by_test else self._find_losers_by_radius
        losers = find(batch, playing)
        self._active &= ~losers
        self._eliminated[losers] = batch

    def _sizes(self, batch: int) -> Integers:
        """Users per arm of each instance: as planned, or who is left for the last."""
        planned = self._schedule.size(batch)
        left = self._spec.horizon - self.accounts.users
        fitting = left // self._active.sum(axis=1)
        last = [last_size(most) for most in fitting.tolist()]
        return np.where(fitting >= planned, planned, np.array(last))

    def _find_losers_by_test(
        self, batch: int, playing: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Compare every arm with the leader of its instance; all have one size."""
        rows = self._rows(batch)
        heard = self._heard_of(batch, int(self._last_size[playing][0]))
        estimates = np.where(playing, self._weighted(batch, heard), -np.inf)
        leaders = np.argmax(estimates, axis=1)
        rivals = playing.copy()
        rivals[np.arange(len(leaders)), leaders] = False
        instances, arms = np.nonzero(rivals)
        verdict = self._evidence.compare(
            batch,
            (heard, rows[instances, leaders[instances]]),
            (heard, rows[instances, arms]),
        )
        losers = np.zeros(playing.shape, dtype=np.bool_)
        losers[instances, arms] = verdict.falls
        return losers

    def _find_losers_by_radius(
        self, batch: int, playing: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Return the arms that trail the leader by more than two `paper` radii."""
        counts = playing.sum(axis=1)
        table = np.zeros(self._spec.arms + 1)
        facts = self._facts(self._schedule.size(batch))
        for count in sorted(set(counts[counts > 0].tolist())):
            table[count] = 2 * self._confidence.paper(facts, batch, count)
        return self._trailing(playing, self._newest_means(batch), table[counts])

    def _trailing(
        self, playing: NDArray[np.bool_], means: Doubles, radii: Doubles
    ) -> NDArray[np.bool_]:
        """Return the arms that trail the leader of their instance by more."""
        best = np.where(playing, means, -np.inf).max(axis=1, keepdims=True)
        lead = best - np.where(playing, means, 0.0)
        return np.asarray(playing & (lead > radii[:, None]))

    def _rows(self, last: int) -> Doubles:
        """Sums of batches 1..last by group, for every instance and arm; 0 for none."""
        return np.stack(self._sums[: self._evidence.group_of(last) + 1], axis=2)

    def _facts(self, size: int) -> CohortFacts:
        return CohortFacts(size, self._spec.floor(size), size)

    def _heard_of(self, last: int, size: int) -> History:
        """Planned cohorts up to batch `last`, which had `size` users."""
        return self._evidence.planned_until(last, self._facts(size))

    def _weighted(self, last: int, heard: History) -> Doubles:
        """Return all arms' estimates after batch `last`, by the weights of the test."""
        users = self._evidence.delivered(heard, last).users
        rows = self._rows(last)
        flat = self._evidence.estimates(users, rows.reshape(-1, rows.shape[2]))
        return flat.reshape(rows.shape[:2])

    def _newest_means(self, last: int, pooled: int = 1) -> Doubles:
        """Return means over the newest `pooled` groups of the batches up to `last`."""
        window = self._evidence.planned(last)[-pooled:]
        users = sum(n * facts.survivors for group in window for facts, n in group)
        return np.asarray(sum(self._sums[-pooled:], np.array(0.0)) / users)

    def _close_finished(self, batch: int) -> None:
        accounts, spec = self.accounts, self._spec
        counts = self._active.sum(axis=1)
        needed = accounts.users + counts * spec.least_size(batch)
        if batch > spec.most_batches:
            needed = np.full(len(needed), spec.horizon + 1)
        for row in np.flatnonzero(accounts.live & (counts == 1)):
            winner = int(np.argmax(self._active[row]))
            accounts.close(row, "winner", {winner: accounts.remaining(row)})
        for row in np.flatnonzero(accounts.live & (needed > spec.horizon)):
            accounts.close(row, "horizon", self._assignment(row, batch))

    def _assignment(self, row: int | np.intp, batch: int) -> dict[int, int]:
        """Return who is not aggregated, by arm, as `Elimination.assignment` does."""
        if self._spec.radius != "paper":
            return self._assign_to_leader(row)
        active = np.flatnonzero(self._active[row])
        size = self._schedule.size(batch)
        return assign_in_blocks(active, size, self.accounts.remaining(row))

    def _assign_to_leader(self, row: int | np.intp) -> dict[int, int]:
        left = self.accounts.remaining(row)
        active = np.flatnonzero(self._active[row])
        if not self._played:
            return {int(active[0]): left}
        last = self._played
        heard = self._heard_of(last, int(self._last_size[row, active[0]]))
        users = self._evidence.delivered(heard, last).users
        sums = np.stack([group[row, active] for group in self._sums], axis=1)
        estimates = self._evidence.estimates(users, sums)
        return {int(active[np.argmax(estimates)]): left}


def assign_in_blocks(active: NDArray[np.intp], size: int, left: int) -> dict[int, int]:
    """Return users by arm: `size` for one arm after the other, while they last.

    Algorithm 1 does so when it reaches T within a batch.
    """
    assigned: dict[int, int] = {}
    for arm in active:
        assigned[int(arm)] = min(size, left)
        left -= assigned[int(arm)]
    return assigned


def groups(
    batches: Integers, sizes: Integers, among: NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """Every pair of a last batch and its size that occurs."""
    both = zip(batches[among].tolist(), sizes[among].tolist(), strict=True)
    return sorted(set(both))


def _ratio(ratio: Fraction | None) -> Fraction:
    assert ratio is not None, "a resolved spec has a ratio"
    return ratio
