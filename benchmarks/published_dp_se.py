"""DP-SE as the code published with Azize et al. 2023 plays it: with one slip.

That code divides the sum of an epoch by the pulls of all epochs so far, which shrinks
every gap. Put into our DP-SE on purpose it must give the figures of that code.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.regret.dp_se import FastDpSe
from wallflower.regret.draws import CohortDraws
from wallflower.regret.simulation import Accounts, Integers, Simulation


class SlippedDpSe(FastDpSe):
    """Plays DP-SE on sums that are too small by the slip."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self._draws = _SlippedDraws(simulation, self._accounts)


class _SlippedDraws(CohortDraws):
    def __init__(self, simulation: Simulation, accounts: Accounts) -> None:
        super().__init__(simulation.model, simulation.seed)
        self._accounts = accounts

    def totals(
        self,
        arms: NDArray[np.intp],
        cohort: CohortMechanism,
        survivors: int | None = None,
    ) -> Integers:
        sums = super().totals(arms, cohort, survivors)
        before = self._accounts.pulls.ravel()[arms]
        part = cohort.cohort_size / (cohort.cohort_size + before)
        return np.asarray(np.rint(sums * part), dtype=np.int64)
