"""Elimination where arms lose people unequally, on many instances at once.

How many of a cohort answer follows from its arm and batch by a public pattern, so that
all instances share the facts of an arm and only their sums differ. Decisions are those
of `strategy.bandit.elimination` (tests/benchmarks/test_uneven_survivors.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from wallflower.regret.elimination import FastElimination
from wallflower.regret.simulation import Simulation
from wallflower.strategy.bandit.schedule import (
    CohortFacts,
    History,
    count_cohorts,
    heard_from,
)

# Part of a cohort that answers, by batch and arm; 0: fewer than the floor, so void.
Pattern = Callable[[int, int], float]

_PARTS = (1.0, 0.8, 0.93, 0.0, 0.87, 1.0, 0.8)


def everybody(batch: int, arm: int) -> float:
    """Nobody is lost."""
    return 1.0


def fewest_of_the_first(batch: int, arm: int) -> float:
    """Only the floor of arm 0 answers, and everybody else."""
    return 0.8 if arm == 0 else 1.0


def uneven_and_void(batch: int, arm: int) -> float:
    """Up to a fifth is lost, and every seventh cohort is void."""
    return _PARTS[(3 * arm + 5 * batch) % len(_PARTS)]


PATTERNS: dict[str, Pattern] = {
    "all": everybody,
    "fewest of the best": fewest_of_the_first,
    "uneven, some void": uneven_and_void,
}


class UnevenElimination(FastElimination):
    """Plays `elimination` with the `tight` test; survivors follow a pattern."""

    def __init__(self, simulation: Simulation, pattern: Pattern) -> None:
        super().__init__(simulation)
        self._pattern = pattern
        self._by_batch: list[NDArray[np.float64]] = []

    def survivors(self, batch: int, arm: int, size: int) -> int:
        """How many of a cohort answer; 0 where the cohort is void."""
        came = math.floor(size * self._pattern(batch, arm))
        return 0 if not came else max(came, self._spec.floor(size))

    def _play_group(self, batch: int, size: int, playing: NDArray[np.bool_]) -> None:
        cohort = self._spec.calibrated(
            size, self._spec.floor(size), self._confidence.wrap(batch)
        )
        heard = playing.copy()
        if len(self._by_batch) < batch:
            self._by_batch.append(np.zeros(playing.shape))
        for arm in range(self._spec.arms):
            rows = np.flatnonzero(playing[:, arm])
            self.accounts.pulls[rows, arm] += size
            came = self.survivors(batch, arm, size)
            if came:
                flat = rows * self._spec.arms + arm
                sums = self._draws.totals(flat, cohort, came) / cohort.precision
                self._sums[-1][rows, arm] += sums
                self._by_batch[-1][rows, arm] += sums
            else:
                heard[:, arm] = False
        self.last_size[playing] = size
        losers = self._losers(batch, size, heard)
        self._active &= ~losers
        self._eliminated[losers] = batch

    def _losers(
        self, batch: int, size: int, heard: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Compare every heard arm with the leader of its instance's heard arms."""
        rows = self.sums(batch)
        sides = [self._side(arm, arm, batch, size) for arm in range(self._spec.arms)]
        estimates = np.full(heard.shape, -np.inf)
        for arm in np.flatnonzero(heard.any(axis=0)).tolist():
            listening = np.flatnonzero(heard[:, arm])
            users = self._evidence.delivered(sides[arm], batch).users
            found = self._evidence.estimates(users, rows[listening, arm])
            estimates[listening, arm] = found
        leaders = np.argmax(estimates, axis=1)
        losers = np.zeros(heard.shape, dtype=np.bool_)
        for leader in np.unique(leaders[heard.any(axis=1)]).tolist():
            for arm in range(self._spec.arms):
                here = np.flatnonzero((leaders == leader) & heard[:, arm])
                if arm == leader or not len(here):
                    continue
                verdict = self._evidence.compare(
                    batch,
                    self._shared(leader, arm, batch, size, here),
                    self._shared(arm, leader, batch, size, here),
                )
                losers[here, arm] = verdict.falls
        return losers

    def _shared(
        self, arm: int, other: int, batch: int, size: int, here: NDArray[np.intp]
    ) -> tuple[History, NDArray[np.float64]]:
        """Return what an arm showed in the batches in which `other` has a sum too."""
        rows = np.zeros((len(here), self._evidence.group_of(batch) + 1))
        for place, sums in enumerate(self._by_batch, 1):
            if self.survivors(place, other, self._schedule.size(place)):
                rows[:, self._evidence.group_of(place)] += sums[here, arm]
        return self._side(arm, other, batch, size), rows

    def _side(self, arm: int, other: int, last: int, size: int) -> History:
        """Return what was delivered of an arm, where `other` has a sum, until `last`.

        The newest batch is of `size` users.
        """
        sizes = [self._schedule.size(batch) for batch in range(1, last)] + [size]
        delivered = [
            (
                self._evidence.group_of(batch),
                CohortFacts(invited, self._spec.floor(invited), came),
            )
            for batch, invited in enumerate(sizes, 1)
            if (came := self.survivors(batch, arm, invited))
            and self.survivors(batch, other, invited)
        ]
        return heard_from(count_cohorts((), delivered))

    def _assignment(self, row: int | np.intp, batch: int) -> dict[int, int]:
        """Who is left gets any arm: nobody counts regret here."""
        return {int(np.argmax(self._active[row])): self.accounts.remaining(row)}
