"""Elimination by a radius that pays for the largest variance of a reward, ¼.

The rule before the `tight` test: an arm falls once it trails by more than a Chernoff
bound of the difference of two means. It serves as a yardstick for `tight`.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from wallflower.regret.elimination import FastElimination
from wallflower.regret.simulation import Simulation
from wallflower.strategy.bandit.radius import pair_bound
from wallflower.strategy.bandit.spec import PolicySpec, smallest_useful_batch


def steep(spec: PolicySpec) -> PolicySpec:
    """Return the schedule of the oracle: 3/2, from what could tell 0 from 1."""
    first = smallest_useful_batch(spec)
    return replace(spec, ratio=Fraction(3, 2), first_batch=first)


class PairElimination(FastElimination):
    """Plays elimination by the pair radius on every instance.

    Parameters
    ----------
    simulation : Simulation
        Its policy is `elimination` with the radius `tight`, whose sizes are taken.
    pooling : bool
        Whether the newest cohorts are pooled as far as that helps. A fresh cohort alone
        is independent of who is still active, so only active arms share its level.
    """

    def __init__(self, simulation: Simulation, *, pooling: bool = True) -> None:
        # Sizes as with `tight`; levels and last batches as with any other radius.
        spec = replace(simulation.spec.resolved(), radius="paper")
        super().__init__(replace(simulation, spec=spec))
        self._pooling = pooling

    def _find_losers_by_radius(
        self, batch: int, playing: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        counts = playing.sum(axis=1)
        heard = self._evidence.planned(batch)
        if self._pooling:
            bound = self._confidence.pair(heard, batch)
            radii = np.full(len(counts), bound.radius)
            means = self._newest_means(batch, bound.pooled)
            return self._trailing(playing, means, radii)
        pool, table = self._confidence.pool(heard, 1), np.zeros(self._spec.arms + 1)
        for count in sorted(set(counts[counts > 0].tolist())):
            table[count], _ = pair_bound(pool, self._spec.shares.pair(batch, count))
        return self._trailing(playing, self._newest_means(batch), table[counts])

    def _assignment(self, row: int | np.intp, batch: int) -> dict[int, int]:
        return self._assign_to_leader(row)
