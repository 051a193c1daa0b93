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
from wallflower.strategy.bandit.margin import pairs_of
from wallflower.strategy.bandit.policy import Ending
from wallflower.strategy.bandit.schedule import (
    CohortFacts,
    History,
    Schedule,
    last_size,
)
from wallflower.strategy.bandit.sequential_test import evidence_for

Decided = NDArray[np.bool_]


class FastElimination:
    """Plays `elimination` on every instance of a simulation.

    Attributes
    ----------
    played : batches so far.
    heard : the last batch of each arm of each instance; `last_size` its users.
    """

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
        self._kept = np.zeros(shape, dtype=np.bool_)  # asked after it fell
        if self._spec.control is not None and self._spec.keep_control:
            self._kept[:, self._spec.control] = True
        self._endings: dict[int, Ending] = {}  # that the margin gave, by instance
        self._eliminated = np.zeros(shape, dtype=np.int64)
        self.heard = np.zeros(shape, dtype=np.int64)  # batches each arm was in
        self.last_size = np.zeros(shape, dtype=np.int64)  # of its newest cohort
        self.played = 0  # batches
        self._sums: list[Doubles] = []  # per group of batches, in units of reward

    def steps(self) -> Iterator[float]:
        """Play batch after batch until every instance is over."""
        accounts = self.accounts
        while True:
            self._close_finished(self.played + 1)
            if not accounts.live.any():
                accounts.checkpoint()
                yield 1.0
                return
            self._play(self.played + 1)
            accounts.checkpoint()
            yield accounts.part_done

    @property
    def _asked(self) -> Decided:
        """Arms that get people: those in the race, and a control that is kept."""
        return np.asarray(self._active | self._kept)

    @property
    def eliminated_in(self) -> Integers:
        """Batch in which each arm of each instance fell, 0 while it is active."""
        return self._eliminated

    def result(self) -> SimulationResult:
        """Return what is known so far."""
        shape = self._active.shape
        estimates, lower, upper = np.full(shape, 0.5), np.zeros(shape), np.ones(shape)
        heard = self.heard
        for last, size in groups(heard, self.last_size, heard > 0):
            here = (heard == last) & (self.last_size == size)
            estimates[here], lower[here], upper[here] = self._evidence.interval(
                last, self._plan_history(last, size), self.sums(last)[here]
            )
        return self.accounts.result(estimates, lower, upper, self._eliminated)

    def _play(self, batch: int) -> None:
        playing = self._asked & self.accounts.live[:, None]
        self.played = batch
        if len(self._sums) <= self._evidence.group_of(batch):
            self._sums.append(np.zeros(playing.shape))
        sizes = self._sizes(batch)
        for size in sorted(set(sizes[self.accounts.live].tolist())):
            self._play_group(batch, size, playing & (sizes == size)[:, None])

    def _play_group(self, batch: int, size: int, playing: Decided) -> None:
        """Play the instances whose cohorts have one size."""
        cohort = self._spec.calibrated(
            size, self._spec.floor(size), self._confidence.wrap(batch)
        )
        instances, arms = np.nonzero(playing)
        flat = instances * self._spec.arms + arms
        self._sums[-1][playing] += self._draws.totals(flat, cohort) / cohort.precision
        self.heard[playing] = batch
        self.last_size[playing] = size
        self.accounts.pull(instances, arms, size)
        by_test = self._spec.radius == "tight"
        find = self._find_losers_by_test if by_test else self._find_losers_by_radius
        losers = find(batch, playing & self._active)
        self._active &= ~losers
        self._eliminated[losers] = batch
        if self._spec.margin is not None:
            self._find_endings(batch, size, playing & self._active)

    def _find_endings(self, batch: int, size: int, racing: Decided) -> None:
        """Say where the margin ends it, as `margin.find_ending` does."""
        heard, rows = self._plan_history(batch, size), self.sums(batch)
        estimates = self._weigh(batch, heard)
        control, shift = self._spec.control, -float(self._spec.margin or 0)

        def within(instances: Integers, arms: Integers, rivals: Integers) -> Decided:
            sides = (heard, rows[instances, arms]), (heard, rows[instances, rivals])
            return self._evidence.compare(batch, *sides, shift=shift).falls

        for ending in (Ending.EQUAL, Ending.FUTILE):
            among = racing.sum(axis=1) >= 2
            among[list(self._endings)] = False
            lowest = np.argmin(np.where(racing, estimates, np.inf), axis=1)
            others = racing.copy()
            if ending == Ending.FUTILE:
                if control is None:
                    return
                among &= self._asked[:, control]
                others[:, control] = False
                lowest[:] = control
            highest = np.argmax(np.where(others, estimates, -np.inf), axis=1)
            places = np.flatnonzero(among)
            far = within(places, lowest[places], highest[places])
            for row in places[far].tolist():
                arms = np.flatnonzero(racing[row]).tolist()
                pairs = np.array(pairs_of(ending, arms, control))
                if within(np.full(len(pairs), row), *pairs.T).all():
                    self._endings[row] = ending

    def _sizes(self, batch: int) -> Integers:
        """Users per arm of each instance: as planned, or who is left for the last."""
        planned = self._schedule.size(batch)
        left = self._spec.horizon - self.accounts.users
        fitting = left // self._asked.sum(axis=1)
        last = [last_size(most) for most in fitting.tolist()]
        return np.where(fitting >= planned, planned, np.array(last))

    def _find_losers_by_test(self, batch: int, playing: Decided) -> Decided:
        """Compare every arm with the leader of its instance; all have one size."""
        rows = self.sums(batch)
        heard = self._plan_history(batch, int(self.last_size[playing][0]))
        estimates = np.where(playing, self._weigh(batch, heard), -np.inf)
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

    def _find_losers_by_radius(self, batch: int, playing: Decided) -> Decided:
        """Return the arms that trail the leader by more than two `paper` radii."""
        counts = playing.sum(axis=1)
        table = np.zeros(self._spec.arms + 1)
        facts = self._facts(self._schedule.size(batch))
        for count in sorted(set(counts[counts > 0].tolist())):
            table[count] = 2 * self._confidence.paper(facts, batch, count)
        return self._trailing(playing, self._newest_means(batch), table[counts])

    def _trailing(self, playing: Decided, means: Doubles, radii: Doubles) -> Decided:
        """Return the arms that trail the leader of their instance by more."""
        best = np.where(playing, means, -np.inf).max(axis=1, keepdims=True)
        lead = best - np.where(playing, means, 0.0)
        return np.asarray(playing & (lead > radii[:, None]))

    def sums(self, last: int) -> Doubles:
        """Sums of batches 1..last by group, for every instance and arm; 0 for none."""
        return np.stack(self._sums[: self._evidence.group_of(last) + 1], axis=2)

    def _facts(self, size: int) -> CohortFacts:
        return CohortFacts(size, self._spec.floor(size), size)

    def _plan_history(self, last: int, size: int) -> History:
        """Planned cohorts up to batch `last`, which had `size` users."""
        return self._evidence.planned_until(last, self._facts(size))

    def _weigh(self, last: int, heard: History) -> Doubles:
        """Return all arms' estimates after batch `last`, by the weights of the test."""
        users = self._evidence.delivered(heard, last).users
        rows = self.sums(last)
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
        needed = accounts.users + self._asked.sum(axis=1) * spec.least_size(batch)
        if batch > spec.most_batches:
            needed = np.full(len(needed), spec.horizon + 1)
        last = Ending.ROUNDS if spec.are_rounds_over(batch) else Ending.HORIZON
        for row in np.flatnonzero(accounts.live & (counts == 1)):
            winner = int(np.argmax(self._active[row]))
            accounts.close(row, Ending.WINNER, {winner: accounts.remaining(row)})
        for place, ending in self._endings.items():
            if accounts.live[place]:
                accounts.close(place, ending, self._assignment(place, batch))
        for row in np.flatnonzero(accounts.live & (needed > spec.horizon)):
            accounts.close(row, last, self._assignment(row, batch))

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
        if not self.played:
            return {int(active[0]): left}
        last = self.played
        heard = self._plan_history(last, int(self.last_size[row, active[0]]))
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


def groups(batches: Integers, sizes: Integers, among: Decided) -> list[tuple[int, int]]:
    """Return every pair of a last batch and its size that occurs."""
    both = zip(batches[among].tolist(), sizes[among].tolist(), strict=True)
    return sorted(set(both))


def _ratio(ratio: Fraction | None) -> Fraction:
    assert ratio is not None, "a resolved spec has a ratio"
    return ratio
