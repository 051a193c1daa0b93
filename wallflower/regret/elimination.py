"""Successive elimination on many instances at once, exact in law, O(g) a cohort.

Sizes, levels and radii depend on the batch number alone, so all instances move in step:
one draw for every (instance, active arm), one radius for all. The decisions are those
of `strategy.elimination` (a test plays both on the same sums).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from wallflower.regret.accounts import Accounts
from wallflower.regret.draws import CohortDraws
from wallflower.regret.simulation import Doubles, Simulation, SimulationResult
from wallflower.strategy.bandit.confidence import CohortFacts, History, confidence_for
from wallflower.strategy.bandit.schedule import Schedule


class FastElimination:
    """Plays `elimination` on every instance of a simulation."""

    def __init__(self, simulation: Simulation) -> None:
        self._spec = simulation.spec.resolved()
        self._simulation = simulation
        self._schedule = Schedule(_ratio(self._spec.ratio), self._spec.first_batch)
        self._confidence = confidence_for(self._spec)
        self._draws = CohortDraws(simulation.model, simulation.seed)
        self._accounts = Accounts(simulation)
        shape = (simulation.instances, self._spec.arms)
        self._active = np.ones(shape, dtype=np.bool_)
        self._eliminated = np.zeros(shape, dtype=np.int64)
        self._heard = np.zeros(shape, dtype=np.int64)  # batches each arm was in
        self._history: History = ()
        self._sums: list[Doubles] = []  # per batch, in units of reward

    def steps(self) -> Iterator[float]:
        """Play batch after batch until every instance is over."""
        accounts = self._accounts
        while True:
            self._close_finished(len(self._history) + 1)
            if not accounts.live.any():
                accounts.checkpoint()
                yield 1.0
                return
            self._play(len(self._history) + 1)
            accounts.checkpoint()
            yield accounts.part_done

    def result(self) -> SimulationResult:
        """Tell what is known so far."""
        estimates = np.full(self._active.shape, np.nan)
        radii = np.full(self._active.shape, np.inf)
        for last in range(1, len(self._history) + 1):
            here = self._heard == last
            if not here.any():
                continue
            bound = self._confidence.own(self._history[:last], last)
            estimates[here] = self._estimates(last, bound.pooled)[here]
            radii[here] = bound.radius
        known = np.where(np.isnan(estimates), 0.5, estimates)
        return self._accounts.result(known, radii, self._eliminated)

    def _play(self, batch: int) -> None:
        size = self._schedule.size(batch)
        floor = self._spec.floor(size)
        cohort = self._spec.calibrated(size, floor, self._confidence.wrap(batch))
        self._history += (CohortFacts(batch, size, floor, size),)
        playing = self._active & self._accounts.live[:, None]
        instances, arms = np.nonzero(playing)
        flat = instances * self._spec.arms + arms
        sums = np.full(playing.shape, np.nan)
        sums[playing] = self._draws.totals(flat, cohort) / cohort.precision
        self._sums.append(sums)
        self._heard[playing] = batch
        self._accounts.pull(instances, arms, size)
        self._drop(batch, playing)

    def _drop(self, batch: int, playing: NDArray[np.bool_]) -> None:
        counts = playing.sum(axis=1)
        table, pooled = np.zeros(self._spec.arms + 1), 1
        for count in np.unique(counts[counts > 0]).tolist():
            if self._spec.radius == "tight":
                both = (self._history, self._history)
                bound = self._confidence.pair(*both, batch, count)
                # How many batches are pooled depends on sizes alone.
                table[count], pooled = bound.radius, bound.pooled
            else:
                facts = self._history[-1]
                table[count] = 2 * self._confidence.paper(facts, batch, count)
        radius = table[counts][:, None]
        estimates = self._estimates(batch, pooled)
        best = np.where(playing, estimates, -np.inf).max(axis=1, keepdims=True)
        losers = playing & (best - np.where(playing, estimates, 0.0) > radius)
        self._active &= ~losers
        self._eliminated[losers] = batch

    def _estimates(self, last: int, pooled: int) -> Doubles:
        """Mean over the `pooled` batches up to batch `last`."""
        window = slice(last - pooled, last)
        users = sum(facts.size for facts in self._history[window])
        return np.asarray(sum(self._sums[window], np.array(0.0)) / users)

    def _close_finished(self, batch: int) -> None:
        accounts, spec = self._accounts, self._spec
        counts = self._active.sum(axis=1)
        needed = accounts.users + counts * self._schedule.size(batch)
        for row in np.flatnonzero(accounts.live & (counts == 1)):
            winner = int(np.argmax(self._active[row]))
            accounts.close(row, "winner", {winner: accounts.remaining(row)})
        for row in np.flatnonzero(accounts.live & (needed > spec.horizon)):
            accounts.close(row, "horizon", self._assignment(row, batch))
        if spec.user_budget:
            for row in np.flatnonzero(accounts.live & (needed > spec.user_budget)):
                accounts.close(row, "budget", self._assignment(row, batch))

    def _assignment(self, row: int | np.intp, batch: int) -> dict[int, int]:
        """Give the users who are not aggregated, as `Elimination.assignment` does."""
        left = self._accounts.remaining(row)
        active = np.flatnonzero(self._active[row])
        if self._spec.radius == "tight":
            if not self._history:
                return {int(active[0]): left}
            bound = self._confidence.own(self._history, len(self._history))
            estimates = self._estimates(len(self._history), bound.pooled)[row]
            return {int(active[np.argmax(estimates[active])]): left}
        return in_blocks(active, self._schedule.size(batch), left)


def in_blocks(active: NDArray[np.intp], size: int, left: int) -> dict[int, int]:
    """Algorithm 1 at the horizon: arm after arm, `size` users each, while they last."""
    assigned: dict[int, int] = {}
    for arm in active:
        assigned[int(arm)] = min(size, left)
        left -= assigned[int(arm)]
    return assigned


def _ratio(ratio: Fraction | None) -> Fraction:
    assert ratio is not None, "a resolved spec has a ratio"
    return ratio
